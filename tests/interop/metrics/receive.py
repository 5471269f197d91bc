"""A receiver of webhooks: checks the signature and writes one line of JSON for each request.

    receive.py PORT SECRET FAILURES OUTPUT

It answers 500 to the first FAILURES requests, and 204 to all others.
"""

import hashlib
import hmac
import http.server
import json
import sys

port, secret, failures, output = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
left = failures


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        global left
        body = self.rfile.read(int(self.headers["Content-Length"]))
        want = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        got = self.headers.get("X-Trivet-Signature-256", "")
        status = 500 if left > 0 else 204
        left = max(0, left - 1)
        line = {
            "status": status,
            "path": self.path,
            "signed": hmac.compare_digest(want, got),
            "delivery": self.headers.get("X-Trivet-Delivery"),
            "body": json.loads(body),
        }
        with open(output, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Receiver)
print("ready", flush=True)
server.serve_forever()
