"""The settings of drive.py: hosts as the operator's access details describe them.

usage: settings.py WORK ENDPOINT HTTP AGENTS BMC FILES
"""

import hashlib
import json
import sys

# Interfaces of all hosts that the operator leaves to Ironic's defaults, or names itself.
COMMON = {
    "network_interface": "noop",
    "storage_interface": "noop",
    "boot_interface": "ipxe",
    "inspect_interface": "agent",
}


def access(machine, work, bmc):
    if machine["kind"] == "ipmi":
        with open(f"{work}/{machine['name']}/port", encoding="utf-8") as file:
            address, port = file.read().split()
        return {
            "driver": "ipmi",
            # The operator sends the port as a text.
            "driver_info": {
                "ipmi_address": address, "ipmi_port": port, "ipmi_username": "admin",
                "ipmi_password": "password", "ipmi_priv_level": "ADMINISTRATOR",
                "ipmi_verify_ca": False,
            },
            "raid_interface": "no-raid",
            "interfaces": COMMON | {
                "management_interface": "ipmitool", "power_interface": "ipmitool",
                "vendor_interface": "ipmitool", "bios_interface": "no-bios",
                "firmware_interface": "no-firmware", "raid_interface": "no-raid",
            },
        }
    system = f"/redfish/v1/Systems/{machine['uuid']}"
    return {
        "driver": "redfish",
        "driver_info": {
            "redfish_address": bmc, "redfish_system_id": system, "redfish_username": "admin",
            "redfish_password": "password", "redfish_verify_ca": False,
        },
        "firmware_interface": "redfish",
        "raid_interface": "redfish",
        "interfaces": {
            "management_interface": "redfish", "power_interface": "redfish",
            "vendor_interface": "redfish", "bios_interface": "redfish",
            "firmware_interface": "redfish", "raid_interface": "redfish",
        },
        "system": machine["uuid"],
    }


def main():
    work, endpoint, http, agents, bmc, files = sys.argv[1:]
    with open(f"{work}/plan", encoding="utf-8") as file:
        machines = json.load(file)
    with open(f"{work}/web/one.raw", "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    json.dump({
        "endpoint": endpoint, "http": http, "agents": agents, "bmc": bmc,
        "image": {"url": f"{files}/one.raw", "type": "sha256", "checksum": digest,
                  "format": "raw"},
        "image_with_file": {"url": f"{files}/two.raw", "checksum": f"{files}/two.raw.sha256sum",
                            "format": "raw"},
        "iso": f"{files}/live.iso",
        "hosts": {
            machine["name"]: {
                "mac": machine["mac"], "boot_mode": machine["boot_mode"],
                "access": access(machine, work, bmc),
            }
            for machine in machines
        },
    }, sys.stdout, indent=1)


main()
