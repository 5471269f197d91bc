"""A scripted box for one stock agent: it sends the given replies and logs the requests.

usage: stub.py ADDRESS PORT LOG TOKEN LOOKUPS BEATS

LOOKUPS and BEATS are replies in order, the last one is repeated: numbers are statuses, in
LOOKUPS `found` is the node with TOKEN, `masked` the node with a token that was given before.
LOG gets one JSON object per line for each request, when its reply is decided.
"""

import http.server
import json
import sys
import time
import urllib.parse

NODE = "11111111-2222-4333-8444-555555555555"


def root(base):
    version = {
        "id": "v1",
        "links": [{"href": base + "/v1/", "rel": "self"}],
        "status": "CURRENT",
        "min_version": "1.1",
        "version": "1.109",
    }
    return {"name": "stub", "description": "stub", "default_version": version, "versions": [version]}


def found(token):
    return {
        "node": {
            "uuid": NODE,
            "properties": {},
            "instance_info": {},
            "driver_internal_info": {},
        },
        # No heartbeat is due within any test: one that arrives was forced.
        "config": {"heartbeat_timeout": 3000, "agent_token": token, "agent_token_required": True},
    }


def fault(status):
    inner = {"faultcode": "Client", "faultstring": f"scripted {status}", "debuginfo": None}
    return {"error_message": inner}


class Script:
    """Replies in order; the last one is repeated."""

    def __init__(self, words):
        self.words = words.split(",")

    def next(self):
        return self.words.pop(0) if len(self.words) > 1 else self.words[0]


class Box(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def decide(self, path):
        if path == "/":
            return 200, root(f"http://{self.headers['Host']}")
        if path == "/v1/lookup":
            word = self.server.lookups.next()
            if word in ("found", "masked"):
                return 200, found(self.server.token if word == "found" else "******")
            return int(word), fault(word)
        if path.startswith("/v1/heartbeat/"):
            word = self.server.beats.next()
            return int(word), None if word == "202" else fault(word)
        if path == "/v1/continue_inspection":
            return 202, {"uuid": NODE}
        return 404, fault(404)

    def answer(self):
        length = int(self.headers.get("Content-Length", 0))
        sent = self.rfile.read(length).decode()
        url = urllib.parse.urlsplit(self.path)
        status, body = self.decide(url.path)
        line = {
            "at": time.monotonic(),
            "method": self.command,
            "path": url.path,
            "query": dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True)),
            "headers": dict(self.headers.items()),
            "body": json.loads(sent) if sent else None,
            "status": status,
            "answer": body,
        }
        # One write, so that a reader never sees an incomplete last line.
        with open(self.server.log, "a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")
        payload = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass


def main():
    address, port, log, token, lookups, beats = sys.argv[1:]
    server = http.server.ThreadingHTTPServer((address, int(port)), Box)
    server.log, server.token = log, token
    server.lookups, server.beats = Script(lookups), Script(beats)
    print("ready", flush=True)
    server.serve_forever()


main()
