"""Runs the lifecycle of all nodes of the plan at the same time, over the box's API.

usage: drive.py ENDPOINT PLAN DRIVER_INFO RACK LIMIT_S TIMELINE

DRIVER_INFO is a JSON object: for each node's name its driver and driver_info. RACK is the address
of rack.py. Each node is enrolled with a port, managed, inspected, provided (which cleans it),
deployed and, when its machine has booted from its disk, undeployed; a node that fails stops
there. TIMELINE gets, for each node, the time and the result of each verb.
"""

import json
import sys
import time
import urllib.request

import openstack

POLL_S = 0.5
# The verb in the API and the state that it leads to.
STAGES = {
    "manage": ("manage", "manageable"),
    "inspect": ("inspect", "manageable"),
    "clean": ("provide", "available"),
    "deploy": ("active", "active"),
    "undeploy": ("deleted", "available"),
}
IMAGE = {"image_source": "system.raw"}
# A node is active when its machine is on; then the machine needs to boot.
INSTANCE_SECONDS_MAX = 30


def connect(endpoint):
    return openstack.connection.Connection(
        auth_type="none",
        auth={"endpoint": endpoint},
        baremetal_endpoint_override=endpoint,
    ).baremetal


def enrol(api, plan, driver):
    node = api.create_node(
        name=plan["name"],
        driver=driver["driver"],
        driver_info=driver["driver_info"],
        inspect_interface="agent",
        properties={"capabilities": f"boot_mode:{plan['boot_mode']}"},
        provision_state="enroll",
    )
    api.create_port(node_id=node.id, address=plan["mac"])


def machines_of(rack):
    with urllib.request.urlopen(f"{rack}/report", timeout=30) as answer:
        return json.load(answer)["machines"]


class Life:
    """The progress of a node in its lifecycle."""

    def __init__(self, name):
        self.name = name
        self.ahead = list(STAGES)
        self.stage = None
        self.stages = {}

    def is_ready(self, machine):
        """Whether the next stage may begin."""
        if self.stage is not None or not self.ahead:
            return False
        if self.ahead[0] != "undeploy" or machine.get("disk_boots", 0) > 0:
            return True
        return time.time() > self.stages["deploy"]["ended"] + INSTANCE_SECONDS_MAX

    def ended(self):
        return self.stage is None and not self.ahead

    def next(self, api):
        self.stage = self.ahead.pop(0)
        if self.stage == "deploy":
            api.update_node(self.name, instance_info=IMAGE)
        # From here on a power request belongs to this stage.
        self.stages[self.stage] = {"began": time.time()}
        try:
            api.set_node_provision_state(self.name, STAGES[self.stage][0])
        except openstack.exceptions.SDKException as refusal:
            self.end("refused", str(refusal))

    def end(self, state, error):
        stage = self.stages[self.stage]
        stage.update(ended=time.time(), state=state, last_error=error)
        stage["failed"] = state != STAGES[self.stage][1] or error is not None
        print(f"{self.name}: {self.stage}: {state} after {stage['ended'] - stage['began']:.0f} s"
              + (f": {error}" if error else ""), flush=True)
        if stage["failed"]:
            self.ahead = []
        self.stage = None

    def seen(self, node):
        """The node as the API shows it, while a stage runs."""
        if self.stage is None:
            return
        state, goal = node.provision_state, STAGES[self.stage][1]
        if state == goal and node.target_provision_state is None:
            self.end(state, node.last_error)
        elif "failed" in state or state == "error" or (
            state == "enroll" and node.target_provision_state is None
        ):
            self.end(state, node.last_error or "no reason given")


def main():
    endpoint, plan, drivers, rack, limit, timeline = sys.argv[1:]
    with open(plan, encoding="utf-8") as file:
        nodes = json.load(file)
    with open(drivers, encoding="utf-8") as file:
        drivers = json.load(file)
    api = connect(endpoint)
    lives = {node["name"]: Life(node["name"]) for node in nodes}
    for node in nodes:
        enrol(api, node, drivers[node["name"]])
    end = time.time() + float(limit)
    while time.time() < end and not all(life.ended() for life in lives.values()):
        machines = machines_of(rack)
        for life in lives.values():
            if life.is_ready(machines[life.name]):
                life.next(api)
        time.sleep(POLL_S)
        for node in api.nodes(details=True):
            lives[node.name].seen(node)
    for node in api.nodes(details=True):
        life = lives[node.name]
        if life.stage is not None:
            life.end(f"still {node.provision_state}", node.last_error or "the test's limit")
    shown = {
        node.name: {
            "stages": lives[node.name].stages,
            "power_state": node.power_state,
            "maintenance": node.is_maintenance,
            "fault": node.fault,
            "cpus": (node.properties or {}).get("cpus"),
        }
        for node in api.nodes(details=True)
    }
    with open(timeline, "w", encoding="utf-8") as file:
        json.dump(shown, file, indent=1)


main()
