"""openstacksdk's baremetal proxy against a box with three machines, all active.

Every step is a function; one that fails is reported and the next one runs, since they
share only the arguments of `main`. The exit status is 0 if all succeeded.
"""

import concurrent.futures
import sys
import traceback

import openstack
from openstack import exceptions

# Timeout of one step of a machine's lifecycle, in seconds.
TIMEOUT_S = 240


def connect(endpoint):
    """A connection to one service without authentication."""
    return openstack.connection.Connection(
        auth_type="none",
        auth={"endpoint": endpoint},
        baremetal_endpoint_override=endpoint,
    ).baremetal


def refuses(kind, call, *arguments, **named):
    """The message of the expected error."""
    try:
        got = call(*arguments, **named)
    except kind as refusal:
        return str(refusal)
    raise AssertionError(f"{call.__name__} was not refused: {got!r}")


def lists_and_finds(box):
    names = sorted(node.name for node in box.nodes())
    assert names == ["node-01", "node-02", "node-03"], names
    one = box.find_node("node-01")
    assert box.get_node(one.id).provision_state == "active"
    assert box.find_node("nobody") is None
    refuses(exceptions.NotFoundException, box.get_node, "nobody")
    # Pages of one, followed by `next`.
    assert len(list(box.nodes(limit=1))) == 3
    wide = next(box.nodes(details=True, provision_state="active"))
    assert wide.driver == "ipmi" and wide.driver_info["ipmi_password"] == "******"
    narrow = box.get_node("node-01", fields=["uuid", "power_state"])
    assert narrow.power_state == "power on" and narrow.driver is None
    drivers = [driver.name for driver in box.drivers(details=True)]
    assert "ipmi" in drivers, drivers
    assert box.get_driver("ipmi").default_power_interface
    hosts = [conductor.hostname for conductor in box.conductors()]
    assert box.get_conductor(hosts[0]).alive


def patches(box):
    node = box.update_node("node-01", extra={"rack": 7}, description="left")
    assert (node.extra, node.description) == ({"rack": 7}, "left")
    change = [{"op": "replace", "path": "/extra/rack", "value": 8}]
    assert box.patch_node("node-01", change).extra == {"rack": 8}
    node = box.get_node("node-01")
    node.name = "renamed"
    assert box.update_node(node).name == "renamed"
    assert box.update_node("renamed", name="node-01").name == "node-01"
    wrong = [{"op": "replace", "path": "/nothing", "value": 8}]
    refuses(exceptions.BadRequestException, box.patch_node, "node-01", wrong)


def manages_a_running_node(box):
    node = box.set_node_maintenance("node-01", "a fan is loud")
    node = box.get_node(node.id)
    assert node.is_maintenance and node.maintenance_reason == "a fan is loud"
    assert not box.unset_node_maintenance(node).is_maintenance
    for target, state in [("power off", "power off"), ("power on", "power on")]:
        box.set_node_power_state("node-01", target, wait=True, timeout=TIMEOUT_S)
        assert box.get_node("node-01").power_state == state
    box.wait_for_node_reservation("node-01", timeout=TIMEOUT_S)
    box.set_node_boot_device("node-01", "disk", persistent=True)
    assert "boot_device" in box.get_node_boot_device("node-01")
    devices = box.get_node_supported_boot_devices("node-01")
    assert "pxe" in devices["supported_boot_devices"]
    checks = box.validate_node("node-01", required=("power", "management"))
    assert checks["power"].result
    assert box.get_node_inventory("node-01")["inventory"]["memory"]
    assert list(box.list_node_firmware("node-01")) is not None


def traits(box):
    box.set_node_traits("node-01", ["CUSTOM_GPU", "HW_CPU_X86_VMX"])
    box.add_node_trait("node-01", "CUSTOM_FAST")
    want = ["CUSTOM_FAST", "CUSTOM_GPU", "HW_CPU_X86_VMX"]
    assert sorted(box.get_node("node-01").traits) == want
    assert box.remove_node_trait("node-01", "CUSTOM_FAST")
    refuses(exceptions.BadRequestException, box.add_node_trait, "node-01", "gpu")
    box.set_node_traits("node-01", [])


def vifs(box):
    box.attach_vif_to_node("node-01", "5e3f6a1e-0000-4000-8000-000000000001")
    assert isinstance(box.list_node_vifs("node-01"), list)
    box.detach_vif_from_node("node-01", "5e3f6a1e-0000-4000-8000-000000000001")


