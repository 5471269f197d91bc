"""The `baremetal` command against a box with three machines, all active.

The client's own commands run in this interpreter, each with a parser, a session and
output of its own, because starting a process for each would take minutes. A part that
fails is reported and the next one runs. The exit status is 0 if all succeeded.
"""

import base64
import contextlib
import gzip
import io
import json
import logging
import os
import re
import sys
import tempfile
import time
import traceback

from ironicclient import shell

# Timeout of one step of a machine's lifecycle, in seconds.
PATIENCE = 240
# Least number of different commands.
COMMANDS_MIN = 110

known = set()
used = set()
calls = 0
# A directory for files.
work = sys.argv[2]


def run(*words):
    """Exit code and the output of both streams."""
    global calls
    calls += 1
    name = " ".join(words)
    command = [one for one in known if name == one or name.startswith(one + " ")]
    used.update([max(command, key=len)] if command else [])
    printed, warned = io.StringIO(), io.StringIO()
    sys.argv = ["baremetal", *words]
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(warned):
        try:
            code = shell.main(list(words))
        except SystemExit as end:
            code = end.code
    # The next command has streams of its own.
    for logger in (None, "openstack", "keystoneauth", "ironicclient"):
        logger = logging.getLogger(logger)
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
    return code, printed.getvalue(), warned.getvalue()


def does(*words, says=""):
    """Runs it; it must succeed and print this."""
    code, printed, warned = run(*words)
    line = " ".join(words)
    assert code == 0, f"{line}: exit {code}: {printed}{warned}"
    assert re.search(says, printed + warned), f"{line}: no {says!r} in {printed}{warned}"
    return printed


def shows(*words):
    """Its output as JSON."""
    return json.loads(does(*words, "-f", "json"))


def refuses(*words, says):
    """It must fail and print this."""
    code, printed, warned = run(*words)
    line = " ".join(words)
    assert code != 0, f"{line}: was not refused: {printed}"
    assert re.search(says, printed + warned), f"{line}: no {says!r} in {printed}{warned}"


def field(node, name):
    return shows("node", "show", node, "--fields", name)[name]


def becomes(node, name, value):
    end = time.monotonic() + PATIENCE
    while (seen := field(node, name)) != value:
        assert time.monotonic() < end, f"{node}: {name} is {seen!r}, not {value!r}"
        time.sleep(0.2)


def names(*words):
    return [row["name"] for row in shows(*words)]


def fake(name, *words):
    return shows("node", "create", "--driver", "fake-hardware", "--name", name, *words)


# Without hardware.


def enrols():
    made = fake("fake-1", "--resource-class", "small", "--property", "cpus=4",
                "--extra", "rack=7", "--owner", "ann", "--lessee", "bob",
                "--description", "left of the door", "--driver-info", "fake_password=s3cret",
                "--shard", "one", "--automated-clean",
                "--instance-name", "web")
    assert made["provision_state"] == "enroll" and made["power_state"] is None
    assert made["properties"] == {"cpus": 4} or made["properties"] == {"cpus": "4"}
    assert made["conductor_group"] == "" and made["instance_name"] == "web"
    refuses("node", "create", "--driver", "fake-hardware", "--conductor-group", "East",
            says="No conductor service registered which supports driver fake-hardware")
    assert made["driver_info"] == {"fake_password": "******"}, made["driver_info"]
    uuid = "00000000-0000-4000-8000-00000000fa4e"
    made = fake("fake-2", "--uuid", uuid, "--resource-class", "big", "--no-automated-clean")
    assert made["uuid"] == uuid
    fake("fake-3", "--parent-node", "fake-1")
    refuses("--max-retries", "0", "node", "create", "--driver", "fake-hardware", "--name",
            "fake-1", says=r"A node with name fake-1 already exists\. \(HTTP 409\)")
    refuses("node", "create", "--driver", "nonesuch", says=r"nonesuch.*HTTP 400")
    refuses("node", "create", "--driver", "fake-hardware", "--name", "detail",
            says=r"detail.*HTTP 400")
    refuses("node", "create", "--driver", "fake-hardware", "--power-interface", "ipmitool",
            says=r"power interface.*HTTP 400")
    refuses("node", "show", "nobody", says=r"Node nobody could not be found\. \(HTTP 404\)")


