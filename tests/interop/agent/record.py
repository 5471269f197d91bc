"""Compares the requests and replies of the stock agent with its recording.

usage: record.py compare|write RECORDING TOKEN FIRST CALLS SECOND CALLS LOG

FIRST is the address of an agent with TOKEN, CALLS the requests to its stub. SECOND is the
address of an agent that inspected, had to wait and got a masked token; LOG is its log.

The recording is a list in the order of the events. `by` is the sender: "box" (the request goes
to the agent) or "agent" (it comes from the agent, `boot` counts its processes). Values that
differ between runs are replaced by words in angle brackets, ids by their number; of an
inventory only the types are kept. `pause_s` is the least and the longest delay of an agent
before a request; `then` is the state if no request follows. Prints `ok NAME` for each entry
that matches the recording and `MISMATCH NAME: HOW` for each other.
"""

import base64
import http.client
import io
import json
import re
import socket
import ssl
import sys
import tarfile
import time
import urllib.parse

# A loaded machine is slow; a fast one is not delayed.
SECONDS_MAX = 120

NODE = {
    "uuid": "11111111-2222-4333-8444-555555555555",
    "properties": {},
    "instance_info": {},
    "driver_internal_info": {},
}
ABOUT = {"node": NODE, "ports": []}
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Free text of libraries, which no program parses.
PROSE = [
    re.compile(r"^(404 Not Found: ).*"),
    re.compile(r"^(405 Method Not Allowed: ).*"),
    re.compile(r"^(400 Bad Request: Failed to decode JSON object: ).*"),
]
# Sizes that lshw does not find on every machine.
NULLABLE = {"physical_mb": "<integer or null>", "total": "<integer or null>"}


def step(name, interface="deploy"):
    return {"step": name, "interface": interface, "priority": 10}


def execute(kind, what, version):
    params = {"step": what, **ABOUT, f"{kind}_version": version}
    return {"name": f"{kind}.execute_{kind}_step", "params": params}


