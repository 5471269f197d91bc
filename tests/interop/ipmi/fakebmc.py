"""pyghmi's fakebmc on a free port of loopback; prints its requests.

Its own command listens on every address of the machine and does not support reset.
"""

import socket

from pyghmi.cmd.fakebmc import FakeBmc
from pyghmi.ipmi import bmc


def say(line):
    print(line, flush=True)


class Told(FakeBmc):
    def __init__(self, port):
        bmc.Bmc.__init__(self, {"admin": "password"}, port=port, address="127.0.0.1")
        self.powerstate = "off"
        self.bootdevice = "default"

    def power_on(self):
        say("control on")
        super().power_on()

    def power_off(self):
        say("control off")
        super().power_off()

    def power_reset(self):
        say("control reset")
        super().power_reset()

    def power_shutdown(self):
        say("control soft")
        super().power_shutdown()

    def set_boot_device(self, bootdevice):
        say(f"boot {bootdevice}")
        super().set_boot_device(bootdevice)


with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
told = Told(port)
say(f"port {port}")
told.listen()
