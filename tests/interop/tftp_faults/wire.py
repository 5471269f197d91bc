"""A faulty link: forwards Ethernet frames between two interfaces, with faults on datagrams.

usage: wire.py LEFT RIGHT LOSS DOUBLED LATE COUNTS [SEED]
LOSS, DOUBLED and LATE are shares of all datagrams in each direction, from 0 to 1: they
vanish, come twice, or come after some that left later. What is no datagram (ARP) passes
unharmed, so that figures are of TFTP and not of the kernel's timeouts. When it is told to
end (SIGTERM), it writes to the file COUNTS how many there were of each kind, and how many
of the lost were requests to the port of TFTP.
"""

import heapq
import random
import select
import signal
import socket
import struct
import sys
import time

# Constants of Linux that Python has no names for.
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
FRAME_BYTES_MAX = 65536
UNREAD_BYTES = 32 << 20
# Frames of one side before the other is served.
BURST = 64
# A delayed frame is sent after so many seconds: several round trips on this link, and less than
# any client's timeout.
LATE_SECONDS = (0.0005, 0.004)
ETHERTYPE_IPV4, PROTOCOL_UDP, TFTP_PORT = 0x0800, 17, 69


def side(interface):
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    # Its own frames must not be received again.
    end.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    end.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, UNREAD_BYTES)
    end.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, UNREAD_BYTES)
    end.bind((interface, 0))
    end.setblocking(False)
    return end


def is_datagram(frame):
    kind = frame[12] << 8 | frame[13]
    return kind == ETHERTYPE_IPV4 and frame[23] == PROTOCOL_UDP


def is_request(frame):
    (port,) = struct.unpack_from("!H", frame, 14 + (frame[14] & 15) * 4 + 2)
    return port == TFTP_PORT


class Wire:
    def __init__(self, ends, loss, doubled, late, seed):
        self.ends = ends
        self.loss, self.doubled, self.late = loss, doubled, late
        self.chance = random.Random(seed)
        self.held = []
        self.counts = dict.fromkeys(["passed", "lost", "doubled", "late", "requests_lost"], 0)

    def handle_frame(self, frame, out):
        if not is_datagram(frame):
            return self.send(frame, out)
        chance = self.chance.random
        if chance() < self.loss:
            self.counts["lost"] += 1
            self.counts["requests_lost"] += is_request(frame)
            return
        if chance() < self.doubled:
            self.counts["doubled"] += 1
            self.send(frame, out)
        if chance() < self.late:
            self.counts["late"] += 1
            at = time.monotonic() + self.chance.uniform(*LATE_SECONDS)
            heapq.heappush(self.held, (at, self.counts["late"], frame, out))
        else:
            self.send(frame, out)

    def send(self, frame, out):
        try:
            out.send(frame)
            self.counts["passed"] += 1
        except OSError as error:
            # The test is only about frames that are dropped on purpose.
            sys.exit(f"the wire is full: {error}")

    def run(self, stopped):
        left, right = self.ends
        poll = select.poll()
        ways = {left.fileno(): (left, right), right.fileno(): (right, left)}
        for number in ways:
            poll.register(number, select.POLLIN)
        while not stopped:
            wait = 100
            if self.held:
                wait = max(0, (self.held[0][0] - time.monotonic()) * 1000)
            for number, _ in poll.poll(wait):
                end, out = ways[number]
                for _ in range(BURST):
                    try:
                        frame = end.recv(FRAME_BYTES_MAX)
                    except BlockingIOError:
                        break
                    self.handle_frame(frame, out)
            while self.held and self.held[0][0] <= time.monotonic():
                _, _, frame, out = heapq.heappop(self.held)
                self.send(frame, out)


def main():
    left, right, loss, doubled, late, counts = sys.argv[1:7]
    seed = int(sys.argv[7]) if len(sys.argv) > 7 else 1
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    wire = Wire([side(left), side(right)], float(loss), float(doubled), float(late), seed)
    print("ready", flush=True)
    wire.run(stopped)
    with open(counts, "w") as file:
        for name, count in wire.counts.items():
            print(f"{name}={count}", file=file)


main()
