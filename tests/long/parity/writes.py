"""Writes that are wrong, and right ones beside them: each is sent to both as it stands."""

import reads
import world as w
from service import Request

NODES = "/v1/nodes"
LONG = "x" * 300
TEXT_256 = "y" * 256
HUGE = "z" * 5000


def post(path, label, version=115, **body):
    return Request("POST", path, version, body, label=label)


def patch(path, label, *changes, version=115):
    """Changes are (op, path[, value])."""
    body = [dict(zip(("op", "path", "value"), change)) for change in changes]
    return Request("PATCH", path, version, body, label=label)


def raw(method, path, data, label):
    return Request(method, path, raw=data, label=label)


def new_nodes():
    ok = {"driver": "fake-hardware"}
    for label, body in {
        "no driver": {}, "null driver": {"driver": None}, "driver 5": {"driver": 5},
        "driver ''": {"driver": ""}, "driver odd": {"driver": "odd"}, "driver long": {"driver": LONG},
        "name 5": {**ok, "name": 5}, "name with space": {**ok, "name": "a b"}, "name slash": {**ok, "name": "a/b"},
        "name ''": {**ok, "name": ""}, "name uuid": {**ok, "name": w.UNKNOWN}, "name long": {**ok, "name": LONG},
        "name detail": {**ok, "name": "detail"}, "name taken": {**ok, "name": "p-fresh"},
        "name states": {**ok, "name": "states"}, "uuid x": {**ok, "uuid": "x"}, "uuid taken": {**ok, "uuid": w.FRESH},
        "uuid 5": {**ok, "uuid": 5}, "unknown field": {**ok, "nonsense": 1}, "extra list": {**ok, "extra": []},
        "extra text": {**ok, "extra": "x"}, "properties text": {**ok, "properties": "x"},
        "driver_info list": {**ok, "driver_info": [1]}, "instance_info text": {**ok, "instance_info": "x"},
        "resource_class long": {**ok, "resource_class": "r" * 81}, "resource_class 5": {**ok, "resource_class": 5},
        "owner long": {**ok, "lessee": TEXT_256}, "description long": {**ok, "description": HUGE},
        "description 5": {**ok, "description": 5}, "chassis x": {**ok, "chassis_uuid": "x"},
        "chassis unknown": {**ok, "chassis_uuid": w.UNKNOWN}, "instance_uuid x": {**ok, "instance_uuid": "x"},
        "conductor_group bad": {**ok, "conductor_group": "a b"}, "conductor_group long": {**ok, "conductor_group": TEXT_256},
        "conductor_group 5": {**ok, "conductor_group": 5}, "conductor_group unknown": {**ok, "conductor_group": "far"},
        "automated_clean x": {**ok, "automated_clean": "x"}, "automated_clean 5": {**ok, "automated_clean": 5},
        "maintenance x": {**ok, "maintenance": "x"}, "protected": {**ok, "protected": True},
        "protected_reason": {**ok, "protected_reason": "x"}, "retired_reason": {**ok, "retired_reason": "x"},
        "provision_state": {**ok, "provision_state": "active"}, "power_state": {**ok, "power_state": "power on"},
        "traits": {**ok, "traits": []}, "network_data odd": {**ok, "network_data": {"odd": 1}},
        "network_data links": {**ok, "network_data": {"links": [{"id": 5}], "networks": [], "services": []}},
        "network_data text": {**ok, "network_data": "x"}, "shard long": {**ok, "shard": TEXT_256},
        "parent x": {**ok, "parent_node": "no-such"}, "parent unknown": {**ok, "parent_node": w.UNKNOWN},
        "disable_power_off x": {**ok, "disable_power_off": "x"}, "deploy odd": {**ok, "deploy_interface": "odd"},
        "deploy 5": {**ok, "deploy_interface": 5}, "boot redfish": {**ok, "boot_interface": "redfish-virtual-media"},
        "retired x": {**ok, "retired": "x"}, "lessee 5": {**ok, "lessee": 5}, "instance_name long": {**ok, "instance_name": TEXT_256},
        "clean_step": {**ok, "clean_step": {}}, "id": {**ok, "id": 5},
    }.items():
        yield post(NODES, label, **body)
    for field, since, value in [
        ("name", 5, "p-old"), ("resource_class", 21, "x"), ("network_interface", 20, "noop"),
        ("deploy_interface", 31, "fake"), ("storage_interface", 33, "noop"), ("rescue_interface", 38, "no-rescue"),
        ("bios_interface", 40, "fake"), ("conductor_group", 46, ""), ("automated_clean", 47, True),
        ("owner", 50, None), ("description", 51, "x"), ("retired", 61, False), ("lessee", 65, "x"),
        ("network_data", 66, {}), ("shard", 82, "x"), ("parent_node", 83, None), ("firmware_interface", 86, "no-firmware"),
        ("disable_power_off", 95, True), ("instance_name", 104, "x")]:
        yield post(NODES, f"{field} too new", since - 1, driver="fake-hardware", uuid=w.UNKNOWN, **{field: value})
        yield w.removed(f"{NODES}/{w.UNKNOWN}")
    for data, label in [(b"{", "half JSON"), (b"", "no body"), (b"[]", "a list"), (b'"x"', "a text"), (b"null", "null"),
                        (b"5", "a number")]:
        yield raw("POST", NODES, data, label)
        yield raw("PATCH", f"{NODES}/{w.FRESH}", data, label)
        yield raw("PUT", f"{NODES}/{w.FRESH}/states/provision", data, label)
        yield raw("PUT", f"{NODES}/{w.FRESH}/states/power", data, label)
        yield raw("POST", "/v1/ports", data, label)


