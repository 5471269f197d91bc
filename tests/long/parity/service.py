"""One API, and one request to it."""

import http.client
import json
import time
import urllib.parse
from dataclasses import dataclass, field

VERSION_HEADER = "X-OpenStack-Ironic-API-Version"
# Generous, for a slow machine.
SECONDS_MAX = 90
# What sqlite answers when two threads of Ironic write at once, and what Ironic answers while it
# still works on the request before. It is asked again.
BUSY = ("database is locked", "is locked by host")
BUSY_TRIES_MAX = 20


@dataclass
class Request:
    method: str
    path: str
    # 1.N; None sends no version.
    version: int | None = 115
    body: object = None
    # Bytes instead of a body in JSON.
    raw: bytes | None = None
    headers: dict = field(default_factory=dict)
    # Which difference this request can show; requests of one route and one label are grouped.
    label: str = ""


@dataclass
class Answer:
    status: int
    headers: dict
    text: str
    # None where the body is not JSON.
    body: object


class Service:
    def __init__(self, name, url):
        self.name = name
        self.url = url
        parts = urllib.parse.urlsplit(url)
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=SECONDS_MAX)

    def send(self, request):
        for tries in range(BUSY_TRIES_MAX):
            answer = self.once(request)
            if answer.status < 400 or not any(text in answer.text for text in BUSY):
                break
            time.sleep(0.2 * (tries + 1))
        return answer

    def once(self, request):
        headers = {"Accept": "application/json", **request.headers}
        if request.version is not None:
            headers[VERSION_HEADER] = f"1.{request.version}"
        data = request.raw
        if request.body is not None:
            data = json.dumps(request.body).encode()
        if data is not None:
            headers.setdefault("Content-Type", "application/json")
        try:
            status, names, raw = self.exchange(request, data, headers)
        except (http.client.HTTPException, ConnectionError):
            # A kept connection that the server has closed.
            self.connection.close()
            status, names, raw = self.exchange(request, data, headers)
        except TimeoutError:
            self.connection.close()
            print(f"{self.name}: no answer to {request}", flush=True)
            return Answer(0, {}, "no answer", None)
        text = raw.decode("utf-8", "replace")
        try:
            body = json.loads(text)
        except ValueError:
            body = None
        return Answer(status, names, text, body)

    def exchange(self, request, data, headers):
        self.connection.request(request.method, request.path, data, headers)
        response = self.connection.getresponse()
        names = {key.lower(): value for key, value in response.getheaders()}
        return response.status, names, response.read()

    def node(self, ident):
        return self.send(Request("GET", f"/v1/nodes/{ident}")).body or {}
