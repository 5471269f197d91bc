"""Prints `complete` if an inventory has all that the machine of this suite has, else what is
missing. Arguments: FILE MEMORY_MIB BMC MAC NIC_DRIVER SERIAL..."""

import json
import sys

path, memory, bmc, mac, driver, *serials = sys.argv[1:]
with open(path, encoding="utf-8") as file:
    inventory = json.load(file)["inventory"]
missing = []


def check(name, value, wanted=None):
    """VALUE is the wanted one, or any that is not empty."""
    if value != wanted if wanted is not None else value in (None, "", [], {}, 0):
        missing.append(f"{name} is {value!r}")


cpu = inventory.get("cpu", {})
for key in ("model_name", "flags"):
    check(f"cpu.{key}", cpu.get(key))
check("cpu.count", cpu.get("count"), 1)
check("cpu.architecture", cpu.get("architecture"), "x86_64")
check("memory.physical_mb", inventory.get("memory", {}).get("physical_mb"), int(memory))
check("memory.total", inventory.get("memory", {}).get("total"))
check("bmc_address", inventory.get("bmc_address"), bmc)
check("system_vendor.manufacturer", inventory.get("system_vendor", {}).get("manufacturer"))
check("boot.current_boot_mode", inventory.get("boot", {}).get("current_boot_mode"))
disks = {disk.get("serial"): disk for disk in inventory.get("disks", [])}
check("serial numbers", sorted(key for key in disks if key), sorted(serials))
for serial, disk in disks.items():
    check(f"{serial}: name", disk.get("name"))
    check(f"{serial}: size", disk.get("size"), 6 << 30)
    check(f"{serial}: by_path", disk.get("by_path"))
nics = [nic for nic in inventory.get("interfaces", []) if nic.get("mac_address") == mac]
check("interfaces with the MAC address", len(nics), 1)
for nic in nics:
    check("has_carrier", nic.get("has_carrier"), True)
    check("ipv4_address", nic.get("ipv4_address"))
    check("vendor", nic.get("vendor"))
    check("product", nic.get("product"))
    check("driver", nic.get("driver"), driver)
print("; ".join(missing) or "complete")