def node_patches():
    path = f"{NODES}/{w.FRESH}"
    for label, *changes in [
        ("nothing",), ("op test", ("test", "/extra", {})), ("op move", ("move", "/extra", {})), ("op odd", ("odd", "/extra", 1)),
        ("path without slash", ("add", "extra", {})), ("path empty", ("add", "", {})), ("path unknown", ("add", "/nonsense", 1)),
        ("no value", ("add", "/extra/x")), ("remove missing", ("remove", "/extra/none")),
        ("replace missing", ("replace", "/extra/none", 1)), ("remove deep missing", ("remove", "/extra/none/x")),
        ("add deep missing", ("add", "/extra/none/x", 1)), ("uuid", ("replace", "/uuid", w.UNKNOWN)),
        ("provision_state", ("replace", "/provision_state", "active")), ("power_state", ("replace", "/power_state", "x")),
        ("traits", ("add", "/traits", [])), ("remove driver", ("remove", "/driver")), ("driver odd", ("replace", "/driver", "odd")),
        ("driver null", ("replace", "/driver", None)), ("driver 5", ("replace", "/driver", 5)),
        ("name uuid", ("replace", "/name", w.UNKNOWN)), ("name bad", ("replace", "/name", "a b")), ("name 5", ("replace", "/name", 5)),
        ("name taken", ("replace", "/name", "p-free")), ("name ''", ("replace", "/name", "")), ("extra text", ("replace", "/extra", "x")),
        ("extra null", ("replace", "/extra", None)), ("properties list", ("replace", "/properties", [])),
        ("resource_class long", ("replace", "/resource_class", "r" * 81)), ("description long", ("replace", "/description", HUGE)),
        ("instance_uuid x", ("add", "/instance_uuid", "x")), ("chassis x", ("replace", "/chassis_uuid", "x")),
        ("chassis unknown", ("replace", "/chassis_uuid", w.UNKNOWN)), ("chassis remove", ("remove", "/chassis_uuid")),
        ("conductor_group bad", ("replace", "/conductor_group", "a b")), ("conductor_group far", ("replace", "/conductor_group", "far")),
        ("conductor_group null", ("replace", "/conductor_group", None)), ("protected", ("replace", "/protected", True)),
        ("protected_reason", ("add", "/protected_reason", "x")), ("retired_reason", ("add", "/retired_reason", "x")),
        ("maintenance x", ("replace", "/maintenance", "x")), ("deploy odd", ("replace", "/deploy_interface", "odd")),
        ("remove deploy", ("remove", "/deploy_interface")), ("network_data odd", ("add", "/network_data", {"odd": 1})),
        ("network_data text", ("add", "/network_data", "x")), ("parent odd", ("add", "/parent_node", "no-such")),
        ("parent itself", ("add", "/parent_node", w.FRESH)), ("automated_clean x", ("add", "/automated_clean", "x")),
        ("driver_internal_info", ("add", "/driver_internal_info/x", 1)), ("last_error", ("remove", "/last_error")),
        ("reservation", ("remove", "/reservation")), ("owner long", ("add", "/lessee", TEXT_256)),
        ("boot_mode", ("add", "/boot_mode", "uefi")), ("allocation_uuid", ("add", "/allocation_uuid", w.UNKNOWN)),
        ("remove name", ("remove", "/name")), ("name back", ("add", "/name", "p-fresh")), ("list index", ("add", "/extra/a/b/0", 0)),
        ("list end", ("add", "/extra/a/b/-", 9)), ("list beyond", ("add", "/extra/a/b/99", 9)), ("list remove", ("remove", "/extra/a/b/0")),
        ("list word", ("replace", "/extra/a/b/x", 7)), ("list outside", ("replace", "/extra/a/b/9", 7)), ("list zero", ("replace", "/extra/a/b/01", 7)),
        ("escaped", ("add", "/extra/a~1b", 1)), ("slash at the end", ("add", "/extra/", 1)), ("double slash", ("add", "/extra//x", 1)),
        ("no path", ("add",)), ("one good one bad", ("add", "/extra/good", 1), ("remove", "/extra/bad")),
        ("display_name", ("add", "/instance_info/display_name", "web9")),
    ]:
        yield patch(path, label, *changes)
    yield Request("PATCH", path, body=[{"path": "/extra/x", "value": 1}], label="without op")
    yield Request("PATCH", path, body=[{"op": "add", "path": "/extra/x", "value": 1, "from": "/y"}], label="with from")
    yield Request("PATCH", path, body=[5], label="number in the list")
    for field, since, value in [
        ("/name", 5, "p-renamed"), ("/resource_class", 21, "x"), ("/network_interface", 20, "noop"), ("/deploy_interface", 31, "fake"),
        ("/conductor_group", 46, ""), ("/automated_clean", 47, True), ("/protected", 48, False), ("/owner", 50, "x"),
        ("/description", 51, "x"), ("/retired", 61, False), ("/lessee", 65, "x"), ("/network_data", 66, {}), ("/shard", 82, "x"),
        ("/parent_node", 83, None), ("/disable_power_off", 95, True), ("/instance_name", 104, "x")]:
        yield patch(path, f"{field} too new", ("add", field, value), version=since - 1)
    yield patch(f"{NODES}/{w.BUSY}", "driver of an active node", ("replace", "/driver", "ipmi"))
    yield patch(f"{NODES}/{w.BUSY}", "interface of an active node", ("replace", "/deploy_interface", "direct"))
    yield patch(f"{NODES}/{w.BUSY}", "class of an active node", ("replace", "/resource_class", "x"))
    yield patch(f"{NODES}/{w.UNKNOWN}", "unknown node", ("add", "/extra/x", 1))
    yield patch(f"{NODES}/no-such", "unknown name", ("add", "/extra/x", 1))
    yield Request("PATCH", f"{path}?reset_interfaces=true", body=[{"op": "add", "path": "/extra/x", "value": 1}], label="reset without driver")
    yield Request("PATCH", f"{path}?reset_interfaces=x", body=[{"op": "replace", "path": "/driver", "value": "fake-hardware"}], label="reset x")
    yield Request("PATCH", f"{path}?nonsense=1", body=[], label="argument")


