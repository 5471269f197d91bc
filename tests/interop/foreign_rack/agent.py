"""A machine from power on to power off, and the agent that it boots.

It implements the protocol of the Ironic Python Agent: inspection data, lookup, heartbeats, and
commands that are synchronous or asynchronous. Unlike stock agents it has no TLS, no server
of its own (rack.py calls `command` and `command_list` for a request below the agent's path),
and no work that takes long.
"""

import base64
import gzip
import hashlib
import json
import random
import re
import threading
import time
import traceback
import urllib.error
import urllib.parse
import urllib.request
import uuid

# Stock agents wait 30 s for a reply.
TIMEOUT_S = 30
STEP_S = 1.0
# How often a wait for the next heartbeat checks whether to end.
WAIT_S = 0.1
# A heartbeat that a finished command causes is sent at least this long after the last one.
HEARTBEAT_GAP_S = 1.0
VERSION = "13.0.0"
MANAGER = {"generic_hardware_manager": "1.2"}
CLEAN_STEPS = [
    ("erase_devices", 10, "deploy"),
    ("erase_devices_metadata", 99, "deploy"),
    ("erase_devices_express", 0, "deploy"),
    ("delete_configuration", 0, "raid"),
    ("create_configuration", 0, "raid"),
]
DEPLOY_STEPS = [
    ("erase_devices_metadata", 0, "deploy"),
    ("write_image", 0, "deploy"),
    ("inject_files", 0, "deploy"),
    ("install_custom", 0, "deploy"),
    ("apply_configuration", 0, "raid"),
]
# Commands that reply when they are done; all others continue in the background.
SYNCHRONOUS = {
    "clean.get_clean_steps",
    "deploy.get_deploy_steps",
    "standby.get_partition_uuids",
    "standby.sync",
    "log.collect_system_logs",
    "poll.get_hardware_info",
}


def request(method, url, body=None, version=None):
    """Status and body. A status of 400 and above is a valid reply; 0 is none."""
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    if version:
        headers["X-OpenStack-Ironic-API-Version"] = version
    data = None if body is None else json.dumps(body).encode()
    http_request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(http_request, timeout=TIMEOUT_S) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError as error:
        return 0, str(error).encode()


