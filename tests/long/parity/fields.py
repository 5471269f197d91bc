"""Each field of each record with a value of each type: in a new record, and in patches."""

import world as w
from service import Request
from world import uid

# `add` and `replace` differ only where the place is missing; one of them is enough here.
VALUES = {
    "5": 5, "-1": -1, "text": "x", "''": "", "true": True, "'true'": "true", "null": None, "list": ["x"], "object": {"k": 1},
    "uuid": w.UNKNOWN, "long": "x" * 300, "spaces": " a b ", "letters": "\u00e9\u00f8",
}
NEW = uid(501)
# Collection, and what a new record needs.
RECORDS = {
    "nodes": {"driver": "fake-hardware"},
    "ports": {"node_uuid": w.MANAGED, "address": "52:54:00:dd:00:01"},
    "portgroups": {"node_uuid": w.MANAGED},
    "chassis": {},
    "volume/connectors": {"node_uuid": w.FRESH, "type": "wwpn", "connector_id": "d"},
    "volume/targets": {"node_uuid": w.FRESH, "volume_type": "fc", "boot_index": 7, "volume_id": "d"},
    "deploy_templates": {"name": "CUSTOM_D", "steps": [{"interface": "bios", "step": "s", "args": {}, "priority": 1}]},
    "runbooks": {"name": "CUSTOM_D", "steps": [{"interface": "bios", "step": "s", "args": {}, "order": 1}]},
    "allocations": {"resource_class": "none-such"},
}
# Of a node they have effects beside the record.
SKIPPED = {"nodes": {"maintenance"}}


def requests(both):
    for collection, needed in RECORDS.items():
        path = f"/v1/{collection}"
        new = {**needed, "uuid": NEW}
        yield Request("POST", path, body=new, label="new")
        record = both.services[0].send(Request("GET", f"{path}/{NEW}")).body
        names = sorted(record.keys() - SKIPPED.get(collection, set()) - {"links", "uuid"})
        for name in names:
            for label, value in VALUES.items():
                change = {"op": "add", "path": f"/{name}", "value": value}
                yield Request("PATCH", f"{path}/{NEW}", body=[change], label=f"{name} {label}")
            if name in needed:
                change = {"op": "replace", "path": f"/{name}", "value": needed[name]}
                yield Request("PATCH", f"{path}/{NEW}", body=[change], label=f"{name} back")
            else:
                yield Request("PATCH", f"{path}/{NEW}", body=[{"op": "remove", "path": f"/{name}"}], label=f"{name} removed")
            yield Request("PATCH", f"{path}/{NEW}", body=[{"op": "remove", "path": f"/{name}/none"}], label=f"{name} below")
        yield Request("GET", f"{path}/{NEW}", label="patched")
        yield Request("DELETE", f"{path}/{NEW}", label="new")
        for name in names:
            for label, value in VALUES.items():
                yield Request("POST", path, body={**new, name: value}, label=f"{name} {label}")
                if name == "instance_uuid":
                    yield Request("PATCH", f"{path}/{NEW}", body=[{"op": "remove", "path": "/instance_uuid"}], label="freed")
                # Where only one of the two has accepted it, the other has nothing to delete.
                yield w.removed(f"{path}/{NEW}")