def verbs():
    for ident in (w.FRESH, w.FREE, w.BUSY, w.MANAGED):
        for body in ({}, {"target": "odd"}, {"target": 5}, {"target": None}, {"target": "abort"}, {"target": "unhold"},
                     {"target": "unrescue"}, {"target": "adopt"} if ident != w.MANAGED else {"target": "odd2"},
                     {"target": "rescue"}, {"target": "rescue", "rescue_password": ""},
                     {"target": "provide"} if ident != w.MANAGED else {"target": "odd"}, {"target": "clean"}, {"target": "service"},
                     {"target": "clean", "clean_steps": "x"}, {"target": "clean", "clean_steps": [{"step": "x"}]},
                     {"target": "clean", "clean_steps": [{"interface": "odd", "step": "x"}]},
                     {"target": "manage", "clean_steps": []}, {"target": "manage", "configdrive": "x"},
                     {"target": "active", "configdrive": 5}, {"target": "active", "configdrive": {"odd": 1}},
                     {"target": "active", "deploy_steps": [{"interface": "deploy", "step": "x"}]},
                     {"target": "active", "deploy_steps": "x"}, {"target": "manage", "nonsense": 1},
                     {"target": "clean", "clean_steps": [{"interface": "deploy", "step": "x"}], "disable_ramdisk": "x"},
                     {"target": "clean", "runbook": "no-such"}):
            label = f"{ident[-1]} {body}"
            yield Request("PUT", f"{NODES}/{ident}/states/provision", body=body, label=label)
            yield w.settled(ident)
    for target, since in [("manage", 4), ("provide", 4), ("inspect", 6), ("abort", 13), ("clean", 15), ("adopt", 17), ("rescue", 38),
                          ("unrescue", 38), ("deploy", 73), ("undeploy", 73), ("unhold", 85), ("service", 87)]:
        if target not in ("manage", "provide"):
            yield Request("PUT", f"{NODES}/{w.IPMI}/states/provision", since - 1, {"target": target}, label=f"{target} too new")
            yield Request("PUT", f"{NODES}/{w.IPMI}/states/provision", since, {"target": target}, label=f"{target} bare")
    power = f"{NODES}/{w.MANAGED}/states/power"
    for body in ({}, {"target": "odd"}, {"target": 5}, {"target": "power on", "timeout": 0}, {"target": "power on", "timeout": -1},
                 {"target": "power on", "timeout": "x"}, {"target": "power on", "nonsense": 1}, {"target": "power on"},
                 {"target": "soft power off"}, {"target": "rebooting"}, {"target": "soft rebooting"}, {"target": "power off"}):
        yield Request("PUT", power, body=body, label=str(body))
        yield w.settled(w.MANAGED)
    yield Request("PUT", power, 26, {"target": "soft power off"}, label="soft too new")
    yield Request("PUT", power, 26, {"target": "power on", "timeout": 5}, label="timeout too new")
    yield w.settled(w.MANAGED)
    for name, since, bodies in [
        ("boot_mode", 76, [{}, {"target": "odd"}, {"target": 5}]), ("secure_boot", 76, [{}, {"target": "odd"}, {"target": 5}]),
        ("raid", 12, [{}, {"logical_disks": []}, {"logical_disks": [{}]}, {"logical_disks": [{"size_gb": 10}]},
                      {"logical_disks": [{"size_gb": "x", "raid_level": "1"}]}, {"logical_disks": [{"size_gb": 10, "raid_level": "9"}]},
                      {"logical_disks": "x"}, {"logical_disks": [{"size_gb": 10, "raid_level": "1", "odd": 1}]},
                      {"logical_disks": [{"size_gb": 10, "raid_level": "1"}]}]),
        ("console", 1, [{}, {"enabled": "odd"}, {"enabled": 5}, {"enabled": True}, {"enabled": False}])]:
        for body in bodies:
            yield Request("PUT", f"{NODES}/{w.MANAGED}/states/{name}", body=body, label=str(body))
            yield w.settled(w.MANAGED)
        yield Request("PUT", f"{NODES}/{w.MANAGED}/states/{name}", max(since - 1, 1), {}, label="too new")
    for ident in (w.IPMI, w.UNKNOWN):
        yield Request("PUT", f"{NODES}/{ident}/states/console", body={"enabled": True}, label=ident[-1])
        yield Request("GET", f"{NODES}/{ident}/states/console", label=ident[-1])


