"""The records that both have when the comparison begins."""

from service import Request


def uid(number):
    return f"aaaaaaaa-0000-4000-8000-{number:012d}"


# Nodes by what they are.
FRESH, MANAGED, FREE, BUSY, BROKEN, IPMI, REDFISH = (uid(number) for number in range(1, 8))
PORT, MEMBER, IPMI_PORT = uid(21), uid(22), uid(23)
GROUP, OTHER_GROUP = uid(31), uid(32)
CHASSIS = uid(41)
CONNECTOR, TARGET = uid(51), uid(52)
ALLOCATION = uid(61)
TEMPLATE = uid(71)
RUNBOOK = uid(81)
UNKNOWN = uid(999)


def settled(ident):
    return lambda both: both.settle(ident)


def removed(path):
    """Deletes what only one of the two may have created: not compared."""
    def delete(both):
        for service in both.services:
            service.send(Request("DELETE", path))
    return delete


def verb(ident, target, **more):
    yield Request("PUT", f"/v1/nodes/{ident}/states/provision", body={"target": target, **more},
                  label=f"verb {target}")
    yield settled(ident)


def node(ident, name, driver="fake-hardware", **more):
    yield Request("POST", "/v1/nodes", body={"uuid": ident, "name": name, "driver": driver, **more},
                  label=f"world {driver}")


def requests():
    yield Request("POST", "/v1/chassis", body={"uuid": CHASSIS, "description": "rack", "extra": {"a": 1}})
    yield from node(FRESH, "p-fresh", extra={"a": {"b": [1, 2]}}, properties={"cpu_arch": "x86_64"},
                    chassis_uuid=CHASSIS, lessee="l", description="first", shard="s1",
                    resource_class="small", conductor_group="")
    # Without authentication Ironic refuses the owner of a new node, but not that of an old one.
    yield Request("PATCH", f"/v1/nodes/{FRESH}", body=[{"op": "add", "path": "/owner", "value": "o"}])
    yield from node(MANAGED, "p-managed", resource_class="small", disable_power_off=False)
    yield from node(FREE, "p-free", resource_class="large", automated_clean=False)
    yield from node(BUSY, "p-busy", resource_class="large", automated_clean=False,
                    instance_info={"image_source": "http://127.0.0.1:1/i.raw", "image_checksum": "0" * 64,
                                   "display_name": "web"})
    yield from node(BROKEN, "p-broken", parent_node=MANAGED)
    yield from node(IPMI, "p-ipmi", "ipmi", driver_info={"ipmi_address": "127.0.0.9",
                                                         "ipmi_username": "u", "ipmi_password": "p"})
    yield from node(REDFISH, "p-redfish", "redfish",
                    driver_info={"redfish_address": "http://127.0.0.9:1", "redfish_password": "p"})
    for number, (port, owner) in enumerate([(PORT, FRESH), (MEMBER, FRESH), (IPMI_PORT, IPMI)]):
        yield Request("POST", "/v1/ports", body={"uuid": port, "node_uuid": owner,
                                                 "address": f"52:54:00:AA:00:0{number}"}, label="world")
    for group, name in [(GROUP, "p-group"), (OTHER_GROUP, "p-other")]:
        yield Request("POST", "/v1/portgroups", body={"uuid": group, "node_uuid": FRESH, "name": name,
                                                      "address": None}, label="world")
    yield Request("PATCH", f"/v1/ports/{MEMBER}", body=[
        {"op": "add", "path": "/portgroup_uuid", "value": GROUP},
        {"op": "add", "path": "/extra/x", "value": 1}], label="world")
    yield Request("PUT", f"/v1/nodes/{FREE}/traits", body={"traits": ["CUSTOM_FAST", "HW_CPU_X86_VMX"]},
                  label="world")
    yield Request("POST", "/v1/volume/connectors", body={
        "uuid": CONNECTOR, "node_uuid": FRESH, "type": "iqn", "connector_id": "iqn.2026-01.test:a"})
    yield Request("POST", "/v1/volume/targets", body={
        "uuid": TARGET, "node_uuid": FRESH, "volume_type": "iscsi", "boot_index": 0, "volume_id": "v1",
        "properties": {"target_iqn": "i", "auth_password": "secret"}})
    steps = [{"interface": "raid", "step": "apply_configuration", "args": {}, "priority": 10}]
    yield Request("POST", "/v1/deploy_templates", body={"uuid": TEMPLATE, "name": "CUSTOM_FAST", "steps": steps})
    steps = [{"interface": "raid", "step": "delete_configuration", "args": {}, "order": 1}]
    yield Request("POST", "/v1/runbooks", body={"uuid": RUNBOOK, "name": "CUSTOM_BOOK", "steps": steps})
    for ident in (MANAGED, FREE, BUSY):
        yield from verb(ident, "manage")
    for ident in (FREE, BUSY):
        yield from verb(ident, "provide")
    yield from verb(BUSY, "active")
    yield Request("PUT", f"/v1/nodes/{BROKEN}/maintenance", body={"reason": "broken"})
    yield Request("POST", "/v1/allocations", body={"uuid": ALLOCATION, "name": "p-spare",
                                                   "resource_class": "none-such"})
    yield Request("PUT", f"/v1/nodes/{MANAGED}/states/power", body={"target": "power on"}, label="world")
    yield settled(MANAGED)
