"""Prints a table of the requests to the BMCs of the rack, and checks them.

usage: check.py PLAN TIMELINE REPORT EMULATOR_REQUESTS EMULATOR_LOG BOX_LOG WORK

TIMELINE is drive.py's, REPORT that of rack.py, EMULATOR_REQUESTS the file of slow_power.py,
EMULATOR_LOG the emulator's own access log, BOX_LOG that of the box, WORK the directory with one
directory for each IPMI node, in which `sim` is what ipmi_sim prints of each message.

Prints the table, and then a line `ok NAME` or `bad NAME<tab>WANTED<tab>GOT` for each check.
"""

import json
import os
import re
import sys

REQUESTS_PER_SWITCH_MAX = 2
# The power changes of a stage, in addition to an `off` at its start for a machine that is off.
SWITCHES = {
    "manage": [],
    "inspect": ["on", "off"],
    "clean": ["on", "off"],
    "deploy": ["on", "off", "on"],
    "undeploy": ["off", "on", "off"],
}
REDFISH_KINDS = {"On": "on", "ForceOn": "on", "ForceOff": "off", "GracefulShutdown": "off"}
# IPMI 2.0, section 28.3.
CHASSIS_CONTROL = {0: "off", 1: "on", 2: "power cycle", 3: "reset", 4: "NMI", 5: "off"}
SIM_MESSAGE = re.compile(
    r"netfn=0x([0-9a-f]+) cmd=0x([0-9a-f]+) .*\n.*\n((?: [0-9a-f]{2})*)\n"
    r"Response message: ([0-9.]+)\n((?: [0-9a-f]{2})*)"
)


def text_of(path):
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        return file.read()


def json_of(path):
    return json.loads(text_of(path))


class Checks:
    def __init__(self):
        self.lines = []

    def check(self, name, good, wanted, got):
        got = str(got).replace("\t", " ").replace("\n", " ")
        self.lines.append(f"ok {name}" if good else f"bad {name}\t{wanted}\t{got}")

    def same(self, name, wanted, got):
        self.check(name, wanted == got, wanted, got)


def redfish_requests(nodes, path):
    """Power requests of each node: when, and to what."""
    found = {node["name"]: [] for node in nodes}
    names = {node["uuid"]: node["name"] for node in nodes}
    lines = text_of(path).splitlines() if os.path.exists(path) else []
    for line in map(json.loads, lines):
        kind = REDFISH_KINDS.get(line["request"], line["request"])
        found[names[line["uuid"]]].append((line["at"], kind))
    return found


def redfish_access(log):
    """Method and path of each request. The emulator colours its log."""
    return re.findall(r"([A-Z]+) (/redfish/\S*) HTTP", text_of(log))


def ipmi_messages(nodes, work):
    """Of each node: power requests, and resets of the BMC itself."""
    power, resets = {}, {}
    for node in nodes:
        name = node["name"]
        power[name], resets[name] = [], 0
        sim = text_of(os.path.join(work, name, "sim")).replace("\r", "")
        for netfn, command, data, at, _ in SIM_MESSAGE.findall(sim):
            match int(netfn, 16), int(command, 16):
                case 0x00, 0x02:
                    kind = CHASSIS_CONTROL.get(int(data.split()[0], 16) & 15, "unknown")
                    power[name].append((float(at), kind))
                # Cold and warm reset.
                case 0x06, 0x02 | 0x03:
                    resets[name] += 1
    return power, resets


def by_stage(requests, stages):
    """The requests of each stage as runs: (kind, how many in a row)."""
    began = sorted((stage["began"], name) for name, stage in stages.items())
    runs = {name: [] for name in stages}
    for at, kind in sorted(requests):
        name = next((name for start, name in reversed(began) if start <= at), None)
        if name is None:
            continue
        if runs[name] and runs[name][-1][0] == kind:
            runs[name][-1][1] += 1
        else:
            runs[name].append([kind, 1])
    return runs


def sync_warnings(name, log):
    """Lines of the box's log that warn of a sync of this node."""
    lines = [line for line in log if f" {name}: " in line and "warning" in line]
    return [line for line in lines if re.search(r"\bsync", line)]


