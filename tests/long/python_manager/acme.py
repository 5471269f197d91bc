"""A hardware manager of a test, for the stock Ironic Python Agent: built into its ramdisk with
`trivet-image ramdisk --hardware-manager`."""

import os

from ironic_python_agent import errors
from ironic_python_agent import hardware

DISK = "/dev/vda"
# Where the firmware of this machine is: cleaning of metadata does not touch it.
PLACE = 100 << 20


def firmware():
    """The installed version: `1` until the step has updated it."""
    with open(DISK, "rb") as disk:
        disk.seek(PLACE)
        return "2" if disk.read(4) == b"ACME" else "1"


class AcmeManager(hardware.HardwareManager):
    def evaluate_hardware_support(self):
        return hardware.HardwareSupport.SERVICE_PROVIDER

    def get_version(self):
        return {"name": "acme", "version": firmware()}

    def get_clean_steps(self, node, ports):
        def step(name, priority, reboots=False):
            return {"step": name, "priority": priority, "interface": "deploy",
                    "reboot_requested": reboots, "abortable": True}

        return [step("prepare", 100), step("update_firmware", 60, True),
                # The agent's own step: this manager passes it on.
                step("erase_devices_metadata", 50)]

    def prepare(self, node, ports):
        return "prepared"

    def update_firmware(self, node, ports):
        with open(DISK, "r+b") as disk:
            disk.seek(PLACE)
            disk.write(b"ACME")
            disk.flush()
            os.fsync(disk.fileno())
        return "updated"

    def erase_devices_metadata(self, node, ports):
        raise errors.IncompatibleHardwareMethodError()
