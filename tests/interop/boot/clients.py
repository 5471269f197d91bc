#!/usr/bin/env python3
"""Python's HTTP client as a node: gets a lease through a relay and fetches from there.

usage: clients.py DHCP_IP:PORT RELAY_IP MAC HTTP_IP:PORT FILE BIG_BYTES

FILE is the expected content of /files/large, /files/big has BIG_BYTES. Prints the
leased address; ends with an error at the first failure.
"""

import hashlib
import http.client
import socket
import struct
import sys

COOKIE = b"\x63\x82\x53\x63"


def text_port(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def options(reply):
    at, found = 240, {}
    while at < len(reply) and reply[at] != 255:
        if reply[at] == 0:
            at += 1
            continue
        code, length = reply[at], reply[at + 1]
        found[code] = reply[at + 2 : at + 2 + length]
        at += 2 + length
    return found


def lease(server, relay, mac):
    """DISCOVER and REQUEST as a relay passes them on, which says by option 82,
    suboption 19 (RFC 8357), that it is not at port 67."""
    mac = bytes.fromhex(mac.replace(":", ""))
    wire = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    wire.bind((relay, 0))
    wire.settimeout(20)

    def ask(*extra):
        head = struct.pack("!BBBBIHH", 1, 1, 6, 1, 0x1234ABCD, 0, 0)
        head += bytes(12) + socket.inet_aton(relay) + mac + bytes(10 + 64 + 128)
        body = b"".join(bytes([code, len(value)]) + value for code, value in extra)
        wire.sendto(head + COOKIE + body + b"\x52\x02\x13\x00\xff", server)
        return wire.recv(4096)

    offer = ask((53, b"\x01"))
    address, identifier = offer[16:20], options(offer)[54]
    answer = ask((53, b"\x03"), (50, address), (54, identifier))
    assert options(answer)[53] == b"\x05", options(answer)
    assert answer[16:20] == address
    return socket.inet_ntoa(address)


class Node:
    def __init__(self, address, server):
        self.address, self.server = address, server
        self.connection = http.client.HTTPConnection(
            *server, timeout=60, source_address=(address, 0)
        )

    def ask(self, method, path, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request(method, path, headers=headers)
        answer = self.connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()

    def raw(self, receive_bytes=None):
        one = socket.socket()
        if receive_bytes:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        one.bind((self.address, 0))
        one.settimeout(60)
        one.connect(self.server)
        return one


def request(path, *lines):
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: box", *lines, "", ""]).encode()


def keep_alive(node, want):
    """HEAD, the whole file, a range, an unchanged file: all on one connection."""
    status, head, body = node.ask("HEAD", "/files/large")
    assert (status, body) == (200, b""), status
    assert int(head["Content-Length"]) == len(want), head
    assert head["Accept-Ranges"] == "bytes", head
    first = node.connection.sock
    port = first.getsockname()
    status, head, body = node.ask("GET", "/files/large")
    assert status == 200 and body == want
    tag, date = head["ETag"], head["Last-Modified"]
    for condition in ({"If_None_Match": tag}, {"If_Modified_Since": date}):
        status, head, body = node.ask("GET", "/files/large", **condition)
        assert (status, body) == (304, b""), (status, condition)
    for condition in ({"If_Match": '"other"'}, {"If_Unmodified_Since": "Sat, 01 Jan 2000 00:00:00 GMT"}):
        status, head, body = node.ask("GET", "/files/large", **condition)
        assert status == 412, (status, condition)
    status, head, body = node.ask("GET", "/files/large", Range="bytes=7-99", If_Range=tag)
    assert status == 206 and body == want[7:100], status
    assert head["Content-Range"] == f"bytes 7-99/{len(want)}", head
    status, head, body = node.ask("GET", "/files/large", Range="bytes=7-99", If_Range='"old"')
    assert status == 200 and body == want, status
    status, head, body = node.ask("GET", "/files/large", Range="bytes=0-1,5-6")
    assert status == 200 and body == want, status
    status, head, body = node.ask("GET", "/files/nothing")
    assert status == 404
    status, head, body = node.ask("DELETE", "/files/large")
    assert status == 405 and head["Allow"] == "GET, HEAD", head
    assert node.connection.sock.getsockname() == port, "another connection"
    node.connection.close()


def pipeline(node, want):
    """Pipelined requests get their replies in order."""
    one = node.raw()
    one.sendall(
        request("/files/large", "Range: bytes=0-9")
        + request("/files/large", "Range: bytes=-10")
        + request("/files/large", "Range: bytes=10-19", "Connection: close")
    )
    everything = b""
    while part := one.recv(65536):
        everything += part
    bodies = [answer.split(b"\r\n\r\n", 1)[1] for answer in everything.split(b"HTTP/1.1 206")[1:]]
    assert bodies == [want[:10], want[-10:], want[10:20]], everything


def slowly(node, want):
    """A client with a small buffer that reads slowly gets the same bytes."""
    one = node.raw(receive_bytes=8192)
    one.sendall(request("/files/large", "Connection: close"))
    everything = bytearray()
    while part := one.recv(1500):
        everything += part
    body = everything.split(b"\r\n\r\n", 1)[1]
    assert hashlib.sha256(body).digest() == hashlib.sha256(want).digest(), len(body)


def cut(node, size):
    """A client that disconnects in the middle."""
    one = node.raw()
    one.sendall(request("/files/big"))
    taken = 0
    while taken < size // 4:
        taken += len(one.recv(65536))
    # Close with a reset: data in flight is lost.
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()


def main():
    dhcp, relay, mac, server, path, size = sys.argv[1:]
    with open(path, "rb") as file:
        want = file.read()
    node = Node(lease(text_port(dhcp), relay, mac), text_port(server))
    keep_alive(node, want)
    pipeline(node, want)
    slowly(node, want)
    cut(node, int(size))
    print(node.address)


main()
