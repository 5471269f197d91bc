"""The machine of sushy-tools' emulator: a QEMU process that runs while the emulator says that the
system is on. The emulator sends the record of its system after each change (its
`external_notifier`). An inserted image is the medium of the CD drive; the boot device Cd or Hdd is
where BIOS boots from.

Arguments: ADDRESS PORT DIRECTORY QEMU-ARGUMENT...; DIRECTORY has afterwards `pid` while the
machine is on, `serial`, and `boots`, a line for each start: boot device, and whether an image was
inserted."""

import http.server
import json
import pathlib
import subprocess
import sys

address, port, directory, *command = sys.argv[1:]
home = pathlib.Path(directory)
running = None


def switch(record):
    global running
    is_on = record["power_state"] == "On"
    if is_on and running is None:
        device = record.get("boot_device", "Hdd")
        image = ((record.get("boot_image") or {}).get("Cd") or [None])[0]
        medium = ["-drive", f"if=none,id=cd,media=cdrom,readonly=on,file={image}"] if image else []
        cd = ["-device", "ide-cd,bus=ide.0" + (",drive=cd" if image else "")]
        order = "d" if device == "Cd" else "c"
        with open(home / "boots", "a", encoding="utf-8") as boots:
            boots.write(f"{device} {'image' if image else 'empty'}\n")
        log = open(home / "qemu", "ab")
        running = subprocess.Popen(
            ["qemu-system-x86_64", *command, *medium, *cd, "-boot", f"order={order}"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        (home / "pid").write_text(f"{running.pid}\n", encoding="utf-8")
    elif not is_on and running is not None:
        running.kill()
        running.wait()
        running = None
        (home / "pid").unlink()


class Notified(http.server.BaseHTTPRequestHandler):
    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        switch(json.loads(body))
        self.send_response(204)
        self.end_headers()


http.server.HTTPServer((address, int(port)), Notified).serve_forever()