def lists():
    table = does("node", "list", "--limit", "1")
    columns = [word.strip() for word in table.splitlines()[1].strip("|").split("|")]
    assert columns == ["uuid", "name", "instance_uuid", "power_state", "provision_state",
                       "maintenance"], columns
    assert names("node", "list", "--resource-class", "big") == ["fake-2"]
    for words in (
        ["--driver", "fake-hardware"], ["--provision-state", "enroll"],
        ["--driver", "fake-hardware", "--unassociated"],
        ["--driver", "fake-hardware", "--no-maintenance"],
    ):
        assert names("node", "list", *words) == ["fake-1", "fake-2"], words
    for words in (
        ["--owner", "ann"], ["--lessee", "bob"],
        ["--description-contains", "door"],
        ["--shards", "one", "two"], ["--sharded"],
    ):
        assert names("node", "list", *words) == ["fake-1"], words
    assert names("node", "list", "--parent-node", "fake-1") == ["fake-3"]
    assert "fake-3" in names("node", "list", "--include-children")
    for words in (["--maintenance"], ["--retired"], ["--fault", "power failure"],
                  ["--conductor", "elsewhere"]):
        assert names("node", "list", *words) == [], words
    # Pages of one, followed by `next`; sorting by the box and by the client.
    everybody = names("node", "list", "--limit", "0")
    assert len(everybody) == 5, everybody
    backwards = names("node", "list", "--sort", "name:desc")
    assert backwards == sorted(everybody, reverse=True), backwards
    second = shows("node", "list", "--limit", "1", "--marker", shows("node", "list")[0]["uuid"])
    assert [row["name"] for row in second] == [everybody[1]]
    long = shows("node", "list", "--long")
    assert {"driver", "resource_class", "traits"} <= set(long[0]), long[0].keys()
    few = shows("node", "list", "--fields", "name", "provision_state")
    assert set(few[0]) == {"name", "provision_state"}, few[0]
    refuses("node", "list", "--fields", "colour", says="colour")
    refuses("node", "list", "--provision-state", "dancing",
            says=r'Provision state "dancing" is not valid \(HTTP 400\)')
    refuses("node", "list", "--marker", "00000000-0000-4000-8000-000000000000",
            says="HTTP 404")
    assert does("node", "children", "list", "fake-1", says="Child Nodes|UUID|-").count("-") > 4


def changes():
    does("node", "set", "fake-1", "--extra", "a=b", "--extra", "n=7", "--name", "fake-x",
         "--property", "memory_mb=1024", "--instance-info", "image_source=http://x/y")
    assert field("fake-x", "extra") == {"rack": 7, "a": "b", "n": 7}
    does("node", "set", "fake-x", "--name", "fake-1", "--resource-class", "tiny",
         "--network-data", '{"links": [], "networks": [], "services": []}')
    does("node", "unset", "fake-1", "--extra", "a", "--resource-class", "--network-data",
         "--instance-info", "image_source")
    assert field("fake-1", "extra") == {"rack": 7, "n": 7}
    assert field("fake-1", "resource_class") is None
    does("node", "set", "fake-1", "--console-interface", "no-console")
    does("node", "unset", "fake-1", "--console-interface")
    assert field("fake-1", "console_interface") == "fake"
    refuses("node", "unset", "fake-1", "--extra", "nothing", says="HTTP 400")
    refuses("node", "set", "fake-1", "--chassis-uuid", "00000000-0000-4000-8000-000000000000",
            says=r"Chassis .* could not be found.*HTTP 400")
    does("node", "maintenance", "set", "fake-1", "--reason", "a fan is loud")
    assert field("fake-1", "maintenance_reason") == "a fan is loud"
    assert names("node", "list", "--maintenance") == ["fake-1"]
    does("node", "maintenance", "unset", "fake-1")
    assert field("fake-1", "maintenance") is False
    # A mask that is written back does not replace the value.
    does("node", "set", "fake-1", "--driver-info", "fake_password=******",
         "--driver-info", "fake_user=me")
    assert field("fake-1", "driver_info")["fake_password"] == "******"
    does("node", "trait", "add", "fake-1", "CUSTOM_FAST", "HW_CPU_X86_VMX", "CUSTOM_BOOK")
    refuses("node", "trait", "add", "fake-1", "quick", says=r"quick.*HTTP 400|Failed to add")
    does("node", "trait", "list", "fake-1", says="CUSTOM_FAST")
    does("node", "trait", "remove", "fake-1", "HW_CPU_X86_VMX")
    does("node", "add", "trait", "fake-1", "CUSTOM_OLD")
    does("node", "remove", "trait", "fake-1", "CUSTOM_OLD")
    assert field("fake-1", "traits") == ["CUSTOM_BOOK", "CUSTOM_FAST"]


