"""Machines without hardware, and the agents that they boot: one process for all of them.

usage: rack.py PLAN PORT HTTP WORK SEED

PLAN is what plan.py printed, PORT where this listens on 127.0.0.1, HTTP the address of the box's
boot files, WORK the directory with one directory for each IPMI node (see `chassis_control`).

A machine's power is that of its BMC: sushy-tools' emulator reports each change of a Redfish
node (EXTERNAL_NOTIFICATION_URL, here PUT /power), and the files of an IPMI node are read. A
machine that is switched on and boots from the network fetches its script, kernel and ramdisk
from the box as iPXE does, and then behaves as the Ironic Python Agent does: inspection data,
lookup, heartbeats, commands. All of it stops when the machine is off. The agent of node N
listens at http://127.0.0.1:PORT/agents/N: its callback URL has a path. GET /report returns
what each machine did.
"""

import http.server
import json
import os
import re
import sys
import threading
import time
import urllib.parse

from agent import VERSION, Refused, Session

# How often power is checked, in seconds.
TICK_S = 0.1


class Machine:
    """One machine: its power, and what it did since the test began."""

    def __init__(self, plan, rack):
        self.plan, self.rack = plan, rack
        self.name, self.mac = plan["name"], plan["mac"]
        self.power, self.pending, self.boot_device = "Off", None, "Hdd"
        self.session = None
        self.sessions = 0
        self.commands, self.steps, self.deploy_steps = [], [], []
        self.counts = {}
        self.errors = []

    def count(self, what):
        with self.rack.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def log(self, text):
        print(f"{time.time():.2f} {self.name}: {text}", flush=True)

    def error(self, text):
        self.log(text)
        with self.rack.lock:
            self.errors.append(text)

    def notified(self, system):
        """The emulator's record of this machine, after a change."""
        with self.rack.lock:
            self.power = system["power_state"]
            self.pending = system.get("pending_power")
            self.boot_device = system.get("boot_device", "Hdd")

    def read_files(self):
        folder = os.path.join(self.rack.work, self.name)
        self.power = "On" if text_of(os.path.join(folder, "power")) == "1" else "Off"
        self.boot_device = "Pxe" if text_of(os.path.join(folder, "boot")) == "pxe" else "Hdd"

    def is_on(self):
        if self.plan["kind"] == "ipmi":
            self.read_files()
        # The emulator applies a change when it is read after its time; the machine itself
        # changes at that time.
        if self.pending and time.time() >= self.pending["apply_time"]:
            state = self.pending["power_state"]
            self.power, self.pending = ("Off" if state == "Off" else "On"), None
        return self.power == "On"

    def tick(self):
        with self.rack.lock:
            is_on = self.is_on()
            if is_on and not self.session:
                self.sessions += 1
                self.session = Session(self, self.sessions, self.boot_device)
                threading.Thread(target=self.session.run, daemon=True).start()
            elif not is_on and self.session:
                self.session.ended.set()
                self.session = None

    def report(self):
        return {
            "power_ons": self.sessions,
            "commands": self.commands,
            "steps": self.steps,
            "deploy_steps": self.deploy_steps,
            "errors": self.errors,
            **self.counts,
        }


def text_of(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


class Rack:
    def __init__(self, plan, port, address, work, seed):
        self.port, self.http, self.work, self.seed = port, address, work, seed
        self.lock = threading.RLock()
        self.machines = {node["name"]: Machine(node, self) for node in plan}
        # Requests that belong to no agent's path.
        self.strays = []

    def tick(self):
        while True:
            for machine in self.machines.values():
                machine.tick()
            time.sleep(TICK_S)

    def report(self):
        with self.lock:
            reports = {name: machine.report() for name, machine in self.machines.items()}
            return {"machines": reports, "strays": self.strays}


class Silent(Exception):
    """No agent runs on this machine: there is no reply."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_request(self):
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        try:
            status, answer = 200, self.answer(url.path, query, body)
        except Silent:
            # The port is shared, so a machine that is off cannot refuse the connection.
            self.close_connection = True
            return
        except Refused as error:
            kind = "Server" if error.status >= 500 else "Client"
            status, answer = error.status, {"faultcode": kind, "faultstring": str(error)}
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = handle_request

    def answer(self, path, query, body):
        rack = self.server.rack
        if (self.command, path) == ("PUT", "/power"):
            system = json.loads(body)
            rack.machines[system["name"]].notified(system)
            return {}
        if (self.command, path) == ("GET", "/report"):
            return rack.report()
        found = re.fullmatch(r"/agents/([^/]+)(/.*)", path)
        machine = rack.machines.get(found[1]) if found else None
        if machine is None:
            with rack.lock:
                rack.strays.append(f"{self.command} {path}")
            raise Refused(404, "404 Not Found: no agent listens here")
        # As of now, not as of the last tick: the box may send a request as soon as the BMC
        # reports off.
        machine.tick()
        session = machine.session
        if session is None or session.token is None:
            raise Silent
        return self.agent(session, found[2], query, body)

    def agent(self, session, path, query, body):
        if (self.command, path) == ("GET", "/v1/status"):
            return {"started_at": 0.0, "version": VERSION}
        if path not in ("/v1/commands/", "/v1/commands"):
            raise Refused(404, f"404 Not Found: {path}")
        if query.get("agent_token") != session.token:
            raise Refused(401, "401 Unauthorized: Token invalid.")
        if self.command == "GET":
            return session.command_list()
        command = json.loads(body)
        return session.command(command["name"], command["params"], query.get("wait") == "true")

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    # All BMCs and the box may connect at once.
    request_queue_size = 128
    daemon_threads = True


def main():
    plan, port, address, work, seed = sys.argv[1:]
    with open(plan, encoding="utf-8") as file:
        nodes = json.load(file)
    rack = Rack(nodes, int(port), address, work, seed)
    server = Server(("127.0.0.1", int(port)), Handler)
    server.rack = rack
    threading.Thread(target=rack.tick, daemon=True).start()
    print("ready", flush=True)
    server.serve_forever()


main()