class Refused(Exception):
    """An error reply of the agent's API."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


class Failed(Exception):
    """A command that ran and failed."""


class Session:
    """A machine from power on to power off, and the agent that it booted."""

    def __init__(self, machine, number, boot_device):
        self.machine, self.boot_device = machine, boot_device
        self.ended = threading.Event()
        # Set when a command has ended, which causes a heartbeat.
        self.heartbeat_due = threading.Event()
        self.random = random.Random(f"{machine.rack.seed}/{machine.name}/{number}")
        self.lock = threading.Lock()
        self.token = None
        self.results = []

    def sleep(self, seconds):
        """Whether the machine is still on afterwards."""
        return not self.ended.wait(seconds)

    def run(self):
        try:
            self.boot()
        except Exception:
            self.machine.error(traceback.format_exc())

    def boot(self):
        machine = self.machine
        if not self.sleep(machine.plan["boot_s"]):
            return
        if self.boot_device != "Pxe":
            machine.count("disk_boots")
            return
        line = self.firmware()
        if line is None:
            return
        machine.count("agent_boots")
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        api = words["ipa-api-url"]
        callback = words.get("ipa-inspection-callback-url")
        if callback:
            self.inspect(callback)
        node = self.look_up(api)
        if node:
            self.send_heartbeats(api, node)

    def firmware(self):
        """The kernel line of the script that the box has for this machine, when its kernel and
        ramdisk are here; none where it is to boot from its disk."""
        machine = self.machine
        while not self.ended.is_set():
            status, script = request("GET", f"{machine.rack.http}/boot/{machine.mac}/script")
            script = script.decode()
            kernel = re.search(r"^kernel (\S+) (.*?) \|\|", script, re.M)
            ramdisk = re.search(r"^initrd --name \S+ (\S+)", script, re.M)
            if status == 200 and kernel and ramdisk:
                for url in (kernel[1], ramdisk[1]):
                    status, body = request("GET", url)
                    if status != 200 or not body:
                        machine.error(f"GET {url} was answered with {status}")
                return kernel[2]
            if status == 200 and "sleep" not in script:
                machine.count("disk_boots")
                return None
            machine.count("boot_waits")
            self.sleep(10)
        return None

    def inspect(self, url):
        machine = self.machine
        for attempt in range(5):
            status, body = request("POST", url, inspection_data(machine.plan))
            if 0 < status < 400:
                machine.count("inspections")
                return
            # Stock agents retry only after these two kinds of replies.
            if 0 < status < 500 and status != 409:
                break
            if not self.sleep(5 + 5 * attempt):
                return
        machine.error(f"inspection data was refused: {status} {body[:300]}")

    def look_up(self, api, node_uuid=None):
        query = {"addresses": self.machine.mac}
        if node_uuid:
            query["node_uuid"] = node_uuid
        url = f"{api}/v1/lookup?{urllib.parse.urlencode(query)}"
        wait = 1.0
        while not self.ended.is_set():
            status, body = request("GET", url, version="1.62")
            if status == 200:
                found = json.loads(body)
                token = found["config"]["agent_token"]
                if len(token) >= 32:
                    self.token = token
                return found
            self.sleep(self.random.uniform(0.5, 1) * wait)
            wait = min(2 * wait, 8)
        return None

    def send_heartbeats(self, api, found):
        machine = self.machine
        if not self.token:
            return machine.error("the lookup answered without a token")
        timeout = found["config"]["heartbeat_timeout"]
        node = found["node"]["uuid"]
        self.node, self.api = node, api
        body = {
            "callback_url": f"http://127.0.0.1:{machine.rack.port}/agents/{machine.name}",
            "agent_token": self.token,
            "agent_version": VERSION,
        }
        while not self.ended.is_set():
            self.heartbeat_due.clear()
            machine.tick()
            if self.ended.is_set():
                return
            status, answer = request("POST", f"{api}/v1/heartbeat/{node}", body, "1.68")
            machine.count("heartbeats")
            wait = self.random.uniform(0.3, 0.6) * timeout
            if status != 202:
                # The last one may be in flight when its job ends.
                machine.log(f"heartbeat {status} {answer[:300]}")
                wait = self.random.uniform(5, 10)
            self.sleep(HEARTBEAT_GAP_S)
            end = time.time() + wait - HEARTBEAT_GAP_S
            while time.time() < end and not self.heartbeat_due.is_set() and self.sleep(WAIT_S):
                pass

    # The agent's own API.

    def command_list(self):
        with self.lock:
            return {"commands": [shown(result) for result in self.results]}

    def command(self, name, params, wait):
        if "." not in name or not isinstance(params, dict):
            raise Refused(400, "400 Bad Request: Missing or invalid name or params")
        extension, _, short = name.partition(".")
        handler = getattr(self, f"do_{extension}_{short}", None)
        if handler is None:
            raise Refused(400, f"Invalid command: Unknown command: {short}")
        with self.lock:
            if self.results and self.results[-1]["command_status"] == "RUNNING":
                running = self.results[-1]["command_name"]
                raise Refused(409, f"Agent is busy: executing command {running}")
            result = {
                "id": str(uuid.uuid4()),
                "command_name": short,
                "command_status": "RUNNING",
                "command_error": None,
                "command_result": None,
                "done": threading.Event(),
            }
            self.results.append(result)
        self.machine.commands.append(name)
        if name in SYNCHRONOUS:
            self.execute(handler, params, result)
        else:
            arguments = (handler, params, result)
            threading.Thread(target=self.execute, args=arguments, daemon=True).start()
            if wait:
                result["done"].wait()
        return shown(result)

    def execute(self, handler, params, result):
        try:
            result["command_result"] = handler(**params)
            result["command_status"] = "SUCCEEDED"
        except Refused:
            # An exception that the stock agent cannot serialize is never listed as done.
            self.results.remove(result)
            raise
        except Exception as error:
            kind = "CommandExecutionError" if isinstance(error, Failed) else type(error).__name__
            if not isinstance(error, Failed):
                self.machine.error(traceback.format_exc())
            result["command_status"] = "FAILED"
            result["command_error"] = {
                "type": kind,
                "code": 500,
                "message": "Command execution failed",
                "details": str(error),
            }
        finally:
            result["done"].set()
            self.heartbeat_due.set()

    def do_clean_get_clean_steps(self, node, ports):
        return {"clean_steps": steps(CLEAN_STEPS), "hardware_manager_version": MANAGER}

    def do_deploy_get_deploy_steps(self, node, ports):
        return {"deploy_steps": steps(DEPLOY_STEPS), "hardware_manager_version": MANAGER}

    def do_clean_execute_clean_step(self, step, node, ports, clean_version):
        self.check_step(step, CLEAN_STEPS)
        self.machine.steps.append(step["step"])
        self.sleep(STEP_S)
        return {"clean_result": None, "clean_step": step}

    def do_deploy_execute_deploy_step(self, step, node, ports, deploy_version):
        self.check_step(step, DEPLOY_STEPS)
        self.machine.deploy_steps.append(step["step"])
        if node["instance_info"].get("configdrive", "").startswith("H4sI"):
            self.machine.count("drives")
        if step["step"] == "write_image":
            self.write_image(**step.get("args", {}))
        self.sleep(STEP_S)
        return {"deploy_result": None, "deploy_step": step}

    def check_step(self, step, known):
        if (step["step"], step["interface"]) not in [(name, kind) for name, _, kind in known]:
            raise Failed(f"Could not find method: {step['step']}")

    def write_image(self, image_info, configdrive=None):
        # A stock agent without root device hints looks its node up again here.
        self.look_up(self.api, self.node)
        url = image_info["urls"][0]
        status, body = request("GET", url)
        digest = hashlib.new(image_info["os_hash_algo"], body).hexdigest()
        if status != 200 or digest != image_info["os_hash_value"]:
            raise Failed(f"Error downloading image: {status} for {url}, digest {digest}")
        self.machine.count("images_written")

    def do_standby_get_partition_uuids(self):
        return {"root uuid": "0x1a2b3c4d"}

    def do_image_install_bootloader(self, root_uuid, efi_system_part_uuid=None,
                                    prep_boot_part_uuid=None, target_boot_mode="bios",
                                    ignore_bootloader_failure=None):
        self.sleep(STEP_S)

    def do_standby_sync(self):
        match self.machine.plan["sync"]:
            case "unknown command":
                raise Refused(400, "Invalid command: Unknown command: sync")
            case "command failed":
                raise Failed("Error flushing file system buffers.")
            case "server error":
                raise Refused(500, "Object of type OSError is not JSON serializable")

    def do_standby_power_off(self):
        """The operating system has stopped; power is the BMC's."""
        self.ended.set()

    def do_log_collect_system_logs(self):
        return {"system_logs": base64.b64encode(gzip.compress(bytes(1024))).decode()}

    def do_poll_get_hardware_info(self):
        return inspection_data(self.machine.plan)["inventory"]