def check_node(checks, node, life, requests, machine, log):
    name, stages = node["name"], life["stages"]
    for stage in SWITCHES:
        took = stages.get(stage)
        got = f"{took['state']}: {took['last_error']}" if took else "not reached"
        checks.check(f"{name}: {stage}", bool(took) and not took["failed"], "no failure", got)
    runs = by_stage(requests, stages)
    for stage, switches in runs.items():
        most = max((count for _, count in switches), default=0)
        shown = ", ".join(f"{count} x {kind}" for kind, count in switches)
        wanted = f"at most {REQUESTS_PER_SWITCH_MAX} requests for each switch"
        few = most <= REQUESTS_PER_SWITCH_MAX
        checks.check(f"{name}: requests of {stage}", few, wanted, shown)
        kinds = [kind for kind, _ in switches]
        off_before = ["off"] + SWITCHES[stage]
        good = kinds == SWITCHES[stage] or kinds == off_before
        if not stages[stage]["failed"]:
            checks.check(f"{name}: switches of {stage}", good, SWITCHES[stage], kinds)
    flags = (life["maintenance"], life["fault"])
    checks.same(f"{name}: maintenance and fault", (False, None), flags)
    if any(stage["failed"] for stage in stages.values()):
        return
    checks.same(f"{name}: properties of the inspection", "4", str(life["cpus"]))
    checks.same(f"{name}: power at its end", "power off", life["power_state"])
    # Inspection, cleaning, deployment and the cleaning after it; the instance; no further boot.
    boots = [machine.get(kind, 0) for kind in ("power_ons", "agent_boots", "disk_boots")]
    checks.same(f"{name}: power-ons, boots of the agent and of the disk", [5, 4, 1], boots)
    checks.same(f"{name}: images written", 1, machine.get("images_written", 0))
    checks.same(f"{name}: standby.sync", 1, machine["commands"].count("standby.sync"))
    warnings = 0 if node["sync"] == "succeeds" else 1
    checks.same(f"{name}: warnings of a failed sync", warnings, len(sync_warnings(name, log)))


def duration(stage):
    if stage is None:
        return "-"
    return f"{stage['ended'] - stage['began']:.0f}{'!' if stage['failed'] else ''}"


def row(node, life, requests, resets):
    stages = life["stages"]
    runs = [run for stage in by_stage(requests, stages).values() for run in stage]
    most = max((count for _, count in runs), default=0)
    took = [duration(stages.get(name)) for name in SWITCHES]
    cells = [node["name"], len(requests), len(runs), most, resets, f"{max(node['delays']):.0f}",
             f"{sum(node['delays']):.0f}", *took, node["sync"]]
    return [str(cell) for cell in cells]


def print_table(rows):
    head = ["node", "requests", "switches", "most/switch", "BMC resets", "longest s", "all s",
            *[f"{name} s" for name in SWITCHES], "standby.sync"]
    widths = [max(len(line[at]) for line in [head, *rows]) for at in range(len(head))]
    for line in [head, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


def main():
    plan, timeline, report, requests, log, box, work = sys.argv[1:]
    nodes, lives, report = json_of(plan), json_of(timeline), json_of(report)
    checks = Checks()
    redfish = [node for node in nodes if node["kind"] == "redfish"]
    ipmi = [node for node in nodes if node["kind"] == "ipmi"]
    power = redfish_requests(redfish, requests)
    ipmi_power, resets = ipmi_messages(ipmi, work)
    power.update(ipmi_power)
    access = redfish_access(log)
    box = text_of(box).splitlines()
    posts = [path for method, path in access if method == "POST"]
    rows = []
    for node in nodes:
        name = node["name"]
        if node["kind"] == "redfish":
            path = f"/redfish/v1/Systems/{node['uuid']}/Actions/ComputerSystem.Reset"
            logged = posts.count(path)
            checks.same(f"{name}: requests in the emulator's log", logged, len(power[name]))
            # A system's manager has its identifier. It offers no reset: a box that wants to
            # reset it only reads it, and no other request here is for the manager.
            manager = f"/redfish/v1/Managers/{node['uuid']}"
            resets[name] = sum(path.startswith(manager) for _, path in access)
        else:
            log_of_script = text_of(os.path.join(work, name, "log"))
            acts = len(re.findall(r" set (?:power|shutdown|reset) ", log_of_script))
            checks.same(f"{name}: requests in the chassis script's log", acts, len(power[name]))
        checks.same(f"{name}: resets of the BMC", 0, resets[name])
        check_node(checks, node, lives[name], power[name], report["machines"][name], box)
        rows.append(row(node, lives[name], power[name], resets[name]))
        checks.same(f"{name}: errors of its machine", [], report["machines"][name]["errors"])
    others = [path for path in posts if not path.endswith("/Actions/ComputerSystem.Reset")]
    checks.same("other POST requests to the emulator", [], others)
    checks.same("calls to agents that leave their path out", [], report["strays"])
    print_table(rows)
    print("\n".join(checks.lines))


main()
