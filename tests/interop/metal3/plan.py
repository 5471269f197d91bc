"""Plans the rack for the machines of foreign_rack.

usage: plan.py IPMI_COUNT REDFISH_COUNT

Prints JSON: a list of machines that switch at once and boot fast. Each has the LLDP data of a
switch, and reads the address of its BMC as stock agents do.
"""

import json
import sys
import uuid

LLDP = [
    [1, "04525400cc0001"],
    [2, "05" + b"Ethernet1/7".hex()],
    [5, b"leaf-1".hex()],
    [127, "0080c2010064"],
    [127, "0080c203006403" + b"one".hex()],
    [0, ""],
]

# The host that is detached while it is inspected needs longer to boot, and so do those whose
# deployment is aborted while it waits for the agent.
BOOT_S = {"redfish-3": 60, "ipmi-1": 4, "redfish-4": 4}


def machine(kind, number):
    name = f"{kind}-{number}"
    address = f"127.117.3.{number + 1}" if kind == "ipmi" else None
    return {
        "name": name,
        "kind": kind,
        "number": number,
        "uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
        "mac": f"52:54:00:f3:{0 if kind == 'redfish' else 1:02x}:{number:02x}",
        "delays": [0],
        "boot_s": BOOT_S.get(name, 0.2),
        "boot_mode": "bios",
        "sync": "succeeds",
        "bmc_address": address,
        "lldp": LLDP,
    }


def main():
    ipmi, redfish = (int(count) for count in sys.argv[1:])
    machines = [machine("ipmi", number) for number in range(ipmi)]
    machines += [machine("redfish", number) for number in range(redfish)]
    json.dump(machines, sys.stdout, indent=1)


main()