def questions():
    """NAME METHOD PATH [BODY [WORD...]]. `ID` in a path is the id of the last reply. Words:
    `wait` waits for the result, `open` sends no token, `wrong` a wrong one, `raw` the body as it is."""
    bare = "/v1/commands/"
    yield "root", "GET", "/", None, "open"
    yield "version", "GET", "/v1/", None, "open"
    yield "version without slash", "GET", "/v1", None, "open"
    yield "status", "GET", "/v1/status", None, "open"
    yield "status with a wrong token", "GET", "/v1/status", None, "wrong"
    yield "status without version", "GET", "/status", None, "open"
    yield "no such path", "GET", "/nowhere", None, "open"
    yield "list without token", "GET", bare, None, "open"
    yield "list with a wrong token", "GET", bare, None, "wrong"
    yield "list of a fresh agent", "GET", bare
    yield "list without version", "GET", "/commands/"
    yield "list without slash", "GET", "/v1/commands"
    yield "list by HEAD", "HEAD", bare
    yield "list by PUT", "PUT", bare, {}
    yield "no such result", "GET", "/v1/commands/deadbeef"
    yield "result without token", "GET", "/v1/commands/deadbeef", None, "open"

    def command(name, params):
        return {"name": name, "params": params}

    steps = command("clean.get_clean_steps", ABOUT)
    yield "command without token", "POST", bare, steps, "open"
    yield "command with a wrong token", "POST", bare, steps, "wrong"
    yield "command without slash", "POST", "/v1/commands", steps
    yield "no such command", "POST", bare, command("clean.no_such", {})
    yield "no such extension", "POST", bare, command("nobody.no_such", {})
    yield "iscsi", "POST", bare, command("iscsi.start_iscsi_target", {})
    yield "cache_image", "POST", bare, command("standby.cache_image", {})
    yield "name without dot", "POST", bare, command("nodot", {})
    yield "no params", "POST", bare, {"name": "standby.get_partition_uuids"}
    yield "no name", "POST", bare, {"params": {}}
    yield "params that are a list", "POST", bare, command("standby.get_partition_uuids", [])
    yield "no JSON", "POST", bare, "{bad", "raw"
    yield "no body", "POST", bare
    yield "prepare_image of nothing", "POST", bare, command(
        "standby.prepare_image", {"image_info": {}}
    )
    yield "set_node_info", "POST", bare, command("poll.set_node_info", {"node_info": {}})
    # None of those was recorded.
    yield "list after refusals", "GET", bare

    yield "clean steps", "POST", bare, steps, "wait"
    yield "deploy steps", "POST", bare, command("deploy.get_deploy_steps", ABOUT), "wait"
    yield "service steps", "POST", bare, command("service.get_service_steps", ABOUT), "wait"
    yield "partition uuids", "POST", bare, command("standby.get_partition_uuids", {})
    yield "hardware", "POST", bare, command("poll.get_hardware_info", {})
    yield "logs", "POST", bare, command("log.collect_system_logs", {})
    for kind in "clean", "deploy", "service":
        old = {"generic_hardware_manager": "0.0"}
        lost = step("no_such_step")
        yield f"{kind} step, other version", "POST", bare, execute(kind, lost, old), "wait"
        yield f"{kind} step, unknown", "POST", bare, execute(kind, lost, None), "wait"
    # Without disks it ends at once; with the version that the agent has.
    own = {"generic_hardware_manager": "1.2"}
    express = step("erase_devices_express")
    yield "clean step", "POST", bare, execute("clean", express, own), "wait"
    yield "clean step by id", "GET", "/v1/commands/ID"
    burn = {"step": "burnin_cpu", "interface": "deploy"}
    yield "clean step that fails", "POST", bare, execute("clean", burn, own), "wait"
    extra = {**express, "args": {"bogus": 1}}
    yield "clean step, unknown argument", "POST", bare, execute("clean", extra, own), "wait"
    odd = execute("clean", express, own)
    odd["params"]["bogus"] = 1
    yield "clean step, unknown parameter", "POST", bare, odd, "wait"
    flow = [{"poll.get_hardware_info": {}}] * 16
    yield "flow", "POST", bare, command("flow.start_flow", {"flow": flow})
    yield "command while busy", "POST", bare, steps
    yield "running", "GET", "/v1/commands/ID"
    yield "ended", "GET", "/v1/commands/ID", None, "wait"
    yield "list after commands", "GET", bare


def forcing():
    yield "empty flow", "POST", "/v1/commands/", {
        "name": "flow.start_flow",
        "params": {"flow": []},
    }, "wait"


def poison():
    """After the first of these the agent cannot list its commands."""
    bare = "/v1/commands/"
    odd = {"name": "standby.get_partition_uuids", "params": {"bogus": 1}}
    yield "unknown parameter", "POST", bare, odd
    yield "list after it", "GET", bare
    good = {"name": "standby.get_partition_uuids", "params": {}}
    yield "command after it", "POST", bare, good
    yield "result after it", "GET", "/v1/commands/ID"


class Plain:
    """Replaces values that differ between runs; ids are numbered in order."""

    def __init__(self, words):
        self.words = words
        self.ids = {}

    def text(self, text, key=None):
        for long, short in self.words:
            text = text.replace(long, short)
        if key == "description":
            return "<text>"
        if key == "system_logs" or key == "logs":
            names = tarfile.open(fileobj=io.BytesIO(base64.b64decode(text))).getnames()
            return "<base64 of tar.gz>" if names else "<base64 of nothing>"
        for prose in PROSE:
            text = prose.sub(r"\1<text>", text)
        return UUID.sub(self.number, text)

    def number(self, match):
        if match.group() == NODE["uuid"]:
            return match.group()
        return self.ids.setdefault(match.group(), f"<id {len(self.ids) + 1}>")

    def value(self, value, key=None):
        if isinstance(value, dict):
            # An inventory: values of this machine are not recorded.
            if "system_vendor" in value:
                return shape(value)
            return {key: self.value(inner, key) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.value(inner) for inner in value]
        if isinstance(value, str):
            return self.text(value, key)
        if isinstance(value, float):
            return "<seconds>"
        return value