def below_nodes():
    base = f"{NODES}/{w.MANAGED}"
    for body in ({}, {"reason": 5}, {"reason": "x", "nonsense": 1}, {"reason": "x"}):
        yield Request("PUT", f"{base}/maintenance", body=body, label=str(body))
    yield Request("DELETE", f"{base}/maintenance")
    for body in ({}, {"boot_device": "odd"}, {"boot_device": 5}, {"boot_device": "pxe", "persistent": "odd"},
                 {"boot_device": "pxe", "nonsense": 1}, {"boot_device": "pxe", "persistent": True}, {"boot_device": "disk"}):
        yield Request("PUT", f"{base}/management/boot_device", body=body, label=str(body))
        yield Request("GET", f"{base}/management/boot_device", label=str(body))
    for body in ({}, {"state": "odd"}, {"state": 5}, {"state": "on"}, {"state": "OFF"}):
        yield Request("PUT", f"{base}/management/indicators/led@system", body=body, label=str(body))
        yield Request("PUT", f"{base}/management/indicators/odd@system", body=body, label=str(body))
    yield Request("PUT", f"{base}/management/inject_nmi", body={})
    yield Request("PUT", f"{base}/management/inject_nmi", 28, {}, label="too new")
    for body in ({}, {"traits": "x"}, {"traits": ["odd"]}, {"traits": ["CUSTOM_" + "A" * 300]}, {"traits": ["HW_CPU_X86_NONSENSE"]},
                 {"traits": [5]}, {"traits": ["CUSTOM_a"]}, {"traits": ["CUSTOM_A"] * 60}, {"traits": [f"CUSTOM_{n}" for n in range(51)]},
                 {"traits": ["CUSTOM_A", "CUSTOM_B"]}, {"traits": [], "nonsense": 1}):
        yield Request("PUT", f"{base}/traits", body=body, label=str(body)[:60])
    for trait in ("CUSTOM_C", "odd", "HW_NONSENSE", "HW_CPU_X86_AVX2", "CUSTOM_C"):
        yield Request("PUT", f"{base}/traits/{trait}", label=trait)
    yield Request("PUT", f"{base}/traits/CUSTOM_D", body={"x": 1}, label="with a body")
    for trait in ("CUSTOM_C", "CUSTOM_NONE", "odd"):
        yield Request("DELETE", f"{base}/traits/{trait}", label=trait)
    for version in (1, 36):
        for method, path in (("PUT", "traits"), ("PUT", "traits/CUSTOM_A"), ("DELETE", "traits"), ("DELETE", "traits/CUSTOM_A"), ("GET", "traits")):
            yield Request(method, f"{base}/{path}", version, {"traits": []} if method == "PUT" else None, label="too new")
    yield Request("DELETE", f"{base}/traits")
    for body in ({}, {"id": 5}, {"id": ""}, {"id": "x"}, {"id": "x", "port_uuid": w.PORT}, {"id": "x", "port_uuid": w.PORT, "portgroup_uuid": w.GROUP}):
        yield Request("POST", f"{base}/vifs", body=body, label=str(body))
    yield Request("DELETE", f"{base}/vifs/x")
    for body in ({}, {"device_type": "odd", "image_url": "http://x/y"}, {"device_type": "cdrom"}, {"device_type": "cdrom", "image_url": 5},
                 {"device_type": "cdrom", "image_url": "x", "nonsense": 1}):
        yield Request("POST", f"{base}/vmedia", body=body, label=str(body))
    yield Request("DELETE", f"{base}/vmedia?device_types=odd", label="odd")
    for method in ("GET", "POST", "PUT", "DELETE"):
        yield Request(method, f"{base}/vendor_passthru?method=odd", body=None if method in ("GET", "DELETE") else {}, label="odd")
        yield Request(method, f"{base}/vendor_passthru/odd", body=None if method in ("GET", "DELETE") else {}, label="odd path")
        yield Request(method, f"{base}/vendor_passthru", body=None if method in ("GET", "DELETE") else {}, label="none")
        yield Request(method, "/v1/drivers/fake-hardware/vendor_passthru?method=odd", body=None if method in ("GET", "DELETE") else {}, label="odd")
    # Requests to a BMC whose address or port is missing or wrong.
    lone = "aaaaaaaa-0000-4000-8000-000000000231"
    for driver, info in (("ipmi", {}), ("ipmi", {"ipmi_address": "127.0.0.9", "ipmi_port": "x"}), ("redfish", {})):
        yield post(NODES, f"lone {driver}", uuid=lone, driver=driver, driver_info=info)
        for method, path, body in (("PUT", "states/power", {"target": "power on"}), ("GET", "management/boot_device", None),
                                   ("PUT", "management/boot_device", {"boot_device": "pxe"})):
            yield Request(method, f"{NODES}/{lone}/{path}", body=body, label=f"{driver} {info}")
        yield w.removed(f"{NODES}/{lone}")
    for number, path in [(w.BUSY, ""), (w.BUSY, "/bios"), (w.UNKNOWN, "")]:
        yield Request("DELETE", f"{NODES}/{number}{path}", label=number[-1])