def enrols_and_deletes(box):
    node = box.create_node(
        name="spare",
        driver="ipmi",
        resource_class="spare",
        driver_info={"ipmi_address": "127.0.0.1", "ipmi_port": 9},
        provision_state="enroll",
    )
    assert node.provision_state == "enroll"
    again = {"name": "spare", "driver": "ipmi"}
    refuses(exceptions.ConflictException, box.create_node, **again)
    port = box.create_port(address="52:54:00:99:00:01", node_id=node.id)
    assert box.find_port(port.id).address == "52:54:00:99:00:01"
    assert [one.id for one in box.ports(node=node.id)] == [port.id]
    box.update_port(port, is_pxe_enabled=False)
    assert not box.get_port(port.id).is_pxe_enabled
    group = box.create_port_group(node_id=node.id, name="bond", address="52:54:00:99:00:09")
    assert group.mode == "active-backup" and group.is_standalone_ports_supported
    assert box.find_port_group("bond").id == group.id
    assert [one.id for one in box.port_groups(node=node.id)] == [group.id]
    box.patch_port(port, [{"op": "add", "path": "/portgroup_uuid", "value": group.id}])
    message = refuses(exceptions.BadRequestException, box.delete_port_group, group)
    assert "contains ports" in message, message
    box.update_port_group(group, extra={"a": 1})
    assert box.get_port_group(group.id, fields=["extra"]).extra == {"a": 1}
    box.delete_port(port)
    box.delete_port_group("bond", ignore_missing=False)
    connector = box.create_volume_connector(
        node_id=node.id, type="iqn", connector_id="iqn.2026-11.example:spare"
    )
    target = box.create_volume_target(
        node_id=node.id,
        volume_type="iscsi",
        boot_index=0,
        volume_id="v",
        properties={"auth_password": "hunter2"},
    )
    assert box.get_volume_target(target.id).properties == {"auth_password": "******"}
    assert box.find_volume_connector(connector.id).type == "iqn"
    assert [one.id for one in box.volume_targets(node=node.id)] == [target.id]
    box.delete_volume_connector(connector, ignore_missing=False)
    box.delete_node("spare", ignore_missing=False)
    # Records that belong to the node are deleted with it.
    refuses(exceptions.NotFoundException, box.get_volume_target, target.id)
    assert box.delete_node("spare") is None


def chassis(box):
    one = box.create_chassis(description="left", extra={"row": 1})
    assert box.get_chassis(one.id).description == "left"
    assert box.update_chassis(one, description="right").description == "right"
    change = [{"op": "add", "path": "/extra/row", "value": 2}]
    assert box.patch_chassis(one, change).extra == {"row": 2}
    assert one.id in [other.id for other in box.chassis(details=True)]
    box.delete_chassis(one, ignore_missing=False)
    refuses(exceptions.NotFoundException, box.get_chassis, one.id)


def templates_runbooks_rules(box):
    step = {"interface": "bios", "step": "apply", "args": {"password": "x"}, "priority": 9}
    one = box.create_deploy_template(name="CUSTOM_FAST", steps=[step])
    assert one.steps[0]["args"] == {"password": "******"}
    assert box.get_deploy_template("CUSTOM_FAST").id == one.id
    assert box.update_deploy_template(one, extra={"a": 1}).extra == {"a": 1}
    twice = {"name": "CUSTOM_X", "steps": [step, step]}
    message = refuses(exceptions.BadRequestException, box.create_deploy_template, **twice)
    assert "Duplicate" in message, message
    assert len(list(box.deploy_templates(details=True))) == 1
    box.delete_deploy_template(one, ignore_missing=False)

    step = {"interface": "bios", "step": "apply", "args": {}, "order": 1}
    one = box.create_runbook(name="CUSTOM_BOOK", steps=[step])
    assert box.get_runbook("CUSTOM_BOOK").id == one.id
    box.set_runbook_traits(one, ["CUSTOM_A"])
    box.add_runbook_trait(one, "CUSTOM_B")
    box.remove_runbook_trait(one, "CUSTOM_A")
    assert box.get_runbook(one.id).traits == ["CUSTOM_B"]
    # By its UUID: the present object would send its traits too.
    change = [{"op": "replace", "path": "/public", "value": True}]
    assert box.patch_runbook(one.id, change).public
    assert len(list(box.runbooks())) == 1
    box.delete_runbook(one, ignore_missing=False)

    rule = {
        "description": "no old machines",
        "conditions": [{"op": "lt", "args": {"values": ["{inventory[cpu][count]}", 2]}}],
        "actions": [{"op": "fail", "args": {"msg": "too old"}}],
    }
    message = refuses(exceptions.HttpException, box.create_inspection_rule, **rule)
    assert "does not run inspection rules" in message, message
    assert list(box.inspection_rules()) == []
    rule["actions"] = [{"op": "dance", "args": {}}]
    refuses(exceptions.BadRequestException, box.create_inspection_rule, **rule)


