"""A faulty source of images; the first part of the path selects the fault.

    /plain/NAME   the file, with ranges and a tag
    /flip/NAME    one byte is wrong
    /short/NAME   one byte less, with that length
    /long/NAME    one byte more
    /cut/NAME     the first reply is interrupted at 40 %
    /other/NAME   the first reply is another file, interrupted at 40 %
    /slow/NAME    RATE bytes a second
    /gone/NAME    404

GET /count/MANNER/NAME returns the number of requests and of body bytes sent.
"""

import http.server
import os
import sys
import threading
import time

directory, port = sys.argv[1], int(sys.argv[2])
RATE = int(os.environ.get("RATE", 8 << 20))
PIECE = 64 << 10
lock = threading.Lock()
requests = {}
sent = {}


class Origin(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        path = self.path.split("?")[0]
        if path.startswith("/count"):
            key = path[len("/count"):]
            with lock:
                text = f"{requests.get(key, 0)} {sent.get(key, 0)}\n".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
            return
        _, manner, name = path.split("/", 2)
        with lock:
            requests[path] = requests.get(path, 0) + 1
            first = requests[path] == 1
        try:
            body = open(os.path.join(directory, name), "rb").read()
        except OSError:
            body = None
        if manner == "gone" or body is None:
            self.send_error(404)
            return
        tag = f'"{name}"'
        if manner == "flip":
            middle = len(body) // 2
            body = body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1:]
        elif manner == "short":
            body = body[:-1]
        elif manner == "long":
            body = body + b"x"
        elif manner == "other" and first:
            tag = '"other"'
            body = bytes(byte ^ 0x55 for byte in body)
        start = 0
        wanted = self.headers.get("Range")
        if wanted and self.headers.get("If-Range", tag) == tag:
            begin, _, end = wanted[len("bytes="):].partition("-")
            start = int(begin)
            stop = int(end) + 1 if end else len(body)
            if start >= len(body):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(body)}")
        else:
            stop = len(body)
            self.send_response(200)
        self.send_header("ETag", tag)
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        last = stop
        if manner in ("cut", "other") and first:
            last = len(body) * 2 // 5
        began, begin = time.monotonic(), start
        while start < last:
            piece = body[start:min(start + PIECE, last)]
            self.wfile.write(piece)
            with lock:
                sent[path] = sent.get(path, 0) + len(piece)
            start += len(piece)
            if manner == "slow":
                time.sleep(max(0, began + (start - begin) / RATE - time.monotonic()))
        if last < stop:
            self.close_connection = True
            self.connection.shutdown(2)


http.server.ThreadingHTTPServer(("127.0.0.1", port), Origin).serve_forever()
