"""Inspects two machines with python-ironic-inspector-client.

drive.py URL NODE NODE: prints a line per check, ends with 1 if one failed.
"""

import sys
import time

import ironic_inspector_client as inspector

url, first, second = sys.argv[1:]
failures = 0


def check(name, good, got=None):
    global failures
    failures += not good
    print("ok" if good else "FAILED", name, "" if good else repr(got))


def refused(name, status, words, call):
    try:
        got = call()
    except inspector.ClientError as error:
        text = str(error)
        got = (error.response.status_code, text)
        check(name, error.response.status_code == status and words in text, got)
    else:
        check(name, False, got)


client = inspector.ClientV1(inspector_url=url, api_version=(1, 18))
check("versions", client.server_api_versions() == ((1, 0), (1, 18)))
try:
    inspector.ClientV1(inspector_url=url, api_version=(1, 99))
    check("a version that is too new", False)
except inspector.VersionNotSupported:
    check("a version that is too new", True)

refused("no such node", 404, "nobody", lambda: client.get_status("nobody"))
refused("no introspection of nobody", 404, "nobody", lambda: client.introspect("nobody"))
refused(
    "boot not managed", 400, "manage_boot",
    lambda: client.introspect(first, manage_boot=False),
)

# One inspection runs to its end.
client.introspect(first)
status = client.get_status(first)
uuid = status["uuid"]
check("it has begun", not status["finished"] and status["state"] != "error", status)
check("it began some time", status["started_at"] is not None, status)
check("its link", status["links"][0]["href"].endswith("/v1/introspection/" + uuid), status)
refused("not twice", 400, "inspect", lambda: client.introspect(first))
done = client.wait_for_finish([first], retry_interval=1, max_retries=240)[first]
check("it has ended", done["finished"] and done["error"] is None, done)
check("its state", done["state"] == "finished", done)
check("its times", done["started_at"] <= done["finished_at"], done)

# Its inventory.
data = client.get_data(first)
check("the inventory", data["inventory"]["memory"]["physical_mb"] > 0, list(data))
check("processed", data["memory_mb"] > 0 and data["cpu_arch"] == "x86_64", list(data))
names = list(data["all_interfaces"])
rows = client.get_all_interface_data(first, ["interface", "mac"])
check("the interfaces", len(rows) == len(names) > 0, rows)
check("their addresses", rows[0][1].startswith("52:54:00:77:"), rows)
raw = client.get_data(first, processed=False)
check("unprocessed", "inventory" in raw, list(raw))
refused("not applied again", 400, "inspect the node again", lambda: client.reprocess(first))

# The other is aborted once it waits.
client.introspect(second)
for _ in range(2400):
    status = client.get_status(second)
    if status["finished"]:
        break
    try:
        client.abort(second)
        break
    except inspector.ClientError as error:
        if error.response.status_code != 409:
            check("abort", False, str(error))
            break
    time.sleep(0.02)
status = client.get_status(second)
# A simulated machine may be faster than this script.
check("aborted, or done before", status["finished"], status)
if status["state"] == "error":
    check("the reason", "aborted" in status["error"], status)

# Lists, newest first.
both = client.list_statuses()
check("both are listed", len(both) == 2, both)
check("newest first", both[0]["started_at"] >= both[1]["started_at"], both)
page = client.list_statuses(limit=1)
check("a page", [one["uuid"] for one in page] == [both[0]["uuid"]], page)
page = client.list_statuses(limit=1, marker=page[0]["uuid"])
check("the next page", [one["uuid"] for one in page] == [both[1]["uuid"]], page)
refused("a limit that is too high", 400, "Limit", lambda: client.list_statuses(limit=9999))
sys.exit(failures != 0)
