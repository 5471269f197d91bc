"""Runs the operator for a rack of hosts, all at the same time.

usage: drive.py SETTINGS

SETTINGS is a JSON file: the endpoint of the box, the hosts with their BMCs, the images, and the
addresses of the helpers. Each scenario is one host; a line `ok NAME` or `bad NAME<TAB>REASON` for
each is printed at its end.
"""

import json
import sys
import threading
import traceback
import urllib.request
import uuid

from ironic import Broken, Ironic, Status
from operator_host import Host

SWITCH = {"switch_chassis_id": "52:54:00:cc:00:01", "switch_port_id": "Ethernet1/7",
          "switch_system_name": "leaf-1",
          "switch_port_vlans": [{"id": 100, "name": "one"}],
          "switch_port_untagged_vlan_id": 100}
FACTS = {"cpus": 4, "ram": 8192, "disks": [64 << 30], "vendor": "fake"}


def fetch(url, method="GET", body=None):
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data, method=method)
    with urllib.request.urlopen(asked, timeout=30) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def script(settings, host):
    with urllib.request.urlopen(
            f"{settings['http']}/boot/{host.mac}/script", timeout=30) as answer:
        return answer.read().decode()


def report(settings, name):
    return fetch(f"{settings['agents']}/report")["machines"][name]


def found(host, mac, details):
    for key, value in FACTS.items():
        host.expect(key, value, details[key])
    host.expect("network cards", [(mac, True, SWITCH)], details["nics"])


def ipmi_image(settings, host):
    """The whole life: software RAID, an image by URL with its digest, power, cleaning."""
    host.register()
    found(host, host.mac, host.inspect())
    if not host.has_capacity():
        raise Broken("there is no capacity")
    # The operator reads BIOS settings and firmware of every host and ignores an empty list.
    host.read_settings()
    host.prepare(volumes=("1",))
    host.provide()
    host.provision_image(settings["image"])
    host.power_cycle()
    host.expect("images written", 1, report(settings, host.name)["images_written"])
    commands = report(settings, host.name)["steps"]
    host.expect("manual clean steps",
                ["delete_configuration", "erase_devices_metadata", "create_configuration"],
                commands[:3])
    host.deprovision()
    host.delete()


def redfish_image(settings, host):
    """A Redfish host: health, events, an image with a checksum file, no cleaning."""
    host.register()
    found(host, host.mac, host.inspect())
    settings_of_bios, components = host.read_settings()
    host.expect("BIOS settings and firmware", ([], []), (settings_of_bios, components))
    host.provide()
    host.provision_image(settings["image_with_file"])
    host.power_cycle()
    host.expect("health", "OK", host.node()["health"])
    fetch(f"{settings['bmc']}/health/{host.access['system']}", "PUT", "Critical")
    host.power("power on", "power on")
    host.expect("health", "Critical", host.node()["health"])
    name = host.subscribe("https://192.0.2.1/events", "rack 1", [{"X-Auth": "s3cret"}])
    sent = fetch(f"{settings['bmc']}/subscriptions")[name]
    host.expect("HttpHeaders", [{"X-Auth": "s3cret"}], sent["HttpHeaders"])
    host.unsubscribe(name)
    host.expect("subscriptions", {}, fetch(f"{settings['bmc']}/subscriptions"))
    host.expect("an unknown subscription", 404, host.unsubscribe(name, (404,)))
    host.data_image(settings["iso"])
    # Servicing: BIOS settings and firmware of Redfish are not changed by this box, and it says so.
    for interface, step in (("bios", "apply_configuration"), ("firmware", "update")):
        try:
            host.ironic.provision(host.uuid, target="service", service_steps=[
                {"interface": interface, "step": step, "args": {"settings": []}}])
            raise Broken(f"{interface}.{step} is accepted")
        except Status as refused:
            host.expect("servicing", 400, refused.status)
    host.expect("provision_state", "active", host.node()["provision_state"])
    host.deprovision(automated_clean=False)
    host.delete()