def allocates_and_deploys(box):
    """Two machines are freed, two of three allocations succeed, one is deployed and freed."""
    names = ["node-02", "node-03"]
    for name in names:
        box.set_node_provision_state(name, "deleted")
    box.wait_for_nodes_provision_state(names, "available", timeout=TIMEOUT_S)
    for name in names:
        assert box.update_node(name, resource_class="big").resource_class == "big"
    none = box.create_allocation(resource_class="none")
    message = refuses(exceptions.ResourceFailure, box.wait_for_allocation, none, timeout=TIMEOUT_S)
    assert "no available nodes match the resource class none" in message, message
    box.delete_allocation(none, ignore_missing=False)

    # At the same time, over separate connections.
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        claim = lambda at: box.create_allocation(resource_class="big", name=f"claim-{at}")
        claims = list(pool.map(claim, range(3)))
    claims = [box.wait_for_allocation(one, timeout=TIMEOUT_S, ignore_error=True) for one in claims]
    winners = [one for one in claims if one.state == "active"]
    assert len({one.node_id for one in winners}) == len(winners) == 2, claims
    (loser,) = [one for one in claims if one.state == "error"]
    box.delete_allocation(loser, ignore_missing=False)

    one = winners[0]
    assert box.get_allocation(one.name).id == one.id
    assert box.update_allocation(one, extra={"for": "tests"}).extra == {"for": "tests"}
    assert [other.id for other in box.allocations(node=one.node_id)] == [one.id]
    node = box.get_node(one.node_id)
    assert node.instance_id == node.allocation_id == one.id
    box.update_node(node, instance_info={"image_source": "demo.raw"})
    node = box.set_node_provision_state(node, "active", wait=True, timeout=TIMEOUT_S)
    assert node.provision_state == "active" and node.last_error is None
    message = refuses(exceptions.ConflictException, box.delete_allocation, one)
    assert "is active" in message, message
    box.set_node_provision_state(node, "deleted", wait=True, timeout=TIMEOUT_S)
    refuses(exceptions.NotFoundException, box.get_allocation, one.id)
    assert box.get_node(node.id).instance_id is None

    box.delete_allocation(winners[1], ignore_missing=False)
    assert box.get_node(winners[1].node_id).allocation_id is None


def goes_round(box):
    """The verbs between available and active that no other step needs."""
    for target, state in [
        ("manage", "manageable"),
        ("inspect", "manageable"),
        ("provide", "available"),
    ]:
        node = box.set_node_provision_state(
            "node-03", target, wait=True, timeout=TIMEOUT_S
        )
        assert node.provision_state == state, node
    refuses(exceptions.BadRequestException, box.set_node_provision_state, "node-03", "abort")


def lives_without_hardware(box):
    """The whole lifecycle of a node with fake hardware, with a config drive."""
    box.create_node(name="fake", driver="fake-hardware", provision_state="available")
    node = box.get_node("fake")
    assert (node.power_interface, node.provision_state) == ("fake", "available")
    box.set_node_power_state("fake", "power on", wait=True, timeout=TIMEOUT_S)
    drive = {"meta_data": {"hostname": "one"}, "user_data": "#cloud-config"}
    for target, state, more in [
        ("active", "active", {"config_drive": drive}),
        ("rebuild", "active", {"config_drive": drive}),
        ("rescue", "rescue", {"rescue_password": "aWildPassword"}),
        ("unrescue", "active", {}),
        ("deleted", "available", {}),
        ("manage", "manageable", {}),
        ("inspect", "manageable", {}),
        ("provide", "available", {}),
    ]:
        # The library does not know what to wait for after every verb.
        box.set_node_provision_state("fake", target, **more)
        box.wait_for_nodes_provision_state(["fake"], state, timeout=TIMEOUT_S)
    box.delete_node("fake", ignore_missing=False)
    refuses(exceptions.NotFoundException, box.get_node, "fake")


STEPS = [
    lists_and_finds,
    patches,
    manages_a_running_node,
    traits,
    vifs,
    enrols_and_deletes,
    chassis,
    templates_runbooks_rules,
    allocates_and_deploys,
    goes_round,
    lives_without_hardware,
]


def main():
    box = connect(sys.argv[1])
    failed = 0
    for step in STEPS:
        try:
            step(box)
            print(f"ok {step.__name__}", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED {step.__name__}", flush=True)
            traceback.print_exc()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
