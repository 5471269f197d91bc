"""Floods a link with DISCOVERs, each from another hardware address.

usage: dhcp_flood.py INTERFACE RATE PROGRESS
Sends RATE frames a second until it gets SIGTERM, and writes to the file PROGRESS how many
were sent so far.
"""

import os
import signal
import socket
import struct
import sys
import time

BROADCAST = b"\xff" * 6
# Frames between two checks of the clock.
BURST = 100


def checksum(header):
    total = sum(struct.unpack("!10H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def discover():
    """One frame, and the offsets of the hardware address and the transaction id in it."""
    options = bytes([53, 1, 1, 57, 2, 5, 0xC0, 55, 4, 1, 3, 6, 67])
    options += bytes([60, 32]) + b"PXEClient:Arch:00007:UNDI:003000"
    options += bytes([93, 2, 0, 7, 255])
    bootp = struct.pack("!4BIHH", 1, 1, 6, 0, 0, 0, 0) + bytes(16 + 16 + 64 + 128)
    bootp += bytes([99, 130, 83, 99]) + options
    bootp = bootp.ljust(300, b"\0")
    udp = struct.pack("!4H", 68, 67, 8 + len(bootp), 0) + bootp
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, bytes(4), b"\xff" * 4)
    head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
    frame = bytearray(BROADCAST + bytes(6) + b"\x08\x00" + head + udp)
    start = 14 + 20 + 8
    return frame, start


def main():
    interface, rate, progress = sys.argv[1], float(sys.argv[2]), sys.argv[3]
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    wire.bind((interface, 0))
    frame, start = discover()
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    sent, began = 0, time.monotonic()
    while not stopped:
        random = os.urandom(5 * BURST)
        for at in range(0, 5 * BURST, 5):
            # Locally administered unicast address.
            mac = b"\x02" + random[at : at + 5]
            frame[6:12] = mac
            frame[start + 28 : start + 34] = mac
            frame[start + 4 : start + 8] = mac[2:]
            try:
                wire.send(frame)
                sent += 1
            except OSError:
                # The send buffer is full: waiting loses nothing.
                break
        with open(progress + ".new", "w") as file:
            print(sent, file=file)
        os.rename(progress + ".new", progress)
        ahead = began + sent / rate - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)


main()
