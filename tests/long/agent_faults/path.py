"""Stands between agents and the HTTP server of a box, and breaks what it passes on. What it does
with an image is in the image's name:

    repaired   one byte is wrong, in the first response only
    corrupted  one byte is wrong, in every response
    cut, lost  after 30 % it says so, waits for the file NAME.go, and closes the connection
    held       after 30 % it says so, waits for the file NAME.go, and continues
    refused    after 30 %, the connection and each later one are closed

Other images and other files pass. Prints `NAME FROM SENT` for each request for an image, and
`NAME reached` where it waits. Arguments: ADDRESS PORT BOX_PORT DIRECTORY"""

import http.client
import http.server
import pathlib
import sys
import threading
import time

PART = 0.3
PIECE = 64 * 1024

address, port, box_port, directory = sys.argv[1:]
served = {}
lock = threading.Lock()


def say(*words):
    print(*words, flush=True)


class Path(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.pass_on()

    def do_GET(self):
        self.pass_on()

    def pass_on(self):
        name = pathlib.PurePath(self.path).name
        fault = name.removesuffix(".raw").split("-")[0] if name.endswith(".raw") else ""
        first = True
        if fault and self.command == "GET":
            with lock:
                first = name not in served
                served[name] = True
        self.close_connection = True
        if fault == "refused" and not first and self.command == "GET":
            say(name, "refused")
            return
        box = http.client.HTTPConnection(address, int(box_port), timeout=300)
        headers = {key: value for key, value in self.headers.items() if key.lower() != "host"}
        box.request(self.command, self.path, headers=headers)
        reply = box.getresponse()
        other = None if fault or self.command == "HEAD" else reply.read()
        self.send_response_only(reply.status)
        for key, value in reply.getheaders():
            if key.lower() not in ("connection", "transfer-encoding"):
                self.send_header(key, value)
        if other is not None and not reply.getheader("Content-Length"):
            self.send_header("Content-Length", str(len(other)))
        self.send_header("Connection", "close")
        self.end_headers()
        if other is not None:
            self.wfile.write(other)
        if not fault or self.command == "HEAD":
            return
        span = reply.getheader("Content-Range")
        at = int(span.split()[1].split("-")[0]) if span else 0
        size = int(span.split("/")[1]) if span else int(reply.getheader("Content-Length"))
        self.send_image(name, fault, first, reply, at, int(size * PART))

    def send_image(self, name, fault, first, reply, at, mark):
        start = at
        try:
            while piece := reply.read(PIECE):
                end = at + len(piece)
                is_there = at <= mark < end
                if is_there and (fault == "corrupted" or fault == "repaired" and first):
                    piece = bytearray(piece)
                    piece[mark - at] ^= 1
                self.wfile.write(piece)
                at = end
                if is_there and first and fault in ("cut", "lost", "held", "refused"):
                    self.wfile.flush()
                    say(name, "reached")
                    go = pathlib.Path(directory, f"{name}.go")
                    while fault != "refused" and not go.exists():
                        time.sleep(0.05)
                    if fault != "held":
                        break
        except OSError:
            pass
        say(name, start, at - start)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True


Server((address, int(port)), Path).serve_forever()