def places():
    made = shows("chassis", "create", "--description", "by the wall", "--extra", "a=1")
    chassis = made["uuid"]
    assert shows("chassis", "list")[0]["description"] == "by the wall"
    does("chassis", "set", chassis, "--description", "by the door")
    does("chassis", "unset", chassis, "--extra", "a")
    assert shows("chassis", "show", chassis)["description"] == "by the door"
    does("node", "set", "fake-1", "--chassis-uuid", chassis)
    assert names("node", "list", "--chassis", chassis) == ["fake-1"]
    refuses("--max-retries", "0", "chassis", "delete", chassis,
            says="contains nodes")
    does("node", "unset", "fake-1", "--chassis-uuid")
    does("chassis", "delete", chassis, says="Deleted chassis")


def ports():
    node = field("fake-1", "uuid")
    mac = "52:54:00:99:00:01"
    port = shows("port", "create", mac, "--node", node, "--extra", "a=b",
                 "--physical-network", "blue", "--name", "left", "--description", "to switch 3",
                 "--local-link-connection", "switch_id=0a:1b:2c:3d:4e:5f",
                 "--local-link-connection", "port_id=Ethernet3/1")
    assert port["local_link_connection"]["port_id"] == "Ethernet3/1"
    refuses("--max-retries", "0", "port", "create", mac, "--node", node,
            says=rf"A port with MAC address {mac} already exists\. It belongs to node "
                 r".*[0-9a-f-]{36}\)?\. \(HTTP 409\)")
    refuses("port", "create", "mac", "--node", node, says="Expected valid MAC address.*HTTP 400")
    assert shows("port", "show", "--address", mac)["uuid"] == port["uuid"]
    does("port", "set", port["uuid"], "--pxe-disabled", "--extra", "c=d")
    assert shows("port", "show", "left")["pxe_enabled"] is False
    does("port", "unset", port["uuid"], "--extra", "a", "--physical-network")
    assert shows("port", "show", port["uuid"])["extra"] == {"c": "d"}
    assert len(shows("port", "list", "--node", "fake-1")) == 1
    assert len(shows("port", "list", "--address", mac, "--long")) == 1
    group = shows("port", "group", "create", "--node", node, "--name", "bond",
                  "--address", "52:54:00:99:00:02", "--mode", "802.3ad")
    does("port", "group", "list", "--node", "fake-1", says="bond")
    does("port", "set", port["uuid"], "--port-group", group["uuid"])
    assert len(shows("port", "list", "--port-group", "bond")) == 1
    refuses("--max-retries", "0", "port", "group", "delete", "bond",
            says="contains ports")
    does("port", "unset", port["uuid"], "--port-group")
    does("port", "group", "set", "bond", "--extra", "a=b", "--property", "miimon=100")
    does("port", "group", "unset", "bond", "--extra", "a")
    assert shows("port", "group", "show", "bond")["mode"] == "802.3ad"
    does("port", "group", "delete", "bond", says="Deleted port group")
    does("port", "delete", port["uuid"], says="Deleted port")


def volumes():
    node = field("fake-1", "uuid")
    connector = shows("volume", "connector", "create", "--node", node, "--type", "iqn",
                      "--connector-id", "iqn.2026-11.example:one")["uuid"]
    does("volume", "connector", "list", says="iqn.2026-11")
    does("volume", "connector", "set", connector, "--extra", "a=b")
    does("volume", "connector", "unset", connector, "--extra", "a")
    assert shows("volume", "connector", "show", connector)["type"] == "iqn"
    target = shows("volume", "target", "create", "--node", node, "--type", "iscsi",
                   "--boot-index", "0", "--volume-id", "v1")["uuid"]
    does("volume", "target", "list", says="iscsi")
    does("volume", "target", "set", target, "--property", "a=b")
    does("volume", "target", "unset", target, "--property", "a")
    assert shows("volume", "target", "show", target)["volume_id"] == "v1"
    does("volume", "target", "delete", target)
    does("volume", "connector", "delete", connector)


