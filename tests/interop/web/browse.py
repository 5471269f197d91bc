"""Opens a page in Chromium and waits until its text matches every pattern.

usage: browse.py PROFILE ADDRESS SECONDS [--screenshot FILE] PATTERN...
Prints the text and every error of the browser; exit code 0 if all matched without
errors. Uses the DevTools protocol over a pipe, because a dump at load time is made
before the page has data from the box.
"""
import base64
import json
import os
import re
import select
import subprocess
import sys
import time

FLAGS = """--headless --no-sandbox --disable-gpu --no-first-run --disable-dev-shm-usage
    --disable-background-networking --disable-component-update --disable-sync
    --window-size=1280,800 --remote-debugging-pipe""".split()
COMPLAINTS = ("Runtime.exceptionThrown", "Log.entryAdded", "Network.loadingFailed")


class Browser:
    """Chromium on a pipe: it reads commands on descriptor 3 and replies on 4."""

    def __init__(self, profile):
        orders, self.out = os.pipe()
        self.answers, back = os.pipe()
        # A shell assigns the descriptors that Chromium expects; exec keeps the pid.
        command = f'exec chromium "$@" 3<&{orders} 4>&{back}'
        self.process = subprocess.Popen(
            ["bash", "-c", command, "bash", *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(orders, back), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(orders)
        os.close(back)
        self.received = b""
        self.number = 0
        self.session = None
        self.complaints = []

    def message(self, end):
        while b"\0" not in self.received:
            ready, _, _ = select.select([self.answers], [], [], max(0, end - time.monotonic()))
            piece = os.read(self.answers, 1 << 20) if ready else b""
            if not piece:
                raise SystemExit("the browser is silent or gone")
            self.received += piece
        one, self.received = self.received.split(b"\0", 1)
        return json.loads(one)

    def call(self, method, **params):
        self.number += 1
        order = {"id": self.number, "method": method, "params": params}
        if self.session:
            order["sessionId"] = self.session
        os.write(self.out, json.dumps(order).encode() + b"\0")
        end = time.monotonic() + 60
        while True:
            message = self.message(end)
            if message.get("method") in COMPLAINTS:
                self.complaints.append(json.dumps(message["params"])[:500])
            if message.get("id") == self.number:
                if "error" in message:
                    raise SystemExit(f"{method}: {message['error']}")
                return message["result"]


# The part of the page that the README shows, small enough to be kept in the repository.
PICTURE = {"x": 0, "y": 0, "width": 1264, "height": 560, "scale": 0.75}


def watch(browser, address, seconds, patterns, screenshot):
    target = browser.call("Target.createTarget", url="about:blank")["targetId"]
    attached = browser.call("Target.attachToTarget", targetId=target, flatten=True)
    browser.session = attached["sessionId"]
    for domain in ("Runtime", "Log", "Network", "Page"):
        browser.call(f"{domain}.enable")
    browser.call("Page.navigate", url=address)
    end = time.monotonic() + seconds
    while True:
        result = browser.call("Runtime.evaluate", expression="document.body.innerText")
        text = result["result"].get("value", "")
        missing = [one for one in patterns if not re.search(one, text)]
        if not missing or time.monotonic() > end:
            break
        time.sleep(0.2)
    if screenshot:
        data = browser.call("Page.captureScreenshot", clip=PICTURE)["data"]
        with open(screenshot, "wb") as file:
            file.write(base64.b64decode(data))
    return text, missing


def main():
    profile, address, seconds, *patterns = sys.argv[1:]
    screenshot = None
    if patterns[0] == "--screenshot":
        _, screenshot, *patterns = patterns
    browser = Browser(profile)
    try:
        text, missing = watch(browser, address, int(seconds), patterns, screenshot)
    finally:
        browser.process.terminate()
        browser.process.wait(30)
    print(text)
    for one in missing:
        print("MISSING", one)
    for one in browser.complaints:
        print("COMPLAINT", one)
    return 1 if missing or browser.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
