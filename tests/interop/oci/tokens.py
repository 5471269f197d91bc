"""A token server for docker-registry: tokens.py PORT KEY CERTIFICATE USER PASSWORD. It gives that
user a token for what is asked for, signed with the key, and nobody else. Tokens are valid for two
seconds, so that clients need new ones."""

import base64
import http.server
import json
import subprocess
import sys
import time
import urllib.parse

port, key, certificate, user, password = sys.argv[1:]
LOGIN = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def encoded(content):
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def x5c():
    with open(certificate, encoding="ascii") as file:
        lines = file.read().split("\n")
    return "".join(line for line in lines if line and not line.startswith("-----"))


def token(query):
    access = []
    for scope in query.get("scope", []):
        kind, name, actions = scope.rsplit(":", 2)[0:1] + scope.rsplit(":", 2)[1:]
        access.append({"type": kind, "name": name, "actions": actions.split(",")})
    now = int(time.time())
    head = {"typ": "JWT", "alg": "RS256", "x5c": [x5c()]}
    claims = {
        "iss": "token server", "sub": user, "aud": query["service"][0], "exp": now + 2,
        "nbf": now - 60, "iat": now, "jti": str(time.time_ns()), "access": access,
    }
    parts = [encoded(json.dumps(part).encode()) for part in (head, claims)]
    signed = subprocess.run(
        ["openssl", "dgst", "-sha256", "-sign", key],
        input=".".join(parts).encode(), capture_output=True, check=True,
    ).stdout
    return ".".join([*parts, encoded(signed)])


class TokenServer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        right = self.headers.get("Authorization") == LOGIN
        body = {}
        if right:
            body["token"] = token(urllib.parse.parse_qs(url.query))
        content = json.dumps(body).encode()
        self.send_response(200 if right else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), TokenServer).serve_forever()