def ports():
    ok = {"node_uuid": w.MANAGED, "address": "52:54:00:bb:00:01"}
    made = "aaaaaaaa-0000-4000-8000-000000000201"
    for label, body in {
        "nothing": {}, "no node": {"address": "52:54:00:bb:00:01"}, "no address": {"node_uuid": w.MANAGED}, "address x": {**ok, "address": "x"},
        "address 5": {**ok, "address": 5}, "address taken": {**ok, "address": "52:54:00:aa:00:00"}, "address TAKEN": {**ok, "address": "52:54:00:AA:00:00"},
        "node x": {**ok, "node_uuid": "x"}, "node name": {**ok, "node_uuid": "p-managed"}, "node unknown": {**ok, "node_uuid": w.UNKNOWN},
        "node 5": {**ok, "node_uuid": 5}, "unknown field": {**ok, "nonsense": 1}, "extra text": {**ok, "extra": "x"}, "uuid x": {**ok, "uuid": "x"},
        "uuid taken": {**ok, "uuid": w.PORT}, "name bad": {**ok, "name": "a b"}, "name uuid": {**ok, "name": w.UNKNOWN}, "pxe_enabled x": {**ok, "pxe_enabled": "x"},
        "pxe_enabled 5": {**ok, "pxe_enabled": 5}, "llc text": {**ok, "local_link_connection": "x"}, "llc unknown": {**ok, "local_link_connection": {"odd": 1}},
        "llc incomplete": {**ok, "local_link_connection": {"port_id": "x"}}, "llc bad switch": {**ok, "local_link_connection": {"switch_id": "x", "port_id": "y"}},
        "llc none": {**ok, "local_link_connection": {}},
        "smartnic without llc": {**ok, "address": "52:54:00:bb:00:02", "is_smartnic": True},
        "smartnic": {**ok, "address": "52:54:00:bb:00:02", "is_smartnic": True, "local_link_connection": {"hostname": "h", "port_id": "p"}},
        "smartnic half": {**ok, "address": "52:54:00:bb:00:03", "is_smartnic": True, "local_link_connection": {"hostname": "h"}},
        "physical_network long": {**ok, "address": "52:54:00:bb:00:04", "physical_network": "n" * 65}, "physical_network 5": {**ok, "physical_network": 5},
        "physical_network ''": {**ok, "address": "52:54:00:bb:00:04", "physical_network": ""},
        "portgroup x": {**ok, "portgroup_uuid": "x"}, "portgroup unknown": {**ok, "portgroup_uuid": w.UNKNOWN},
        "portgroup of another node": {**ok, "address": "52:54:00:bb:00:05", "portgroup_uuid": w.GROUP}, "is_smartnic x": {**ok, "is_smartnic": "x"},
        "description long": {**ok, "address": "52:54:00:bb:00:06", "description": TEXT_256}, "internal_info": {**ok, "internal_info": {}},
    }.items():
        yield post("/v1/ports", label, **{"uuid": made, **body})
        yield w.removed(f"/v1/ports/{made}")
    # Ports of one portgroup are in one physical network.
    first, second = "aaaaaaaa-0000-4000-8000-000000000211", "aaaaaaaa-0000-4000-8000-000000000212"
    yield post("/v1/ports", "network of a member", uuid=first, node_uuid=w.FRESH, address="52:54:00:bb:00:11", portgroup_uuid=w.OTHER_GROUP, physical_network="net1")
    yield post("/v1/ports", "another network in the group", uuid=second, node_uuid=w.FRESH, address="52:54:00:bb:00:12", portgroup_uuid=w.OTHER_GROUP, physical_network="net2")
    yield post("/v1/ports", "no network in the group", uuid=second, node_uuid=w.FRESH, address="52:54:00:bb:00:12", portgroup_uuid=w.OTHER_GROUP)
    yield post("/v1/ports", "outside", uuid=second, node_uuid=w.FRESH, address="52:54:00:bb:00:12", physical_network="net2")
    yield patch(f"/v1/ports/{second}", "into the group", ("add", "/portgroup_uuid", w.OTHER_GROUP))
    yield patch(f"/v1/ports/{second}", "network and group", ("add", "/portgroup_uuid", w.OTHER_GROUP), ("replace", "/physical_network", "net1"))
    yield patch(f"/v1/ports/{second}", "leaves the network", ("replace", "/physical_network", "net3"))
    for label, *changes in [
        ("uuid", ("replace", "/uuid", w.UNKNOWN)), ("address x", ("replace", "/address", "x")), ("address taken", ("replace", "/address", "52:54:00:aa:00:00")),
        ("remove address", ("remove", "/address")), ("node_uuid", ("replace", "/node_uuid", w.FREE)), ("node unknown", ("replace", "/node_uuid", w.UNKNOWN)),
        ("remove node", ("remove", "/node_uuid")), ("unknown field", ("add", "/nonsense", 1)), ("remove missing", ("remove", "/extra/none")),
        ("extra text", ("replace", "/extra", "x")), ("pxe x", ("replace", "/pxe_enabled", "x")), ("llc odd", ("add", "/local_link_connection", {"odd": 1})),
        ("llc key", ("add", "/local_link_connection/switch_id", "x")), ("smartnic", ("replace", "/is_smartnic", True)), ("internal", ("add", "/internal_info/x", 1)),
        ("description", ("add", "/description", "d")), ("name bad", ("add", "/name", "a b"))]:
        yield patch(f"/v1/ports/{first}", label, *changes)
    # A port of a node that is in use: its address and its connections stay.
    third = "aaaaaaaa-0000-4000-8000-000000000213"
    yield post("/v1/ports", "of an active node", uuid=third, node_uuid=w.BUSY, address="52:54:00:bb:00:13")
    for label, change in {
        "address": ("replace", "/address", "52:54:00:bb:00:14"), "pxe": ("replace", "/pxe_enabled", False), "same pxe": ("replace", "/pxe_enabled", True),
        "network": ("add", "/physical_network", "net9"), "extra": ("add", "/extra/x", 1), "description": ("add", "/description", "d"),
        "link": ("add", "/local_link_connection", {"port_id": "p", "switch_id": "52:54:00:00:00:01"})}.items():
        yield patch(f"/v1/ports/{third}", f"{label} of an active node", change)
    yield w.removed(f"/v1/ports/{third}")
    yield patch("/v1/ports/52:54:00:aa:00:00", "by address", ("add", "/extra/x", 1))
    yield patch(f"/v1/ports/{w.UNKNOWN}", "unknown", ("add", "/extra/x", 1))
    for field, since, value in [("pxe_enabled", 19, True), ("local_link_connection", 19, {}), ("portgroup_uuid", 24, None), ("physical_network", 34, "x"),
                                ("is_smartnic", 53, False), ("name", 88, "x"), ("description", 97, "x")]:
        yield post("/v1/ports", f"{field} too new", since - 1, node_uuid=w.MANAGED, address="52:54:00:bb:00:99", uuid=w.UNKNOWN, **{field: value})
        yield w.removed(f"/v1/ports/{w.UNKNOWN}")
    for ident in (first, second, made, w.UNKNOWN, "no-such", "52:54:00:aa:00:00"):
        yield Request("DELETE", f"/v1/ports/{ident}", label=ident[-3:])