def drivers():
    drivers = [row["name"] for row in shows("driver", "list")]
    assert {"ipmi", "fake-hardware"} <= set(drivers), drivers
    does("driver", "list", "--long", says="default_power_interface")
    assert shows("driver", "show", "ipmi")["default_power_interface"] == "ipmitool"
    does("driver", "property", "list", "ipmi", says="ipmi_address")
    does("driver", "raid", "property", "list", "fake-hardware", says="size_gb")
    does("driver", "passthru", "list", "ipmi")
    refuses("driver", "passthru", "call", "ipmi", "dance", says="dance.*HTTP 400")
    refuses("driver", "show", "nonesuch", says=r"nonesuch\. \(HTTP 404\)")
    conductor = shows("conductor", "list")[0]
    assert conductor["alive"] is True
    does("conductor", "show", conductor["hostname"], says="ipmi")
    does("shard", "list", says="one")


def versions():
    old = run("--os-baremetal-api-version", "1.30", "node", "show", "fake-1", "-f", "json")
    assert old[0] == 0, old
    old = json.loads(old[1])
    assert "traits" not in old and "description" not in old and "driver" in old, old.keys()
    refuses("--os-baremetal-api-version", "1.36", "node", "trait", "list", "fake-1",
            says="HTTP 404|could not be found|not supported")
    refuses("--os-baremetal-api-version", "1.999", "node", "list", says="1.115")
    refuses("--os-baremetal-api-version", "1.37", "node", "set", "fake-1", "--owner", "me",
            says="operation is not supported by the requested version")
    new = shows("--os-baremetal-api-version", "latest", "node", "show", "fake-1")
    assert {"instance_name", "health", "disable_power_off"} <= set(new)


def lives():
    refuses("node", "provide", "fake-1", says=r'The requested action "provide" can not be '
            r'performed on node .* while it is in state "enroll".*HTTP 400')
    does("node", "manage", "--wait", "60", "fake-1")
    assert field("fake-1", "provision_state") == "manageable"
    does("node", "inspect", "--wait", "60", "fake-1")
    assert field("fake-1", "inspection_finished_at")
    for row in shows("node", "validate", "fake-1"):
        assert row["Result"] in (True, None) or row["Interface"] == "deploy", row
    steps = json.dumps([{"interface": "bios", "step": "apply_configuration", "args": {
        "settings": [{"name": "Boot", "value": "Uefi"}, {"name": "Cores", "value": "8"}]}}])
    does("node", "clean", "--wait", "60", "--clean-steps", steps, "fake-1")
    does("node", "bios", "setting", "list", "fake-1", says="Boot.*Uefi")
    assert shows("node", "bios", "setting", "show", "fake-1", "Cores")["value"] == "8"
    does("node", "bios", "setting", "list", "fake-1", "--long", says="attribute_type")
    refuses("node", "bios", "setting", "show", "fake-1", "Fans",
            says=r"doesn't have a BIOS setting 'Fans' \(HTTP 404\)")
    does("node", "firmware", "list", "fake-1")
    wrong = json.dumps([{"interface": "deploy", "step": "dance"}])
    refuses("node", "clean", "--wait", "60", "--clean-steps", wrong, "fake-1",
            says="clean failed|dance")
    history = shows("node", "history", "list", "fake-1", "--long")
    assert "dance" in history[-1]["event"], history
    event = history[-1]["uuid"]
    does("node", "history", "get", "fake-1", event, says="dance")
    does("node", "maintenance", "unset", "fake-1")
    does("node", "manage", "--wait", "60", "fake-1")
    refuses("node", "clean", "fake-1", "--clean-steps", '[{"interface": "moon", "step": "x"}]',
            says="HTTP 400")
    does("node", "provide", "--wait", "60", "fake-1")
    does("node", "set", "fake-1", "--resource-class", "tiny",
         "--instance-info", "image_source=http://x/y.raw",
         "--instance-info", "image_checksum=" + "0" * 64)
    drive = json.dumps({"meta_data": {"hostname": "web"}, "user_data": "#!/bin/sh"})
    does("node", "deploy", "--wait", "60", "--config-drive", drive, "fake-1")
    shown = field("fake-1", "instance_info")
    assert shown["configdrive"] == "******", shown
    assert field("fake-1", "power_state") == "power on"
    with tempfile.NamedTemporaryFile("w") as drive:
        drive.write(base64.b64encode(gzip.compress(b"x" * 4096)).decode())
        drive.flush()
        does("node", "rebuild", "--wait", "60", "fake-1", "--config-drive", drive.name)
    refuses("--max-retries", "0", "node", "delete", "fake-1", says="HTTP 409")
    does("node", "set", "fake-1", "--protected", "--protected-reason", "hands off")
    refuses("node", "undeploy", "fake-1", says=r"is protected and cannot be undeployed")
    does("node", "unset", "fake-1", "--protected")
    assert field("fake-1", "protected_reason") is None
    does("node", "rescue", "--wait", "60", "--rescue-password", "pw", "fake-1")
    does("node", "unrescue", "--wait", "60", "fake-1")
    hold = json.dumps([{"interface": "power", "step": "hold"}])
    does("node", "service", "--service-steps", hold, "fake-1")
    becomes("fake-1", "provision_state", "service hold")
    does("node", "unhold", "fake-1")
    becomes("fake-1", "provision_state", "active")
    does("node", "service", "--service-steps", hold, "fake-1")
    becomes("fake-1", "provision_state", "service hold")
    does("node", "abort", "fake-1")
    becomes("fake-1", "provision_state", "service failed")
    does("node", "undeploy", "--wait", "60", "fake-1")
    assert field("fake-1", "instance_info") == {}
    assert field("fake-1", "instance_name") is None


