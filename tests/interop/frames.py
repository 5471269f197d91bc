#!/usr/bin/env python3
"""Prints the DHCP messages of a capture (pcap, Ethernet).

frames.py FILE            one line per DHCP frame, fields as NAME=VALUE
frames.py FILE sent MAC   one line for each frame of any kind that MAC sent
frames.py FILE gaps MAC   seconds from each message of a client to the reply that MAC sent
frames.py FILE parts MAC START  seconds from START to each first event of the client MAC
"""
import socket
import struct
import sys

TYPES = "- DISCOVER OFFER REQUEST DECLINE ACK NAK RELEASE INFORM".split()
PORTS = {67, 68, 4011}
OPTIONS_AT = 240


def frames(path):
    with open(path, "rb") as file:
        header = file.read(24)
        if len(header) < 24:
            return
        order = "<" if header[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
        unit = 1e-9 if header[0] in (0x4D, 0xA1) and 0x3C in header[:4] else 1e-6
        while len(head := file.read(16)) == 16:
            seconds, part, stored, _ = struct.unpack(order + "IIII", head)
            frame = file.read(stored)
            # A capture that is still running may end in the middle of a frame.
            if len(frame) < stored:
                return
            yield seconds + part * unit, frame


def mac(data):
    return ":".join(f"{byte:02x}" for byte in data)


def options(data):
    found, at = {}, OPTIONS_AT
    while at < len(data) and data[at] != 255:
        if data[at] == 0:
            at += 1
            continue
        if at + 1 >= len(data):
            break
        size = data[at + 1]
        found.setdefault(data[at], data[at + 2 : at + 2 + size])
        at += 2 + size
    return found


def text(data):
    return data.split(b"\0")[0].decode("ascii", "replace") or "-"


def message(when, frame):
    """One DHCP message as a dictionary, or none."""
    if len(frame) < 42 or frame[12:14] != b"\x08\x00" or frame[23] != 17:
        return None
    at = 14 + 4 * (frame[14] & 15)
    source, target = struct.unpack("!HH", frame[at : at + 4])
    data = frame[at + 8 :]
    if not {source, target} & PORTS or len(data) < OPTIONS_AT:
        return None
    if data[236:240] != b"\x63\x82\x53\x63":
        return None
    found = options(data)
    kind = (found.get(53) or b"\0")[0]
    address = lambda a, b: socket.inet_ntoa(data[a:b])
    return {
        "at": when,
        "type": TYPES[kind] if kind < len(TYPES) else str(kind),
        "op": data[0],
        "from": mac(frame[6:12]),
        "to": mac(frame[0:6]),
        "src": f"{socket.inet_ntoa(frame[26:30])}:{source}",
        "dst": f"{socket.inet_ntoa(frame[30:34])}:{target}",
        "xid": data[4:8].hex(),
        "chaddr": mac(data[28:34]),
        "broadcast": data[10] >> 7,
        "ciaddr": address(12, 16),
        "yiaddr": address(16, 20),
        "siaddr": address(20, 24),
        "giaddr": address(24, 28),
        "server": socket.inet_ntoa(found[54]) if len(found.get(54, b"")) == 4 else "-",
        "asked": socket.inet_ntoa(found[50]) if len(found.get(50, b"")) == 4 else "-",
        "class": text(found.get(60, b"")),
        "ipxe": int(175 in found),
        "file": text(found[67] if 67 in found else data[108:236]),
    }


def line(one):
    words = [f"{one['at']:.6f}", one["type"]]
    words += [f"{name}={value}" for name, value in one.items() if name not in ("at", "type")]
    return " ".join(words)


def gaps(path, ours):
    """A message and its reply share transaction and client; relays keep both."""
    open_, answers = {}, {"DISCOVER": ("OFFER",), "REQUEST": ("ACK", "NAK"), "INFORM": ("ACK",)}
    for when, frame in frames(path):
        one = message(when, frame)
        if one is None:
            continue
        key = (one["xid"], one["chaddr"])
        if one["op"] == 1 and one["from"] != ours and one["type"] in answers:
            open_[key] = one
        elif one["op"] == 2 and one["from"] == ours and key in open_:
            request = open_[key]
            if one["type"] in answers[request["type"]]:
                yield when - request["at"], request, one
                del open_[key]


def event(when, frame, client):
    """The boot event of this client in a frame, or none."""
    from_client = mac(frame[6:12]) == client
    one = message(when, frame)
    if one is not None:
        return one["type"] if one["chaddr"] == client else None
    if frame[12:14] == b"\x86\xdd" and len(frame) > 54 and frame[20] == 58:
        return {133: "router asked for", 134: "router advertised"}.get(frame[54])
    if from_client and b"GET /boot/" in frame:
        return "script asked for" if b"/script" in frame else "kernel asked for"
    return None


def parts(path, client, start):
    found = {}
    for when, frame in frames(path):
        what = event(when, frame, client)
        if what is not None:
            found.setdefault(what, when - start)
    return found


def main():
    path, *rest = sys.argv[1:]
    if rest[:1] == ["sent"]:
        for when, frame in frames(path):
            if mac(frame[6:12]) == rest[1]:
                print(f"{when:.6f} to={mac(frame[0:6])} kind={frame[12:14].hex()} {frame[14:60].hex()}")
    elif rest[:1] == ["gaps"]:
        for gap, request, one in gaps(path, rest[1]):
            print(f"{gap:.6f} {request['type']} {one['type']} {one['chaddr']} at={request['at']:.6f}")
    elif rest[:1] == ["parts"]:
        for what, after in parts(path, rest[1], float(rest[2])).items():
            print(f"{after:8.3f} s  {what}")
    else:
        for when, frame in frames(path):
            one = message(when, frame)
            if one is not None:
                print(line(one))


main()
