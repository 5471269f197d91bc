"""Ironic's API as Metal3's baremetal-operator uses it, through gophercloud.

Every answer is checked as gophercloud decodes it: a status that the library does not accept for
this call, or one value of another type than its Go structures have, fails the operator's call.
Types and statuses were read in gophercloud v2; nothing here is its code.
"""

import datetime
import json
import threading
import urllib.error
import urllib.parse
import urllib.request

# The operator's own time-out for a request.
TIMEOUT_S = 30
# What the operator needs at least, and the versions that it chooses from.
BASELINE = 89
CHOSEN = (110, 109, 95, 93, 89)

TEXT, FLAG, MAYBE, TIME, MAP, LIST = "text", "flag", "maybe", "time", "map", "list"
NODE = {
    TEXT: "uuid name power_state target_power_state provision_state target_provision_state "
    "maintenance_reason fault health last_error reservation driver instance_uuid chassis_uuid "
    "resource_class bios_interface boot_interface console_interface deploy_interface "
    "inspect_interface management_interface network_interface power_interface raid_interface "
    "rescue_interface storage_interface vendor_interface firmware_interface conductor_group "
    "parent_node protected_reason owner lessee shard description conductor allocation_uuid "
    "retired_reason",
    FLAG: "maintenance console_enabled protected retired disable_power_off",
    MAYBE: "automated_clean",
    TIME: "provision_updated_at inspection_started_at inspection_finished_at created_at updated_at",
    MAP: "driver_info driver_internal_info properties instance_info extra raid_config "
    "target_raid_config clean_step deploy_step service_step network_data",
    LIST: "links ports portgroups states traits volume",
}
VALIDATED = ("bios boot console deploy firmware inspect management network power raid rescue "
             "storage").split()
INTERFACE = {
    TEXT: "biosdevname client_id ipv4_address ipv6_address mac_address name product vendor "
    "pci_address",
    FLAG: "has_carrier",
    "number": "speed_mbps",
}
DISK = {
    TEXT: "hctl model name by_path serial vendor wwn wwn_vendor_extension wwn_with_extension",
    FLAG: "rotational",
    "number": "size",
}
CPU = {TEXT: "architecture frequency model_name", LIST: "flags", "number": "count"}
MEMORY = {"number": "physical_mb total"}
VENDOR = {TEXT: "manufacturer product_name serial_number", MAP: "firmware"}


class Broken(Exception):
    """The server did what the operator cannot work with."""


class Status(Broken):
    """A status that this call does not accept."""

    def __init__(self, status, what, text):
        super().__init__(f"{what} was answered with {status}: {text[:400]}")
        self.status = status


def is_time(value):
    try:
        return isinstance(value, str) and bool(datetime.datetime.fromisoformat(value))
    except ValueError:
        return False


def fits(value, kind):
    """Whether Go decodes it: null leaves a field as it is."""
    if value is None:
        return True
    return {
        TEXT: lambda: isinstance(value, str),
        FLAG: lambda: isinstance(value, bool),
        MAYBE: lambda: isinstance(value, bool),
        TIME: lambda: is_time(value),
        MAP: lambda: isinstance(value, dict),
        LIST: lambda: isinstance(value, list),
        "number": lambda: isinstance(value, int) and not isinstance(value, bool),
    }[kind]()


def decoded(value, shape, what):
    """The object, after the check of each field that the operator's structure has."""
    if not isinstance(value, dict):
        raise Broken(f"{what} is no object: {value!r:.200}")
    for kind, names in shape.items():
        for name in names.split():
            if not fits(value.get(name), kind):
                raise Broken(f"{what}: {name} is {value[name]!r:.200}, not a {kind}")
    return value