def hardware():
    does("node", "power", "on", "fake-1")
    becomes("fake-1", "power_state", "power on")
    does("node", "power", "off", "--soft", "--power-timeout", "5", "fake-1")
    becomes("fake-1", "power_state", "power off")
    does("node", "reboot", "--soft", "fake-1")
    becomes("fake-1", "power_state", "power on")
    does("node", "power", "off", "fake-1")
    becomes("fake-1", "power_state", "power off")
    refuses("node", "power", "on", "fake-1", "--power-timeout", "0", says="positive|HTTP 400")
    does("node", "set", "fake-1", "--disable-power-off")
    refuses("--max-retries", "0", "node", "power", "off", "fake-1",
            says="Failed to set node power state to power off")
    does("node", "set", "fake-1", "--enable-power-off")
    does("node", "console", "enable", "fake-1")
    does("node", "console", "show", "fake-1", says=r"console_enabled +\| True")
    does("node", "console", "disable", "fake-1")
    refuses("node", "console", "enable", "node-01",
            says="Driver ipmi does not support console")
    does("node", "boot", "device", "set", "fake-1", "pxe", "--persistent")
    shown = shows("node", "boot", "device", "show", "fake-1")
    assert shown == {"boot_device": "pxe", "persistent": True}, shown
    does("node", "boot", "device", "show", "--supported", "fake-1", says="pxe")
    refuses("node", "boot", "device", "set", "fake-1", "disk",
            says="Invalid boot device disk specified")
    does("node", "boot", "mode", "set", "fake-1", "uefi")
    does("node", "secure", "boot", "on", "fake-1")
    becomes("fake-1", "secure_boot", True)
    does("node", "secure", "boot", "off", "fake-1")
    assert field("fake-1", "boot_mode") == "uefi"
    refuses("node", "boot", "mode", "set", "node-01", "uefi", says="does not support")
    refuses("node", "inject", "nmi", "fake-1", says="does not support")
    raid = json.dumps({"logical_disks": [{"raid_level": "1", "size_gb": 100}]})
    does("node", "set", "fake-1", "--target-raid-config", raid)
    assert field("fake-1", "target_raid_config") == json.loads(raid)
    does("node", "unset", "fake-1", "--target-raid-config")
    refuses("node", "set", "fake-1", "--target-raid-config", '{"logical_disks": []}',
            says="non-empty|HTTP 400")
    does("node", "vif", "attach", "fake-1", "00000000-0000-4000-8000-00000000000f")
    does("node", "vif", "list", "fake-1")
    does("node", "vif", "detach", "fake-1", "00000000-0000-4000-8000-00000000000f")
    does("node", "passthru", "list", "fake-1")
    refuses("node", "passthru", "call", "fake-1", "dance", says="dance.*HTTP 400")


