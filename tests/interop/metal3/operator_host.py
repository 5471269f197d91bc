"""Metal3's baremetal-operator for one host: the calls of its provisioner, in its order.

Each method is one operation of the operator (pkg/provisioner/ironic): it sends the calls that the
operator sends in the states that it finds, and reads the fields that the operator reads. It is our
own code; which calls there are was read in the operator.
"""

import time

from ironic import FLAG, LIST, TEXT, Broken, Status, decoded

POLL_S = 0.2
PATIENCE_S = 240
SEPARATOR = "~"
NAMESPACE = "metal3"
BUSY = ("cleaning", "clean wait", "inspecting", "inspect wait", "deploying", "wait call-back",
        "deleting")
# The states between, for each verb and the state that it leads to.
BETWEEN = {
    "manage": {"verifying"},
    "inspect": {"inspecting", "inspect wait"},
    "clean": {"cleaning", "clean wait"},
    "provide": {"cleaning", "clean wait"},
    "active": {"deploying", "wait call-back"},
    "deleted": {"deleting", "cleaning", "clean wait"},
    "adopt": {"adopting"},
    "abort": set(),
}


class Host:
    """A BareMetalHost, and the operator's knowledge of its node."""

    def __init__(self, ironic, name, uid, mac, access, boot_mode="bios"):
        self.ironic, self.name, self.uid, self.mac = ironic, name, uid, mac
        # What the BMC's access details give: driver, driver_info and interfaces.
        self.access, self.boot_mode = access, boot_mode
        self.uuid = None

    def say(self, text):
        print(f"{self.name}: {text}", flush=True)

    @property
    def node_name(self):
        return f"{NAMESPACE}{SEPARATOR}{self.name}"

    def node(self):
        node = self.ironic.node(self.uuid)
        if node is None:
            raise Broken(f"{self.name}: its node is gone")
        return node

    def expect(self, what, wanted, got):
        if wanted != got:
            raise Broken(f"{self.name}: {what} is {got!r:.300}, not {wanted!r:.300}")

    def update(self, node, section, wanted):
        """PATCH operations for what differs: `add` sets, `remove` only what is there."""
        now = node.get(section) if section else node
        base = f"/{section}/" if section else "/"
        operations = []
        for key, value in wanted.items():
            if value is None:
                if key in now and (section or now[key]):
                    operations.append({"op": "remove", "path": base + key})
            elif key not in now or now[key] != value:
                operations.append({"op": "add", "path": base + key, "value": value})
        return operations

    def change(self, node, *parts):
        """One PATCH with these parts, if there is any change; the node afterwards."""
        operations = [one for section, wanted in parts
                      for one in self.update(node, section, wanted)]
        if not operations:
            return node
        after = self.ironic.update(self.uuid, operations)
        for one in operations:
            keys = one["path"].strip("/").split("/")
            there = after
            for key in keys[:-1]:
                there = there[key]
            if one["op"] == "remove":
                if len(keys) > 1 and keys[-1] in there:
                    raise Broken(f"{one['path']} is still there")
            elif "password" not in str(one["value"]):
                # The operator compares what it reads with what it wants.
                self.expect(one["path"], one["value"], there.get(keys[-1]))
        return after

    def wait(self, verb, goal, failed=()):
        """Polls the node, as the operator does, until it is in this state."""
        between, end = BETWEEN[verb], time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            node = self.node()
            state, target = node["provision_state"], node["target_provision_state"]
            if state == goal:
                if goal not in ("deploy failed", "inspect failed", "clean failed"):
                    self.expect("target_provision_state", None, target)
                    self.expect("last_error", None, node["last_error"])
                    self.expect("reservation", None, node["reservation"])
                return node
            if state in failed or "failed" in state or state == "error":
                raise Broken(f"{self.name}: {verb} ended in {state}: {node['last_error']}")
            if state in between and not target and verb != "abort":
                raise Broken(f"{self.name}: {state} without a target_provision_state")
            if node["fault"] or node["maintenance"]:
                raise Broken(f"{self.name}: {state} with fault {node['fault']}")
            time.sleep(POLL_S)
        raise Broken(f"{self.name}: {verb} takes longer than {PATIENCE_S} s: {self.node()}")

    def await_state(self, *states):
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            node = self.node()
            if node["provision_state"] in states:
                return node
            time.sleep(POLL_S)
        raise Broken(f"{self.name}: it is not in {states} but in {node['provision_state']}")

    def verb(self, verb, goal, **more):
        self.say(verb)
        self.ironic.provision(self.uuid, target=verb, **more)
        return self.wait(verb, goal)

    # Register.

    def find(self):
        """The operator's search for a node that it created before."""
        if self.uuid:
            node = self.ironic.node(self.uuid)
            if node:
                return node
        for ident in (self.node_name, self.name):
            node = self.ironic.node(ident)
            if node:
                return node
        if self.mac:
            ports = self.ironic.ports(address=self.mac)
            if ports:
                raise Broken(f"{self.mac} is of node {ports[0]['node_uuid']}")
        return None

    def register(self, deploy_interface="", disable_power_off=False):
        if not self.ironic.get("/v1/drivers", "drivers")["drivers"]:
            raise Broken("there are no drivers: the operator waits for them")
        self.expect("a node before registration", None, self.find())
        access = self.access
        node = self.ironic.create_node({
            "driver": access["driver"],
            "boot_interface": "ipxe",
            "name": self.node_name,
            "driver_info": access["driver_info"],
            "firmware_interface": access.get("firmware_interface", ""),
            "deploy_interface": deploy_interface,
            "inspect_interface": "agent",
            "raid_interface": access["raid_interface"],
            "disable_power_off": disable_power_off,
            "properties": {"capabilities": f"boot_mode:{self.boot_mode}", "cpu_arch": "x86_64"},
        })
        self.uuid = node["uuid"]
        self.expect("provision_state", "enroll", node["provision_state"])
        self.expect("power_state", None, node["power_state"])
        shown = access["interfaces"] | {"deploy_interface": deploy_interface or "autodetect"}
        for key, value in shown.items():
            self.expect(key, value, node[key])
        secrets = [key for key in access["driver_info"] if key.endswith("password")]
        for key in secrets:
            self.expect(key, "******", node["driver_info"][key])
        self.create_ports([(self.mac, True)] if self.mac else [])
        self.verb("manage", "manageable")
        self.configure()
        self.expect("the node by its name", self.uuid, self.find()["uuid"])

    def create_ports(self, nics):
        if not nics:
            return
        known = {port["address"] for port in self.ironic.ports(node_uuid=self.uuid)}
        for mac, pxe in nics:
            if mac in known:
                continue
            self.expect("ports of this address", [], self.ironic.ports(address=mac))
            port = self.ironic.create_port(self.uuid, mac, pxe)
            self.expect("port", (self.uuid, mac, pxe),
                        (port["node_uuid"], port["address"], port["pxe_enabled"]))

    def configure(self, automated_clean=True, driver_info=None):
        node = self.node()
        self.change(
            node,
            ("driver_info", {"deploy_kernel": None, "deploy_ramdisk": None, "deploy_iso": None,
                             "kernel_append_params": None, **(driver_info or {})}),
            ("", {"automated_clean": automated_clean}),
            ("properties", {"capabilities": f"boot_mode:{self.boot_mode}",
                            "cpu_arch": "x86_64"}))

    # Inspect.

    def start_inspection(self):
        self.expect("an inventory before the inspection", None, self.ironic.inventory(self.uuid))
        self.change(self.node(), ("properties", {"cpu_arch": "x86_64"}),
                    ("", {"inspect_interface": "agent"}))
        self.say("inspect")
        self.ironic.provision(self.uuid, target="inspect")

    def inspect(self):
        self.start_inspection()
        node = self.wait("inspect", "manageable")
        details = self.inspected(node)
        # Then the operator creates ports for all network cards that were found.
        self.create_ports([(mac, pxe) for mac, pxe, _ in details["nics"]])
        return details

    def inspected(self, node=None):
        """The hardware's details, as the operator makes them from the inspection data."""
        node = node or self.node()
        self.expect("inspection_started_at", None, node["inspection_started_at"])
        if not node["inspection_finished_at"]:
            raise Broken("the inspection has no end")
        data = self.ironic.inventory(self.uuid)
        inventory, plugin = data["inventory"], data["plugin_data"]
        return {
            "cpus": inventory["cpu"]["count"],
            "ram": inventory["memory"]["physical_mb"],
            "disks": [disk["size"] for disk in inventory["disks"]],
            "vendor": inventory["system_vendor"]["manufacturer"],
            "hostname": inventory["hostname"],
            "nics": [(nic["mac_address"], plugin["all_interfaces"][nic["name"]]["pxe_enabled"],
                      plugin["parsed_lldp"].get(nic["name"], {}))
                     for nic in inventory["interfaces"]],
        }

    # Prepare.

    def has_capacity(self, limit=20):
        listed = self.ironic.get(
            "/v1/nodes?fields=uuid,name,provision_state,boot_interface", "nodes")["nodes"]
        for node in listed:
            if not node["boot_interface"] or "provision_state" not in node:
                raise Broken(f"the list lacks fields: {node}")
        return len([node for node in listed if node["provision_state"] in BUSY]) < limit

    def read_settings(self):
        """BIOS settings with their schema, and firmware components; an error is a failure."""
        settings = self.ironic.get(f"/v1/nodes/{self.uuid}/bios?detail=true", "BIOS settings")
        self.ironic.get(f"/v1/nodes/{self.uuid}/bios", "BIOS settings")
        components = self.ironic.get(f"/v1/nodes/{self.uuid}/firmware", "firmware")
        return settings["bios"], components["firmware"]

    def prepare(self, volumes=()):
        """Manual cleaning, if there is anything to change: here software RAID."""
        if not volumes:
            return
        self.change(self.node(), ("", {"raid_interface": "agent"}))
        disks = [{"size_gb": "MAX", "raid_level": level, "controller": "software",
                  "is_root_volume": at == 0} for at, level in enumerate(volumes)]
        self.ironic.send("PUT", f"/v1/nodes/{self.uuid}/states/raid",
                         {"logical_disks": disks}, (204,))
        self.verb("clean", "manageable", clean_steps=[
            {"interface": "raid", "step": "delete_configuration"},
            {"interface": "deploy", "step": "erase_devices_metadata"},
            {"interface": "raid", "step": "create_configuration"},
        ])

    # Provision.

    def set_up(self, instance_info, deploy_interface, persistent="Default"):
        node = self.node()
        if deploy_interface is None and node["deploy_interface"] not in ("ramdisk",
                                                                         "custom-agent"):
            interface = {}
        else:
            interface = {"deploy_interface": deploy_interface}
        parts = [("", {"instance_uuid": self.uid, **interface}),
                 ("instance_info", {"capabilities": {}, "root_device": {"name": "s== /dev/sda"},
                                    **instance_info})]
        if deploy_interface != "custom-agent":
            parts.append(("driver_info", {"force_persistent_boot_device": persistent}))
        node = self.change(node, *parts)
        results = self.ironic.validate(self.uuid)
        for name in ("boot", "deploy"):
            if not results[name]["result"]:
                raise Broken(f"{self.name}: validation of {name}: {results[name]['reason']}")
        return node

    def provide(self):
        self.verb("provide", "available")

    def config_drive(self):
        return {
            "meta_data": {
                "uuid": self.uid, "metal3-namespace": NAMESPACE, "metal3-name": self.name,
                "local-hostname": self.name, "local_hostname": self.name, "name": self.name,
            },
            "user_data": "#cloud-config\nhostname: one\n",
            "network_data": {"links": [], "networks": [], "services": []},
        }

    def provision_image(self, image):
        """An image by URL, with a digest or the URL of a checksum file."""
        info = {"boot_iso": None, "image_source": image["url"],
                "image_disk_format": image["format"], "image_pull_secret": None}
        if image.get("type"):
            info |= {"image_checksum": None, "image_os_hash_algo": image["type"],
                     "image_os_hash_value": image["checksum"]}
        else:
            info |= {"image_checksum": image["checksum"], "image_os_hash_algo": None,
                     "image_os_hash_value": None}
        self.set_up(info, None)
        node = self.verb("active", "active", configdrive=self.config_drive())
        # Whether the node has the same image is decided by these.
        for key, value in info.items():
            self.expect(f"instance_info.{key}", value, node["instance_info"].get(key))
        self.expect("instance_uuid", self.uid, node["instance_uuid"])
        self.expect("power_state", "power on", node["power_state"])

    def provision_live_iso(self, url):
        self.set_up({"boot_iso": url, "image_source": None, "image_os_hash_value": None,
                     "image_os_hash_algo": None, "image_checksum": None}, "ramdisk")
        node = self.verb("active", "active", configdrive={})
        self.expect("boot_iso", url, node["instance_info"]["boot_iso"])
        self.expect("deploy_interface", "ramdisk", node["deploy_interface"])

    def custom_deploy(self, method, image=None):
        info = dict.fromkeys(("boot_iso", "image_checksum", "image_source", "image_os_hash_algo",
                              "image_os_hash_value", "image_disk_format", "image_pull_secret"))
        if image:
            info["image_source"] = image["url"]
        self.set_up(info, "custom-agent")
        self.say("active")
        step = {"interface": "deploy", "step": method, "args": {}, "priority": 80}
        self.ironic.provision(self.uuid, target="active", configdrive=self.config_drive(),
                              deploy_steps=[step])

    # Power.

    def power(self, target, goal, timeout=None):
        body = {"target": target} | ({"timeout": timeout} if timeout else {})
        self.ironic.send("PUT", f"/v1/nodes/{self.uuid}/states/power", body, (202,))
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            node = self.node()
            if node["power_state"] == goal and not node["target_power_state"]:
                return
            if not node["target_power_state"] and node["last_error"]:
                raise Broken(f"{self.name}: {target} failed: {node['last_error']}")
            time.sleep(POLL_S)
        raise Broken(f"{self.name}: {target} takes too long")

    def power_cycle(self):
        self.power("power off", "power off")
        self.power("power on", "power on")
        try:
            self.power("soft power off", "power off", timeout=180)
        except Status as refused:
            # The operator falls back to a hard power off on 400, and on nothing else.
            if refused.status != 400:
                raise
            self.power("power off", "power off")

    # Events.

    def subscribe(self, destination, context, headers):
        created = self.ironic.vendor("POST", self.uuid, "create_subscription", {
            "Destination": destination, "Context": context, "HttpHeaders": headers}, (200,))[1]
        self.expect("Destination", destination, created["Destination"])
        self.expect("Context", context, created["Context"])
        if not isinstance(created["Id"], str) or not created["Id"]:
            raise Broken(f"a subscription without a name: {created}")
        return created["Id"]

    def unsubscribe(self, name, accept=(200, 202, 204)):
        return self.ironic.vendor("DELETE", self.uuid, "delete_subscription", {"id": name},
                                  accept)[0]

    # A data image: a second medium of a provisioned host.

    def media(self):
        if self.node()["reservation"]:
            raise Broken(f"{self.name}: the node is locked")
        drives = self.ironic.get(f"/v1/nodes/{self.uuid}/vmedia", "virtual media")
        # A list without a name around it.
        if not isinstance(drives, list):
            raise Broken(f"virtual media are {drives!r:.200}")
        for drive in drives:
            decoded(drive, {TEXT: "image", FLAG: "inserted", LIST: "media_types"}, "drive")
        return [drive["image"] for drive in drives if drive["inserted"]]

    def data_image(self, url):
        path = f"/v1/nodes/{self.uuid}/vmedia"
        self.expect("media", [], self.media())
        self.ironic.send("POST", path, {"device_type": "cdrom", "image_url": url}, (204,))
        self.expect("media", [url], self.media())
        self.ironic.send("DELETE", f"{path}?device_types=cdrom", None, (204,))
        self.expect("media", [], self.media())

    # Deprovision, delete, adopt, detach.

    def deprovision(self, automated_clean=True):
        self.change(self.node(), ("", {"automated_clean": automated_clean}))
        node = self.verb("deleted", "available")
        self.expect("instance_info", {}, node["instance_info"])
        self.expect("instance_uuid", None, node["instance_uuid"])

    def adopt(self):
        self.verb("adopt", "active")

    def maintain(self, reason):
        self.ironic.send("PUT", f"/v1/nodes/{self.uuid}/maintenance", {"reason": reason}, (202,))
        node = self.node()
        self.expect("maintenance", (True, reason),
                    (node["maintenance"], node["maintenance_reason"]))
        self.expect("fault", None, node["fault"])

    def unmaintain(self):
        self.ironic.send("DELETE", f"/v1/nodes/{self.uuid}/maintenance", None, (202,))
        self.expect("maintenance", False, self.node()["maintenance"])

    def delete(self, force=False):
        """Delete and detach: the operator decides by the state of the node."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            node = self.ironic.node(self.uuid)
            if node is None:
                self.say("deleted")
                self.expect("ports", [], self.ironic.ports(address=self.mac) if self.mac else [])
                return
            state = node["provision_state"]
            if state in ("available", "manageable"):
                if node["instance_uuid"]:
                    self.change(node, ("", {"instance_uuid": None}))
            elif state in ("wait call-back", "inspect wait", "clean wait", "service wait"):
                if force:
                    self.say(f"abort in {state}")
                    try:
                        self.ironic.provision(self.uuid, target="abort")
                    except Status as refused:
                        # The agent called in between, which locks the node: the operator looks
                        # at the node again.
                        if refused.status != 409:
                            raise
                        time.sleep(POLL_S)
                        continue
                    failed = self.await_state(*("deploy failed", "inspect failed",
                                                "clean failed", "service failed"))
                    if "aborted" not in failed["last_error"]:
                        raise Broken(f"after an abort: {failed['last_error']}")
                time.sleep(POLL_S)
                continue
            elif state in ("verifying", "deploying", "cleaning", "inspecting", "deleting"):
                time.sleep(POLL_S)
                continue
            elif state != "enroll" and not node["maintenance"]:
                self.maintain("forcing deletion in baremetal-operator")
                continue
            status = self.ironic.send("DELETE", f"/v1/nodes/{self.uuid}",
                                      accept=(202, 204, 404, 409))[0]
            if status == 409:
                time.sleep(POLL_S)
        raise Broken(f"{self.name}: it cannot be deleted")