def resources():
    for path, ok, known in [
        ("/v1/portgroups", {"node_uuid": w.FRESH}, w.GROUP), ("/v1/chassis", {}, w.CHASSIS),
        ("/v1/volume/connectors", {"node_uuid": w.FRESH, "type": "wwpn", "connector_id": "c"}, w.CONNECTOR),
        ("/v1/volume/targets", {"node_uuid": w.FRESH, "volume_type": "fc", "boot_index": 5, "volume_id": "v"}, w.TARGET),
        ("/v1/deploy_templates", {"name": "CUSTOM_X", "steps": [{"interface": "bios", "step": "s", "args": {}, "priority": 1}]}, w.TEMPLATE),
        ("/v1/runbooks", {"name": "CUSTOM_X", "steps": [{"interface": "bios", "step": "s", "args": {}, "order": 1}]}, w.RUNBOOK),
        ("/v1/allocations", {"resource_class": "none"}, w.ALLOCATION)]:
        for data, label in [(b"{", "half JSON"), (b"[]", "a list"), (b"", "no body"), (b"null", "null")]:
            yield raw("POST", path, data, label)
        for field in ok:
            yield post(path, f"no {field}", **{name: value for name, value in ok.items() if name != field})
            yield post(path, f"{field} wrong", **{**ok, field: {"odd": 1}})
            yield post(path, f"{field} 5", **{**ok, field: 5.5})
        for label, more in {"unknown field": {"nonsense": 1}, "uuid x": {"uuid": "x"}, "uuid taken": {"uuid": known}, "extra text": {"extra": "x"},
                            "name bad": {"name": "a b"}, "name long": {"name": LONG}, "name 5": {"name": 5}, "address x": {"address": "x"},
                            "description long": {"description": HUGE}, "mode odd": {"mode": "odd"}, "standalone x": {"standalone_ports_supported": "x"},
                            "properties text": {"properties": "x"}, "type odd": {"type": "odd"}, "boot_index -1": {"boot_index": -1},
                            "boot_index x": {"boot_index": "x"}, "boot_index text": {"boot_index": "1"}, "boot_index taken": {"boot_index": 0}, "node unknown": {"node_uuid": w.UNKNOWN},
                            "node x": {"node_uuid": "x"}, "steps text": {"steps": "x"}, "steps none": {"steps": []}, "public x": {"public": "x"},
                            "candidate unknown": {"candidate_nodes": [w.UNKNOWN]}, "candidates text": {"candidate_nodes": "x"}, "traits odd": {"traits": ["odd"]},
                            "state": {"state": "active"}, "resource_class long": {"resource_class": "r" * 81}, "node and class": {"node": "no-such"},
                            "name lower": {"name": "lower"}}.items():
            yield post(path, label, **{**ok, **more})
        for label, *changes in [
            ("uuid", ("replace", "/uuid", w.UNKNOWN)), ("unknown field", ("add", "/nonsense", 1)), ("remove missing", ("remove", "/extra/none")),
            ("extra text", ("replace", "/extra", "x")), ("no value", ("add", "/extra/x")), ("op odd", ("odd", "/extra/x", 1)), ("name bad", ("add", "/name", "a b")),
            ("node unknown", ("replace", "/node_uuid", w.UNKNOWN)), ("steps", ("replace", "/steps", [])), ("steps odd", ("replace", "/steps/0/interface", "odd")),
            ("remove name", ("remove", "/name")), ("mode", ("replace", "/mode", "802.3ad")), ("type odd", ("replace", "/type", "odd")),
            ("boot_index x", ("replace", "/boot_index", "x")), ("boot_index text", ("replace", "/boot_index", "1")), ("extra", ("add", "/extra/k", 1)), ("state", ("replace", "/state", "active")),
            ("name lower", ("replace", "/name", "lower"))]:
            yield patch(f"{path}/{known}", label, *changes)
        for ident in (w.UNKNOWN, "no-such"):
            yield patch(f"{path}/{ident}", f"of {ident[:2]}", ("add", "/extra/x", 1))
            yield Request("DELETE", f"{path}/{ident}", label=ident[:2])
    for body in [{"interface": "odd", "step": "s", "args": {}, "priority": 1}, {"interface": "bios", "step": "s", "args": {}, "priority": -1},
                 {"interface": "bios", "step": "s", "args": {}, "priority": "x"}, {"interface": "bios", "step": "s", "args": [], "priority": 1},
                 {"interface": "bios", "step": "s", "priority": 1}, {"interface": "bios", "args": {}, "priority": 1}, {"interface": "bios", "step": "", "args": {}, "priority": 1},
                 {"interface": "bios", "step": "s", "args": {}, "priority": 1, "odd": 1}]:
        yield post("/v1/deploy_templates", f"step {body}", name="CUSTOM_S", steps=[body])
        step = {("order" if key == "priority" else key): value for key, value in body.items()}
        yield post("/v1/runbooks", f"step {step}", name="CUSTOM_S", steps=[step])
    book = f"/v1/runbooks/{w.RUNBOOK}"
    yield patch(book, "published", ("replace", "/public", True))
    yield patch(book, "owner of a public one", ("add", "/owner", "x"))
    yield patch(book, "not public", ("replace", "/public", False))
    yield patch(book, "order -1", ("replace", "/steps/0/order", -1))
    for body in ({"traits": "x"}, {"traits": [5]}, {"traits": ["odd"]}):
        yield Request("PUT", f"{book}/traits", body=body, label=str(body))
    yield Request("POST", "/v1/chassis", raw=b'{"uuid": "%s"}' % w.UNKNOWN.encode(), headers={"Content-Type": "text/plain"}, label="as text/plain")
    yield w.removed(f"/v1/chassis/{w.UNKNOWN}")
    rule = {"description": "d", "conditions": [], "actions": [{"op": "set-attribute", "args": {"path": "/extra/a", "value": "b"}}]}
    yield post("/v1/inspection_rules", "a rule", uuid=w.UNKNOWN, **rule)
    yield w.removed(f"/v1/inspection_rules/{w.UNKNOWN}")
    yield Request("DELETE", f"/v1/chassis/{w.CHASSIS}", label="with nodes")
    yield Request("DELETE", f"/v1/portgroups/{w.GROUP}", label="with ports")
    for events in ({}, {"events": []}, {"events": [{}]}, {"events": [{"event": "odd"}]}, {"events": [{"event": "network.bind_port"}]},
                   {"events": [{"event": "network.bind_port", "port_id": w.PORT, "mac_address": "52:54:00:aa:00:00", "status": "ACTIVE",
                                "device_id": w.PORT, "binding:host_id": w.PORT, "binding:vnic_type": "baremetal"}]}):
        yield Request("POST", "/v1/events", body=events, label=str(events)[:70])