def allocates():
    made = shows("allocation", "create", "--resource-class", "tiny", "--name", "web",
                 "--trait", "CUSTOM_FAST", "--wait", "60")
    assert made["state"] == "active", made
    assert field("fake-1", "allocation_uuid") == made["uuid"]
    assert field("fake-1", "instance_uuid") == made["uuid"]
    assert names("node", "list", "--associated", "--driver", "fake-hardware") == ["fake-1"]
    does("allocation", "list", "--resource-class", "tiny", says="web")
    does("allocation", "set", "web", "--extra", "a=b")
    does("allocation", "unset", "web", "--extra", "a")
    does("allocation", "show", "web", says="active")
    does("allocation", "delete", "web", says="Deleted allocation web")
    assert field("fake-1", "instance_uuid") is None
    refuses("allocation", "create", "--resource-class", "none", "--wait", "60",
            says="no available nodes match the resource class none")


def writes_down():
    steps = json.dumps([{"interface": "bios", "step": "apply_configuration", "priority": 150,
                         "args": {"settings": [{"name": "Fans", "value": "loud"}]}}])
    does("deploy", "template", "create", "CUSTOM_FAST", "--steps", steps)
    does("deploy", "template", "list", says="CUSTOM_FAST")
    does("deploy", "template", "set", "CUSTOM_FAST", "--extra", "a=b")
    does("deploy", "template", "unset", "CUSTOM_FAST", "--extra", "a")
    does("deploy", "template", "show", "CUSTOM_FAST", says="apply_configuration")
    does("node", "set", "fake-1", "--instance-info", "image_source=http://x/y.raw",
         "--instance-info", "image_checksum=" + "0" * 64,
         "--instance-info", 'traits=["CUSTOM_FAST"]')
    does("node", "deploy", "--wait", "60", "fake-1")
    does("node", "bios", "setting", "show", "fake-1", "Fans", says="loud")
    does("node", "undeploy", "--wait", "60", "fake-1")
    does("node", "set", "fake-1", "--instance-info", 'traits=["CUSTOM_NONE"]',
         "--instance-info", "image_source=http://x/y.raw",
         "--instance-info", "image_checksum=" + "0" * 64)
    refuses("node", "deploy", "fake-1", says="missing traits CUSTOM_NONE")
    does("deploy", "template", "delete", "CUSTOM_FAST", says="Deleted deploy template")
    steps = json.dumps([{"interface": "bios", "step": "factory_reset", "args": {}, "order": 1}])
    does("runbook", "create", "--name", "CUSTOM_BOOK", "--steps", steps)
    does("runbook", "list", says="CUSTOM_BOOK")
    does("runbook", "set", "CUSTOM_BOOK", "--extra", "a=b")
    does("runbook", "unset", "CUSTOM_BOOK", "--extra", "a")
    does("runbook", "show", "CUSTOM_BOOK", says="factory_reset")
    does("node", "manage", "--wait", "60", "fake-1")
    refuses("node", "clean", "--runbook", "CUSTOM_BOOK", "fake-1", says="no traits configured")
    does("runbook", "trait", "add", "CUSTOM_BOOK", "CUSTOM_FAST")
    does("runbook", "trait", "list", "CUSTOM_BOOK", says="CUSTOM_FAST")
    does("node", "clean", "--runbook", "CUSTOM_BOOK", "--wait", "60", "fake-1")
    assert shows("node", "bios", "setting", "list", "fake-1") == []
    does("runbook", "trait", "remove", "CUSTOM_BOOK", "CUSTOM_FAST")
    does("runbook", "delete", "CUSTOM_BOOK", says="Deleted runbook")
    actions = json.dumps([{"op": "set-attribute", "args": {"path": "/extra/seen",
                                                           "value": "yes"}}])
    refuses("inspection", "rule", "create", "--actions", actions, "--description", "marks",
            says=r"does not run inspection rules yet.*\(HTTP 501\)")
    assert shows("inspection", "rule", "list") == []


def retires():
    does("node", "set", "fake-1", "--retired", "--retired-reason", "old")
    assert names("node", "list", "--retired") == ["fake-1"]
    refuses("node", "provide", "fake-1", says="because it is retired")
    does("node", "unset", "fake-1", "--retired")
    does("node", "set", "fake-2", "--instance-info", "image_source=http://x/y.raw",
         "--instance-info", "image_checksum=" + "0" * 64)
    does("node", "manage", "--wait", "60", "fake-2")
    does("node", "adopt", "--wait", "60", "fake-2")
    does("node", "maintenance", "set", "fake-2")
    does("node", "delete", "fake-2", "fake-3", says="Deleted node fake-2")
    does("node", "delete", "fake-1", says="Deleted node fake-1")
    assert names("node", "list", "--driver", "fake-hardware", "--include-children") == []


