"""Calls of openstacksdk and python-ironicclient, made to both: the same result or the same error."""

import compare
import openstack
import openstack.connection
import world as w
from ironicclient import client as ironicclient
from service import Answer
from world import uid

NODE, PORT, GROUP, CHASSIS = uid(401), uid(402), uid(403), uid(404)
MICROVERSIONS = ("1.1", "1.38", "1.72", "1.95", "1.115")


def plain(value):
    """What a client returns, as JSON has it."""
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    if isinstance(value, dict):
        # The SDK adds where it has asked.
        return {str(key): plain(one) for key, one in value.items() if key not in ("location", "allowable_values")}
    if isinstance(value, (list, tuple)) or hasattr(value, "__next__"):
        return [plain(one) for one in value]
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    return str(type(value).__name__)


def sdk(url):
    connection = openstack.connection.Connection(
        auth_type="none", endpoint=url, baremetal_endpoint_override=url, app_name="parity")
    return connection.baremetal


def sdk_calls(api):
    """Names and calls, in their order."""
    yield "create_node", lambda: api.create_node(id=NODE, name="c-node", driver="fake-hardware", resource_class="c")
    yield "create_port", lambda: api.create_port(id=PORT, node_id=NODE, address="52:54:00:cc:00:01")
    yield "create_port_group", lambda: api.create_port_group(id=GROUP, node_id=NODE, name="c-group")
    yield "create_chassis", lambda: api.create_chassis(id=CHASSIS, description="c")
    yield "nodes", lambda: [one for one in api.nodes() if one.id == NODE]
    yield "nodes detail", lambda: [one for one in api.nodes(details=True, resource_class="c")]
    yield "get_node", lambda: api.get_node("c-node")
    yield "find_node", lambda: api.find_node("c-node")
    yield "find_node none", lambda: api.find_node("c-none")
    yield "get_node none", lambda: api.get_node("c-none")
    yield "update_node", lambda: api.update_node(NODE, extra={"a": 1})
    yield "patch_node", lambda: api.patch_node(NODE, [{"op": "add", "path": "/extra/b", "value": 2}])
    yield "ports", lambda: list(api.ports(node=NODE))
    yield "ports details", lambda: list(api.ports(details=True, node=NODE))
    yield "get_port", lambda: api.get_port(PORT)
    yield "update_port", lambda: api.update_port(PORT, extra={"a": 1})
    yield "port_groups", lambda: list(api.port_groups(node=NODE))
    yield "port_groups details", lambda: list(api.port_groups(details=True))
    yield "drivers", lambda: sorted(one.name for one in api.drivers())
    yield "get_driver", lambda: api.get_driver("fake-hardware").name
    yield "conductors", lambda: list(api.conductors())
    yield "get_conductor", lambda: api.get_conductor("parity").name
    yield "validate_node", lambda: sorted(api.validate_node(NODE, required=None))
    yield "set_node_provision_state manage", lambda: api.set_node_provision_state(NODE, "manage", wait=True)
    yield "set_node_power_state", lambda: api.set_node_power_state(NODE, "power on", wait=True)
    yield "set_node_boot_device", lambda: api.set_node_boot_device(NODE, "pxe", persistent=True)
    yield "get_node_boot_device", lambda: sorted(api.get_node_boot_device(NODE))
    yield "get_node_supported_boot_devices", lambda: api.get_node_supported_boot_devices(NODE)
    yield "set_node_traits", lambda: api.set_node_traits(NODE, ["CUSTOM_C"])
    yield "add_node_trait", lambda: api.add_node_trait(NODE, "CUSTOM_D")
    yield "remove_node_trait", lambda: api.remove_node_trait(NODE, "CUSTOM_D")
    yield "set_node_maintenance", lambda: api.set_node_maintenance(NODE, "why")
    yield "unset_node_maintenance", lambda: api.unset_node_maintenance(NODE)
    yield "attach_vif_to_node", lambda: api.list_node_vifs(NODE)
    yield "provision provide", lambda: api.set_node_provision_state(NODE, "provide", wait=True)
    yield "create_allocation", lambda: api.create_allocation(name="c-a", resource_class="c").state
    yield "wait_for_allocation", lambda: api.wait_for_allocation("c-a").state
    yield "allocations", lambda: [one.name for one in api.allocations()]
    yield "delete_allocation", lambda: api.delete_allocation("c-a")
    yield "volume_connectors", lambda: list(api.volume_connectors(details=True))
    yield "volume_targets", lambda: list(api.volume_targets(details=True))
    yield "deploy_templates", lambda: list(api.deploy_templates(details=True))
    yield "list_node_firmware", lambda: api.list_node_firmware(NODE)
    yield "get_node_inventory", lambda: api.get_node_inventory(NODE)
    yield "wrong verb", lambda: api.set_node_provision_state(NODE, "rescue", rescue_password="x")
    yield "delete_port_group", lambda: api.delete_port_group(GROUP)
    yield "delete_port", lambda: api.delete_port(PORT)
    yield "delete_chassis", lambda: api.delete_chassis(CHASSIS)
    yield "delete_node", lambda: api.delete_node(NODE)
    yield "delete_node again", lambda: api.delete_node(NODE, ignore_missing=False)


