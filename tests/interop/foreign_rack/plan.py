"""Plans the rack: which nodes there are and how long each power change of each takes.

usage: plan.py SEED REDFISH_COUNT IPMI_COUNT

Prints JSON: a list of nodes. The same seed gives the same rack. Each node's power changes
take, in order, the seconds of its list `delays`, which starts again at its end: one change
is long, one is of medium length, the others are short. A change may take 0 to 60 s.
"""

import json
import random
import sys
import uuid

# A lifecycle has ten power changes: inspect 2, clean 2, deploy 3, undeploy (with cleaning) 3.
CHANGES = 10
SHORT, MEDIUM, LONG = (0.0, 5.0), (10.0, 25.0), (35.0, 60.0)
# The first node of each kind has one change of the longest time.
LONGEST = 60.0
# From power on to the first request of the firmware.
BOOT = (3.0, 8.0)
# How `standby.sync` ends on some nodes: each of these must be only a warning. The first is the
# reply of agents without that command, the second a command that ran and failed, the third the
# reply of a stock agent with an internal exception.
SYNC_FAILURES = ("unknown command", "command failed", "server error")


def delays(rng, longest):
    seconds = [rng.uniform(*SHORT) for _ in range(CHANGES - 2)]
    seconds += [rng.uniform(*MEDIUM), longest or rng.uniform(*LONG)]
    # At least one change is immediate.
    seconds[0] = 0.0
    rng.shuffle(seconds)
    return [round(second, 2) for second in seconds]


def node(seed, kind, number, index):
    name = f"{kind}-{number}"
    rng = random.Random(f"{seed}/{name}")
    failing = index % 3 == 1
    return {
        "name": name,
        "kind": kind,
        "number": number,
        "uuid": str(uuid.UUID(int=rng.getrandbits(128), version=4)),
        "mac": f"52:54:00:f0:{0 if kind == 'redfish' else 1:02x}:{number:02x}",
        "delays": delays(rng, LONGEST if number == 0 else None),
        "boot_s": round(rng.uniform(*BOOT), 2),
        "boot_mode": "uefi" if index % 2 else "bios",
        "sync": SYNC_FAILURES[index // 3 % 3] if failing else "succeeds",
    }


def main():
    seed, redfish, ipmi = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    kinds = [("redfish", n) for n in range(redfish)] + [("ipmi", n) for n in range(ipmi)]
    nodes = [node(seed, kind, number, at) for at, (kind, number) in enumerate(kinds)]
    json.dump(nodes, sys.stdout, indent=1)


main()