def live_iso(settings, host):
    """A live ISO is booted from the network at each boot and nothing is written."""
    host.register(deploy_interface="ramdisk")
    host.inspect()
    host.configure(automated_clean=False)
    host.provide()
    host.provision_live_iso(settings["iso"])
    text = script(settings, host)
    if f"/nodes/{host.uuid}/boot/boot_iso" not in text:
        raise Broken(f"the script does not boot the ISO: {text}")
    host.expect("images written", None, report(settings, host.name).get("images_written"))
    host.deprovision(automated_clean=False)
    if "boot_iso" in script(settings, host):
        raise Broken("the ISO is still booted")
    # An image takes the place of the ISO.
    host.provision_image(settings["image"])
    host.expect("deploy_interface", "autodetect", host.node()["deploy_interface"])
    host.deprovision(automated_clean=False)
    host.delete()


def custom(settings, host):
    """Custom deploy: the steps of the operator and no others; then a detach that is forced."""
    host.register(deploy_interface="custom-agent")
    host.inspect()
    host.provide()
    host.custom_deploy("install_custom", settings["image"])
    host.wait("active", "active")
    machine = report(settings, host.name)
    host.expect("deploy steps", ["install_custom"], machine["deploy_steps"])
    host.expect("images written", None, machine.get("images_written"))
    host.expect("config drives", 1, machine["drives"])
    host.deprovision()
    # A deployment that is detached by force while it waits for the agent is aborted.
    host.custom_deploy("install_custom")
    host.await_state("wait call-back")
    host.delete(force=True)


def adopted(settings, host):
    """Externally provisioned: adopted, found in maintenance, detached without a change."""
    host.register()
    before = report(settings, host.name)["power_ons"]
    host.adopt()
    host.maintain("by hand")
    # An active node in maintenance without a fault: the operator ends it.
    host.unmaintain()
    host.expect("power_ons", before, report(settings, host.name)["power_ons"])
    host.delete()


def without_ports(settings, host):
    """No boot MAC address is known: the machine is found by the address of its BMC."""
    mac, host.mac = host.mac, ""
    host.register()
    host.expect("ports", [], host.ironic.ports(node_uuid=host.uuid))
    host.start_inspection()
    host.wait("inspect", "manageable")
    found(host, mac, host.inspected())
    host.expect("ports", [mac],
                [port["address"] for port in host.ironic.ports(node_uuid=host.uuid)])
    host.mac = mac
    host.delete()


def detached(settings, host):
    """Detached by force while it is inspected."""
    host.register()
    host.start_inspection()
    host.await_state("inspect wait")
    host.delete(force=True)


SCENARIOS = {
    "ipmi-0": ipmi_image, "ipmi-1": custom, "ipmi-2": without_ports,
    "redfish-0": redfish_image, "redfish-1": live_iso, "redfish-2": adopted,
    "redfish-3": detached, "ipmi-3": live_iso, "redfish-4": custom,
}


def run(settings, ironic, name, results):
    one = settings["hosts"][name]
    uid = str(uuid.uuid5(uuid.NAMESPACE_DNS, name))
    host = Host(ironic, name, uid, one["mac"], one["access"], one["boot_mode"])
    try:
        SCENARIOS[name](settings, host)
        results[name] = None
    except Broken as reason:
        results[name] = str(reason)
    except Exception:
        results[name] = traceback.format_exc()


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        settings = json.load(file)
    ironic = Ironic(settings["endpoint"])
    if ironic.microversion != "1.110":
        raise Broken(f"the operator chooses {ironic.microversion}")
    results = {}
    threads = [threading.Thread(target=run, args=(settings, ironic, name, results))
               for name in settings["hosts"]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in settings["hosts"]:
        reason = results[name]
        scenario = f"{name} {SCENARIOS[name].__name__}"
        print(f"ok {scenario}" if reason is None else
              f"bad {scenario}\t" + reason.replace("\n", " | "), flush=True)
    left = ironic.get("/v1/nodes", "nodes")["nodes"]
    print(f"nodes left: {len(left)}")
    print(f"{ironic.calls} calls")


main()