class Ironic:
    """A client with one microversion, as the operator makes it when it starts."""

    def __init__(self, endpoint):
        self.endpoint = endpoint.rstrip("/")
        self.lock = threading.Lock()
        self.calls = 0
        self.microversion = None
        version = self.get("/v1/", "root")["version"]
        first, last = version["min_version"], version["version"]
        major, minor = last.split(".")
        if first.split(".")[0] != "1" or major != "1" or int(minor) < BASELINE:
            raise Broken(f"microversions {first} to {last}: too old for the operator")
        self.microversion = f"1.{max(one for one in CHOSEN if one <= int(minor))}"

    def send(self, method, path, body=None, accept=(200,)):
        """Status and document."""
        headers = {"Accept": "application/json"}
        if self.microversion:
            headers["X-OpenStack-Ironic-API-Version"] = self.microversion
            headers["OpenStack-API-Version"] = f"baremetal {self.microversion}"
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        asked = urllib.request.Request(self.endpoint + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
                status, text, head = answer.status, answer.read(), answer.headers
        except urllib.error.HTTPError as error:
            status, text, head = error.code, error.read(), error.headers
        with self.lock:
            self.calls += 1
        what = f"{method} {path}"
        if self.microversion and status != 401:
            used = head.get("X-OpenStack-Ironic-API-Version")
            if used != self.microversion:
                raise Broken(f"{what}: version {used} instead of {self.microversion}")
        if status not in accept:
            raise Status(status, what, text.decode(errors="replace"))
        if status >= 400:
            # The library keeps the text, the tools of people read the message in it.
            message = json.loads(json.loads(text)["error_message"])
            if not message["faultstring"]:
                raise Broken(f"{what}: an error without a message")
            return status, message
        return status, json.loads(text) if text.strip() else None

    def get(self, path, what, shape=None):
        document = self.send("GET", path)[1]
        return document if shape is None else decoded(document, shape, what)

    def node(self, ident):
        """The node; none if there is none."""
        status, node = self.send(
            "GET", f"/v1/nodes/{urllib.parse.quote(ident, safe='~')}", accept=(200, 404))
        return None if status == 404 else decoded(node, NODE, "node")

    def create_node(self, body):
        # Empty texts are not sent (omitempty).
        body = {key: value for key, value in body.items() if value != ""}
        return decoded(self.send("POST", "/v1/nodes", body, (201, 202))[1], NODE, "node")

    def update(self, uuid, operations):
        node = self.send("PATCH", f"/v1/nodes/{uuid}", operations)[1]
        return decoded(node, NODE, "node")

    def ports(self, **filters):
        query = urllib.parse.urlencode({"fields": "node_uuid,uuid,address", **filters})
        ports = self.get(f"/v1/ports?{query}", "ports")["ports"]
        return [decoded(port, {TEXT: "uuid node_uuid address"}, "port") for port in ports]

    def create_port(self, uuid, mac, pxe):
        body = {"node_uuid": uuid, "address": mac, "pxe_enabled": pxe}
        port = self.send("POST", "/v1/ports", body, (201,))[1]
        return decoded(port, {TEXT: "uuid node_uuid address", FLAG: "pxe_enabled"}, "port")

    def provision(self, uuid, **body):
        self.send("PUT", f"/v1/nodes/{uuid}/states/provision", body, (202,))

    def validate(self, uuid):
        results = self.get(f"/v1/nodes/{uuid}/validate", "validation")
        for name in VALIDATED:
            one = results.get(name, {})
            decoded(one, {FLAG: "result", TEXT: "reason"}, f"validation of {name}")
            # Null becomes false in Go.
            if one.get("result") is None:
                raise Broken(f"validation of {name} has no result")
        return results

    def inventory(self, uuid):
        """The inspection data, or none before the first inspection."""
        status, data = self.send("GET", f"/v1/nodes/{uuid}/inventory", accept=(200, 404))
        if status == 404:
            return None
        inventory = data["inventory"]
        decoded(inventory, {TEXT: "hostname bmc_address", LIST: "disks interfaces",
                            MAP: "boot cpu memory system_vendor"}, "inventory")
        for one in inventory["interfaces"]:
            decoded(one, INTERFACE, "interface")
        for one in inventory["disks"]:
            decoded(one, DISK, "disk")
        decoded(inventory["cpu"], CPU, "processor")
        decoded(inventory["memory"], MEMORY, "memory")
        decoded(inventory["system_vendor"], VENDOR, "system vendor")
        plugin = decoded(data["plugin_data"], {
            MAP: "all_interfaces valid_interfaces parsed_lldp configuration extra lldp_raw "
            "root_disk", LIST: "macs", TEXT: "boot_interface error"}, "plugin data")
        for one in {**plugin["all_interfaces"], **plugin["valid_interfaces"]}.values():
            decoded(one, {**INTERFACE, FLAG: "has_carrier pxe_enabled"}, "interface")
        return data

    def vendor(self, method, uuid, name, body, accept):
        path = f"/v1/nodes/{uuid}/vendor_passthru?method={name}"
        return self.send(method, path, body, accept)