def agents():
    beat = f"/v1/heartbeat/{w.FRESH}"
    for version in (1, 21, 22, 35, 36, 61, 62, 67, 68, 115):
        yield Request("POST", beat, version, {"callback_url": "https://127.0.0.9:9999"}, label="only the address")
        yield Request("POST", beat, version, {"callback_url": "https://127.0.0.9:9999", "agent_version": "9.0.0"}, label="with version")
        yield Request("GET", f"/v1/lookup?node_uuid={w.FRESH}", version, label="lookup")
    for body in ({}, {"callback_url": 5}, {"callback_url": "x"}, {"callback_url": "https://127.0.0.9:9999", "agent_token": "x"},
                 {"callback_url": "https://127.0.0.9:9999", "agent_token": 5}, {"callback_url": "https://127.0.0.9:9999", "agent_token": "x", "agent_version": "9", "nonsense": 1},
                 {"callback_url": "https://127.0.0.9:9999", "agent_token": "x", "agent_version": "9", "agent_status": "odd"}):
        yield Request("POST", beat, body=body, label=str(body))
        yield Request("POST", f"/v1/heartbeat/{w.UNKNOWN}", body=body, label=f"unknown {body}")
    for version in (1, 83, 84, 115):
        for body in ({}, {"inventory": {}}, {"inventory": {"interfaces": []}, "plugin_data": {}}, {"inventory": 5}):
            yield Request("POST", "/v1/continue_inspection", version, body, label=str(body))
        yield Request("POST", f"/v1/continue_inspection?node_uuid={w.UNKNOWN}", version, {"inventory": {"interfaces": []}}, label="unknown")


def bare(document):
    """Each writing route around its microversion, with an empty body and for a record that does not exist."""
    for method, path, since, _, _ in reads.routes(document, False):
        concrete = path
        for word in [part[1:-1] for part in path.split("/") if part.startswith("{")]:
            concrete = concrete.replace("{%s}" % word, w.UNKNOWN)
        for version in sorted({1, max(since - 1, 1), since, reads.LAST}):
            if not (path == "/v1/inspection_rules" and method == "DELETE"):
                yield Request(method, concrete, version, None if method == "DELETE" else [] if method == "PATCH" else {}, label="bare")


def requests(document):
    for part in (bare(document), new_nodes(), node_patches(), resources(), verbs(), below_nodes(), ports(), agents()):
        yield from part
