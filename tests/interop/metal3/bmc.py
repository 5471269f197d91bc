"""A Redfish BMC: sushy-tools' emulator with what it lacks, the health of a system and events.

usage: bmc.py PORT EMULATOR

Requests pass through to EMULATOR, at 127.0.0.1:PORT. Ours: `Status` of each system, which a test
changes (PUT /health/UUID with a JSON string), and the EventService with its subscriptions
(DSP0266). GET /subscriptions returns the bodies that made them.
"""

import http.server
import json
import re
import sys
import threading
import urllib.error
import urllib.request

EVENTS = "/redfish/v1/EventService"
SYSTEM = re.compile(r"/redfish/v1/Systems/([^/]+)/?")
TIMEOUT_S = 60


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_request(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.rstrip("/")
        own = self.own(path, body)
        status, head, data = own if own else self.emulated(path, body)
        self.send_response(status)
        for name, value in head.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = handle_request

    def own(self, path, body):
        """Status, headers and body of what the emulator lacks."""
        rack = self.server
        with rack.lock:
            if self.command == "PUT" and path.startswith("/health/"):
                rack.health[path.removeprefix("/health/")] = json.loads(body)
                return 204, {}, b""
            if path == "/subscriptions":
                return 200, {}, json.dumps(rack.subscriptions).encode()
            if path == EVENTS:
                return 200, {}, json.dumps({
                    "@odata.id": EVENTS, "ServiceEnabled": True,
                    "Subscriptions": {"@odata.id": f"{EVENTS}/Subscriptions"},
                }).encode()
            if not path.startswith(f"{EVENTS}/Subscriptions"):
                return None
            found = path.removeprefix(f"{EVENTS}/Subscriptions").strip("/")
            if self.command == "POST" and not found:
                rack.count += 1
                found = f"sub-{rack.count}"
                rack.subscriptions[found] = json.loads(body)
                return 201, {"Location": f"{path}/{found}"}, b""
            known = rack.subscriptions.get(found)
            if known is None:
                return 404, {}, b'{"error": {"message": "There is no such subscription."}}'
            if self.command == "DELETE":
                del rack.subscriptions[found]
                return 204, {}, b""
            return 200, {}, json.dumps({**known, "Id": found, "HttpHeaders": None}).encode()

    def emulated(self, path, body):
        keep = ("Content-Type", "If-Match", "X-Auth-Token", "Authorization")
        headers = {name: self.headers[name] for name in keep if self.headers[name]}
        asked = urllib.request.Request(
            self.server.emulator + path, body or None, headers, method=self.command)
        try:
            with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
                status, head, data = answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            status, head, data = error.code, error.headers, error.read()
        if self.command == "GET" and status == 200:
            data = self.completed(path, data)
        keep = ("ETag", "Location", "X-Auth-Token")
        return status, {name: head[name] for name in keep if head[name]}, data

    def completed(self, path, data):
        document = json.loads(data)
        system = SYSTEM.fullmatch(path)
        if path == "/redfish/v1":
            document["EventService"] = {"@odata.id": EVENTS}
        elif system:
            with self.server.lock:
                health = self.server.health.get(system[1], "OK")
            document["Status"] = {"State": "Enabled", "Health": health}
        return json.dumps(document).encode()

    def log_message(self, *_):
        pass


def main():
    port, emulator = sys.argv[1:]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Handler)
    server.daemon_threads = True
    server.emulator = emulator
    server.lock = threading.Lock()
    server.health, server.subscriptions, server.count = {}, {}, 0
    print("ready", flush=True)
    server.serve_forever()


main()
