"""Longer power changes for the fake driver of sushy-tools' Redfish emulator.

Stock: everything that is served and all that the fake driver does. A power request is
answered at once with 204; the new state is reported when it is read after its time; a
repeated request meanwhile starts that time again. The stock time is 1 to 11 s, drawn
at random, and no setting changes it.

Ours, put in by the emulator's own configuration file, which is Python:
  - a power change takes the next time of the node's list in the plan (plan.py), 0 to 60 s, and
    the same time again when its request is repeated;
  - each power request is written to a file with its time and kind, because the emulator's
    access log, which `check.py` compares it with, has neither;
  - a lock, because the emulator serves from many threads and the fake driver reads a record,
    changes it and writes it back without one.
"""

import json
import threading
import time

from sushy_tools.emulator.resources.systems import fakedriver


class SlowPower(fakedriver.FakeDriver):
    delays = {}
    requests = None
    lock = threading.RLock()

    def set_power_state(self, identity, state):
        with self.lock:
            line = {"at": time.time(), "uuid": self.uuid(identity), "request": state}
            line["was"] = self.get_power_state(identity)
            with open(self.requests, "a", encoding="utf-8") as log:
                log.write(json.dumps(line) + "\n")
            super().set_power_state(identity, state)

    def _get(self, identity):
        with self.lock:
            return super()._get(identity)

    def _update(self, system, **changes):
        with self.lock:
            pending = changes.get("pending_power")
            if pending:
                before = system.get("pending_power") or {}
                count = system.get("power_changes", 0)
                if before.get("power_state") != pending["power_state"]:
                    count += 1
                delays = self.delays[system["uuid"]]
                pending["apply_time"] = time.time() + delays[(count - 1) % len(delays)]
                changes["power_changes"] = count
            super()._update(system, **changes)


def install(nodes, requests):
    """Makes the emulator use it. Returns SUSHY_EMULATOR_FAKE_SYSTEMS for these nodes."""
    SlowPower.delays = {node["uuid"]: node["delays"] for node in nodes}
    SlowPower.requests = requests
    fakedriver.FakeDriver = SlowPower
    return [
        {
            "uuid": node["uuid"],
            "name": node["name"],
            "power_state": "Off",
            # The fake agents are notified of each change.
            "external_notifier": True,
            "nics": [{"mac": node["mac"], "ip": "127.0.0.1"}],
        }
        for node in nodes
    ]
