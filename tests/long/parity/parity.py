#!/usr/bin/env python3
"""Sends the same requests to Ironic and to the box, and reports where the answers differ.

    parity.py IRONIC BOX DIFFERENCES [PART...]     parts: reads lists clients flows fields writes
"""

import sys
import time

import clients
import fields
import flows
import lists
import reads
import world
import writes
from report import Report
from service import Request, Service

SETTLED_SECONDS_MAX = 120
PARTS = ("reads", "lists", "clients", "flows", "fields", "writes")


class Both:
    def __init__(self, ironic, box):
        self.services = [Service("ironic", ironic), Service("box", box)]
        self.urls = [ironic, box]
        self.report = Report()

    def send(self, request):
        theirs, ours = [service.send(request) for service in self.services]
        self.report.add(request, theirs, ours, self.urls)
        return theirs, ours

    def run(self, requests):
        for request in requests:
            if isinstance(request, Request):
                self.send(request)
            else:
                request(self)

    def settle(self, ident):
        """Waits until both have ended what they do with a node."""
        for service in self.services:
            end = time.monotonic() + SETTLED_SECONDS_MAX
            while True:
                node = service.node(ident)
                state = node.get("provision_state") or ""
                busy = node.get("reservation") or node.get("target_power_state") or state.endswith("ing")
                if not busy:
                    break
                if time.monotonic() > end:
                    raise SystemExit(f"{service.name}: {ident} stays {state}")
                time.sleep(0.1)


def main():
    ironic, box, known, *parts = sys.argv[1:]
    parts = parts or PARTS
    both = Both(ironic, box)
    document = both.services[1].send(Request("GET", "/v1/openapi.json")).body
    start = time.monotonic()

    def run(name, requests):
        both.run(requests)
        print(f"{name}: {both.report.requests} requests, {time.monotonic() - start:.0f} s", flush=True)

    for step in world.requests():
        if isinstance(step, Request):
            for service, answer in zip(both.services, both.send(step)):
                if answer.status >= 400:
                    raise SystemExit(f"{service.name} refuses {step}: {answer.text}")
        else:
            step(both)
    if "reads" in parts:
        run("reads", reads.requests(document))
    if "lists" in parts:
        run("lists", lists.requests(both))
    if "clients" in parts:
        clients.run(both)
        print(f"clients: {time.monotonic() - start:.0f} s")
    if "flows" in parts:
        run("flows", flows.requests())
    if "fields" in parts:
        run("fields", fields.requests(both))
    # Last: where only one of the two accepts a wrong write, their records differ from then on.
    if "writes" in parts:
        run("writes", writes.requests(document))
    sys.exit(not both.report.finish(known))


if __name__ == "__main__":
    main()