def creates_from_a_file():
    path = os.path.join(work, "nodes.json")
    with open(path, "w", encoding="ascii") as file:
        json.dump({"nodes": [{"name": "filed", "driver": "fake-hardware",
                              "ports": [{"address": "52:54:00:99:00:07"}]}]}, file)
    does("create", path)
    assert len(shows("port", "list", "--node", "filed")) == 1
    does("node", "delete", "filed")
    assert shows("port", "list", "--address", "52:54:00:99:00:07") == []


# With simulated hardware.


def reads_the_rack():
    active = names("node", "list", "--provision-state", "active", "--sort", "name")
    assert active == ["node-01", "node-02", "node-03"], active
    shown = shows("node", "show", "node-01")
    assert shown["driver_info"]["ipmi_password"] == "******"
    assert shown["properties"]["cpu_arch"] == "x86_64"
    does("node", "inventory", "save", "node-01", says='"memory"')
    path = os.path.join(work, "inventory")
    does("node", "inventory", "save", "--file", path, "node-01")
    with open(path, encoding="utf-8") as file:
        assert "R0001" in file.read()
    assert shows("port", "show", "--address", "52:54:00:77:00:01")["pxe_enabled"] is True
    assert len(shows("port", "list", "--node", "node-03")) == 1
    power = [row for row in shows("node", "validate", "node-01") if row["Interface"] == "power"]
    assert power[0]["Result"] is True
    refuses("--max-retries", "0", "node", "delete", "node-01", says="HTTP 409")


def switches_the_rack():
    does("node", "power", "off", "node-02")
    becomes("node-02", "power_state", "power off")
    does("node", "power", "on", "node-02")
    becomes("node-02", "power_state", "power on")
    does("node", "reboot", "node-02")
    becomes("node-02", "target_power_state", None)
    does("node", "boot", "device", "set", "node-02", "disk", "--persistent")
    end = time.monotonic() + PATIENCE
    while shows("node", "boot", "device", "show", "node-02")["boot_device"] != "disk":
        assert time.monotonic() < end, "the boot device is not kept"
        time.sleep(0.2)


def lives_on_the_rack():
    does("node", "undeploy", "node-03")
    becomes("node-03", "provision_state", "available")
    refuses("node", "deploy", "node-03", says="image_source")
    does("node", "set", "node-03", "--instance-info", "image_source=demo.raw")
    does("node", "deploy", "node-03")
    becomes("node-03", "provision_state", "active")
    assert field("node-03", "last_error") is None
    does("node", "rebuild", "node-03")
    becomes("node-03", "provision_state", "active")
    does("node", "rescue", "--rescue-password", "pw", "node-03")
    becomes("node-03", "provision_state", "rescue")
    does("node", "unrescue", "node-03")
    becomes("node-03", "provision_state", "active")
    does("node", "undeploy", "node-03")
    becomes("node-03", "provision_state", "available")
    does("node", "manage", "--wait", "60", "node-03")
    does("node", "inspect", "node-03")
    becomes("node-03", "provision_state", "manageable")
    does("node", "provide", "node-03")
    becomes("node-03", "provision_state", "available")
    does("node", "inventory", "save", "node-03", says="R0003")


def main(endpoint):
    os.environ.update(OS_AUTH_TYPE="none", OS_ENDPOINT=endpoint)
    known.update(shell.CommandManager(shell._NAMESPACE).commands)
    parts = [
        enrols, lists, changes, places, ports, drivers, versions, lives, hardware,
        volumes, allocates, writes_down, retires, creates_from_a_file, reads_the_rack,
        switches_the_rack, lives_on_the_rack,
    ]
    failures = 0
    for part in parts:
        began = time.monotonic()
        try:
            part()
        except Exception:  # noqa: BLE001: whatever it is, the next part goes on.
            failures += 1
            traceback.print_exc()
        print(f"{part.__name__}: {time.monotonic() - began:.1f} s", flush=True)
    print(f"{calls} calls of {len(used)} different commands, {failures} parts failed")
    if len(used) < COMMANDS_MIN:
        print(f"fewer than {COMMANDS_MIN}; not used: {', '.join(sorted(known - used))}")
        failures += 1
    return failures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