def shape(value, key=None):
    if key in NULLABLE:
        return NULLABLE[key]
    if isinstance(value, dict):
        return {key: shape(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    names = {bool: "<boolean>", int: "<integer>", float: "<number>", str: "<string>"}
    return names.get(type(value), value)


class Agent:
    def __init__(self, address, token, certificate, plain):
        self.address, self.token, self.plain = address, token, plain
        # Trust only this certificate, which no authority signed.
        self.trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.trust.load_verify_locations(cadata=certificate)
        self.last = None

    def ask(self, name, method, path, body=None, *words):
        query = {}
        if "wait" in words:
            query["wait"] = "true"
        if "wrong" in words:
            query["agent_token"] = "wrong"
        elif "open" not in words:
            query["agent_token"] = self.token
        path = path.replace("ID", self.last or "ID")
        sent = body if "raw" in words or body is None else json.dumps(body)
        connection = http.client.HTTPSConnection(
            self.address, timeout=SECONDS_MAX, context=self.trust
        )
        target = path + ("?" + urllib.parse.urlencode(query) if query else "")
        connection.request(method, target, sent, {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        answer = {"status": response.status, "headers": self.headers(response)}
        if response.getheader("Content-Type", "").startswith("application/json") and text:
            whole = json.loads(text)
            self.last = whole.get("id", self.last) if response.status == 200 else self.last
            answer["body"] = self.plain.value(whole)
        else:
            answer["body"] = "<html>" if text else None
        request = {"method": method, "path": self.plain.text(path)}
        request["query"] = self.plain.value(query)
        request["raw" if "raw" in words else "body"] = self.plain.value(body)
        return {"name": name, "by": "box", "request": request, "answer": answer}

    def headers(self, response):
        """The relevant ones; the order of methods is random."""
        result = {}
        for name, value in response.getheaders():
            if name == "Allow":
                value = ", ".join(sorted(value.split(", ")))
            if name not in ("Content-Length", "Date"):
                result[name] = self.plain.text(value)
        return result


def calls(path):
    """The requests to a stub so far."""
    try:
        with open(path, encoding="utf-8") as log:
            return [json.loads(line) for line in log if line.endswith("\n")]
    except FileNotFoundError:
        return []


def wait(path, what, count):
    """Waits until the stub got that many such requests; returns the last."""
    end = time.monotonic() + SECONDS_MAX
    while time.monotonic() < end:
        those = [call for call in calls(path) if call["path"].startswith(what)]
        if len(those) >= count:
            return those[count - 1]
        time.sleep(0.1)
    sys.exit(f"no {what} number {count} within {SECONDS_MAX} s")


def silence(address, path, log):
    """The agent with a masked token sends nothing any more."""
    end = time.monotonic() + SECONDS_MAX
    while time.monotonic() < end:
        with open(log, encoding="utf-8") as file:
            if "locking down IPA in disabled mode" in file.read():
                break
        time.sleep(0.1)
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), SECONDS_MAX).close()
        return "it listens"
    except ConnectionRefusedError:
        beats = [call for call in calls(path) if call["path"].startswith("/v1/heartbeat/")]
        return "it sends heartbeats" if beats else "it neither listens nor sends heartbeats"


def recorded_calls(path, boot, names, pauses, plain):
    """Requests of one agent; `pauses` are the delays before them in whole seconds."""
    entries, before = [], None
    for name, call in zip(names, calls(path)):
        headers = {key: plain.text(value) for key, value in call["headers"].items()}
        if "Content-Length" in headers:
            headers["Content-Length"] = "<length>"
        headers["User-Agent"] = re.sub(r"/.*", "/<version>", headers["User-Agent"])
        entry = {"name": name, "by": "agent", "boot": boot}
        if name in pauses:
            low, high = pauses[name]
            # The delay of a busy machine is not the agent's.
            passed = call["at"] - before
            entry["pause_s"] = pauses[name] if low <= passed <= high + 30 else passed
        entry["request"] = {
            "method": call["method"],
            "path": call["path"],
            "query": plain.value(call["query"]),
            "headers": headers,
            "body": plain.value(call["body"]),
        }
        entry["answer"] = {"status": call["status"], "body": plain.value(call["answer"])}
        entries.append(entry)
        before = call["at"]
    return entries


FIRST = ["discovery", "lookup", "probe", "heartbeat, busy", "heartbeat", "heartbeat, forced"]
SECOND = ["inspection", "discovery again", "lookup, unknown", "lookup, locked", "lookup, masked"]
# Between 5 and 10 s after an error; a forced one at least 5 s after the last.
FIRST_PAUSES = {"heartbeat": [5, 10], "heartbeat, forced": [5, 10]}
# At least one second, at most twice as much; five more if the node is locked.
SECOND_PAUSES = {"lookup, locked": [1, 2], "lookup, masked": [6, 9]}


def record(token, address, first, silent, second, log):
    beat = wait(first, "/v1/heartbeat/", 1)
    certificate = beat["body"]["agent_verify_ca"]
    box = beat["headers"]["Host"]
    other = wait(second, "/v1/lookup", 3)
    words = [
        (certificate, "<certificate>"),
        (token, "<token>"),
        (f"https://{address}", "<agent>"),
        (box, "<box>"),
        (other["headers"]["Host"], "<box>"),
        (calls(first)[1]["query"]["addresses"], "<address>"),
        (other["query"]["addresses"], "<address>"),
    ]
    plain = Plain(words)
    agent = Agent(address, token, certificate, plain)
    entries = [agent.ask(*question) for question in questions()]
    # A command that ended before a heartbeat that was due anyway forces none.
    wait(first, "/v1/heartbeat/", 2)
    entries += [agent.ask(*question) for question in forcing()]
    wait(first, "/v1/heartbeat/", 3)
    entries += [agent.ask(*question) for question in poison()]
    second_boot = recorded_calls(second, 2, SECOND, SECOND_PAUSES, plain)
    second_boot[-1]["then"] = silence(silent, second, log)
    return recorded_calls(first, 1, FIRST, FIRST_PAUSES, plain) + second_boot + entries


def text_of(entries):
    """One entry per line without empty lines: small, and a change is one line."""
    return "[\n" + ",\n".join(json.dumps(entry) for entry in entries) + "\n]\n"


def differences(wanted, got, where=""):
    """Where two values differ, as far inside as possible."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        for key in list(wanted) + [key for key in got if key not in wanted]:
            if key not in wanted or key not in got:
                missing = "recorded" if key not in wanted else "told"
                yield f"{where}.{key} is not {missing}"
            else:
                yield from differences(wanted[key], got[key], f"{where}.{key}")
    elif isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
        for at, pair in enumerate(zip(wanted, got)):
            yield from differences(*pair, f"{where}[{at}]")
    elif wanted != got:
        yield f"{where} was {json.dumps(wanted)}, is {json.dumps(got)}"


def compare(entries, recorded):
    """Compares in order; reports where and how entries differ."""
    names = [[entry["name"] for entry in list] for list in (recorded, entries)]
    if names[0] != names[1]:
        print("MISMATCH the order:", *differences(*names))
    known = {entry["name"]: entry for entry in recorded}
    for entry in entries:
        name = entry["name"]
        found = list(differences(known.get(name), entry))
        print(f"MISMATCH {name}: {'; '.join(found)}" if found else f"ok {name}")


def main():
    mode, recording, *others = sys.argv[1:]
    entries = record(*others)
    if mode == "write":
        with open(recording, "w", encoding="utf-8") as file:
            file.write(text_of(entries))
    with open(recording, encoding="utf-8") as file:
        compare(entries, json.load(file))


main()