def command_calls(api):
    """What the `baremetal` command calls for its lists and shows."""
    node = w.FRESH
    yield "node.list", lambda: [one.to_dict() for one in api.node.list()]
    yield "node.list detail", lambda: [one.to_dict() for one in api.node.list(detail=True)]
    yield "node.get", lambda: api.node.get(node)
    yield "node.states", lambda: api.node.states(node)
    yield "node.validate", lambda: api.node.validate(w.FREE)
    yield "node.list_ports", lambda: [one.to_dict() for one in api.port.list(node=node)]
    yield "port.list", lambda: [one.to_dict() for one in api.port.list(detail=True)]
    yield "port.get_by_address", lambda: api.port.get_by_address("52:54:00:aa:00:00")
    yield "portgroup.list", lambda: [one.to_dict() for one in api.portgroup.list(detail=True)]
    yield "chassis.list", lambda: [one.to_dict() for one in api.chassis.list()]
    yield "driver.list", lambda: sorted(one.name for one in api.driver.list())
    yield "conductor.list", lambda: [one.to_dict() for one in api.conductor.list()]
    yield "allocation.list", lambda: [one.to_dict() for one in api.allocation.list()]
    yield "deploy_template.list", lambda: [one.to_dict() for one in api.deploy_template.list()]
    yield "node.get_traits", lambda: api.node.get_traits(w.FREE)
    yield "node.get none", lambda: api.node.get("c-none")
    yield "node.get_console", lambda: api.node.get_console(w.IPMI)


def outcome(call):
    """The result or the error of a call, as an answer that can be compared."""
    try:
        return Answer(200, {}, "", plain(call()))
    except Exception as error:  # Whatever a client raises is what its user sees.
        status = getattr(error, "http_status", None) or getattr(error, "status_code", None)
        return Answer(200, {}, "", {"error": type(error).__name__, "status": status})


def compare_calls(both, what, version, calls):
    for (name, theirs), (_, ours) in zip(*calls):
        their, our = outcome(theirs), outcome(ours)
        both.report.requests += 1
        found = list(compare.differences(their, our, both.urls))
        both.report.equal += not found
        for sentence, example in found:
            both.report.note(f"{what} {name}", "", sentence, version, example)


def run(both):
    compare_calls(both, "openstacksdk", 115, [sdk_calls(sdk(url)) for url in both.urls])
    for version in MICROVERSIONS:
        apis = [ironicclient.get_client(1, endpoint=url, auth_type="none", os_ironic_api_version=version)
                for url in both.urls]
        compare_calls(both, "ironicclient", int(version[2:]), [command_calls(api) for api in apis])