def shown(result):
    return {key: value for key, value in result.items() if key != "done"}


def steps(known):
    listed = [
        {"step": name, "priority": priority, "interface": kind, "reboot_requested": False,
         "abortable": True}
        for name, priority, kind in known
    ]
    return {"GenericHardwareManager": listed}


def inspection_data(plan):
    disk = {"name": "/dev/sda", "model": "FAKE", "size": 64 << 30, "rotational": False,
            "wwn": None, "serial": plan["name"], "vendor": None}
    boot = {"current_boot_mode": plan["boot_mode"],
            "pxe_interface": "01-" + plan["mac"].replace(":", "-")}
    inventory = {
        "interfaces": [{"name": "eth0", "mac_address": plan["mac"],
                        "ipv4_address": "127.0.0.1", "has_carrier": True}],
        "cpu": {"model_name": "fake", "frequency": "", "count": 4, "architecture": "x86_64",
                "flags": [], "socket_count": 1},
        "disks": [disk],
        "memory": {"total": 8 << 30, "physical_mb": 8192},
        "bmc_address": plan.get("bmc_address"),
        "bmc_v6address": None,
        "system_vendor": {"product_name": "fake", "serial_number": plan["name"],
                          "manufacturer": "fake",
                          "firmware": {"vendor": "", "version": "", "build_date": ""}},
        "boot": boot,
        "hostname": plan["name"],
    }
    managers = [{"name": "generic_hardware_manager", "version": "1.2"}]
    return {
        "inventory": inventory,
        "root_disk": disk,
        "boot_interface": boot["pxe_interface"],
        "configuration": {"collectors": ["default"], "managers": managers},
        "lldp_raw": {"eth0": plan.get("lldp", [])},
        "error": None,
    }
