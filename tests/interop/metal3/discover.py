"""A machine asks for an address, through a relay (RFC 2131, section 4.1).

usage: discover.py PLAN NAME RELAY SERVER PORT

Sends a DHCPDISCOVER of the machine NAME from RELAY to SERVER:PORT. There need not be an answer.
"""

import json
import socket
import struct
import sys


def main():
    plan, name, relay, server, port = sys.argv[1:]
    with open(plan, encoding="utf-8") as file:
        machine = next(one for one in json.load(file) if one["name"] == name)
    mac = bytes.fromhex(machine["mac"].replace(":", ""))
    # Request, Ethernet, six bytes of address, one hop.
    head = struct.pack("!4BIHH4s4s4s4s16s192s", 1, 1, 6, 1, 7, 0, 0, bytes(4), bytes(4), bytes(4),
                       socket.inet_aton(relay), mac, bytes(192))
    # Cookie, message type DISCOVER, end.
    options = bytes([99, 130, 83, 99, 53, 1, 1, 255])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((relay, 0))
        for _ in range(3):
            sock.sendto(head + options, (server, int(port)))


main()
