"""Reads: each route of the OpenAPI document at the microversions around its own, and those that
change with the microversion at all of them."""

import world as w
from service import Request

LAST = 115
# Which records stand for the words in braces; the first ones also in combinations.
WORDS = {
    "node": [w.FRESH, w.BUSY, w.IPMI, "p-free", "no-such", w.UNKNOWN],
    "port": [w.PORT, w.MEMBER, w.UNKNOWN, "no-such", "52:54:00:aa:00:00"],
    "portgroup": [w.GROUP, "p-group", w.UNKNOWN, "no-such"],
    "chassis": [w.CHASSIS, w.UNKNOWN, "no-such"],
    "driver": ["fake-hardware", "no-such"],
    "host": ["parity", "no-such"],
    "allocation": [w.ALLOCATION, "p-spare", w.UNKNOWN, "no-such"],
    "template": [w.TEMPLATE, "CUSTOM_FAST", w.UNKNOWN, "no-such"],
    "runbook": [w.RUNBOOK, "CUSTOM_BOOK", w.UNKNOWN, "no-such"],
    "rule": [w.UNKNOWN, "no-such"],
    "connector": [w.CONNECTOR, w.UNKNOWN, "no-such"],
    "target": [w.TARGET, w.UNKNOWN, "no-such"],
    "setting": ["no-such"],
    "event": [w.UNKNOWN, "no-such"],
    "light": ["system", "led@system", "no-such"],
    "method": ["no-such"],
    "trait": ["CUSTOM_A"],
}
ASKS_BMC = ("management", "vmedia", "validate")
# Routes that only the box has.
OURS = ("/trivet", "/v1/openapi.json", "/healthz", "/metrics")
EVERY_VERSION = [
    "/v1", "/v1/nodes", "/v1/nodes/detail", f"/v1/nodes/{w.FRESH}", f"/v1/nodes/{w.BUSY}",
    f"/v1/nodes/{w.BUSY}/states", f"/v1/nodes/{w.FREE}/validate", "/v1/ports", "/v1/ports/detail",
    f"/v1/ports/{w.MEMBER}", "/v1/portgroups", "/v1/portgroups/detail", f"/v1/portgroups/{w.GROUP}",
    "/v1/drivers", "/v1/drivers?detail=true", "/v1/drivers/fake-hardware", "/v1/chassis",
    f"/v1/chassis/{w.CHASSIS}", "/v1/allocations", f"/v1/allocations/{w.ALLOCATION}",
    "/v1/conductors", "/v1/deploy_templates", "/v1/runbooks", f"/v1/runbooks/{w.RUNBOOK}",
    "/v1/volume", "/v1/volume/targets", f"/v1/nodes/{w.FREE}/traits",
]
LISTS = {
    "/v1/nodes": ["detail=true", "detail=false", "detail=maybe", "fields=uuid,name", "fields=uuid&fields=extra",
                  "fields=no_such", "fields=uuid&detail=true", "limit=2", "limit=0", "limit=-1", "limit=x",
                  f"marker={w.FRESH}", f"marker={w.UNKNOWN}", "sort_key=name", "sort_key=no_such",
                  "sort_key=extra", "sort_dir=desc", "sort_dir=up", f"instance_uuid={w.UNKNOWN}",
                  "instance_uuid=x", "associated=true", "associated=x", "maintenance=true",
                  "provision_state=active", "provision_state=odd", "driver=ipmi", "driver=odd",
                  "resource_class=small", "fault=odd", "fault=power%20failure", "fault=none",
                  "conductor_group=", "conductor_group=a", "conductor=parity", "owner=o", "lessee=l",
                  "project=o", "description_contains=irs", f"chassis_uuid={w.CHASSIS}",
                  "chassis_uuid=x", f"chassis_uuid={w.UNKNOWN}", "retired=true", "retired=false", "shard=s1",
                  "shard=s1,s2", "sharded=true", f"parent_node={w.FRESH}", "parent_node=no-such",
                  "include_children=true", "instance_name=web", "nonsense=1"],
    "/v1/ports": ["detail=true", "fields=uuid,address", "fields=no_such", "address=52:54:00:AA:00:00",
                  "address=x", "node=p-fresh", f"node={w.FRESH}", f"node_uuid={w.UNKNOWN}", "node_uuid=x",
                  f"node_uuid={w.FRESH}", "node=no-such", f"portgroup={w.GROUP}", "portgroup=p-group",
                  "portgroup=no-such", "shard=s1", "limit=1", "limit=0", "sort_key=address", "sort_key=extra",
                  "sort_key=no_such", "nonsense=1", "description_contains=x", "conductor_groups=a"],
    "/v1/ports/detail": ["limit=1", f"node={w.FRESH}", "fields=uuid", "address=52:54:00:aa:00:00"],
    "/v1/portgroups": ["detail=true", "fields=uuid,name", "fields=no_such", "node=p-fresh", "address=x",
                       "limit=1", "sort_key=name", "sort_key=extra", "nonsense=1", "conductor_groups=a"],
    "/v1/chassis": ["detail=true", "fields=uuid", "fields=no_such", "limit=1", "sort_key=extra", "nonsense=1"],
    "/v1/drivers": ["detail=true", "type=classic", "type=dynamic", "type=odd", "fields=name",
                    "fields=name,type", "fields=no_such", "fields=name&detail=true", "nonsense=1"],
    "/v1/drivers/fake-hardware": ["fields=name", "fields=no_such", "nonsense=1"],
    "/v1/conductors": ["detail=true", "fields=hostname", "fields=no_such", "sort_key=hostname", "limit=1",
                       "nonsense=1"],
    "/v1/allocations": ["fields=uuid", "fields=no_such", "state=error", "state=odd", "resource_class=x",
                        "node=p-free", "node=no-such", "owner=o", "limit=1", "sort_key=name",
                        "sort_key=no_such", "nonsense=1"],
    "/v1/deploy_templates": ["detail=true", "fields=uuid", "fields=no_such", "limit=1", "sort_key=name",
                             "sort_key=steps", "nonsense=1"],
    "/v1/runbooks": ["detail=true", "fields=uuid", "fields=no_such", "limit=1", "project=x", "nonsense=1"],
    "/v1/inspection_rules": ["detail=true", "limit=1", "nonsense=1"],
    "/v1/shards": ["nonsense=1"],
    "/v1/volume/connectors": ["detail=true", "fields=uuid", "fields=no_such", "node=p-fresh", "limit=1",
                              "detail=true&fields=uuid", "nonsense=1"],
    "/v1/volume/targets": ["detail=true", "fields=uuid", "fields=no_such", "node=p-fresh", "limit=1",
                           "nonsense=1"],
    f"/v1/nodes/{w.FRESH}": ["fields=uuid", "fields=uuid,name,extra", "fields=no_such", "detail=true", "nonsense=1"],
    f"/v1/nodes/{w.FRESH}/bios": ["detail=true", "fields=name", "nonsense=1"],
    f"/v1/nodes/{w.FRESH}/history": ["detail=true", "limit=1", "nonsense=1"],
    f"/v1/nodes/{w.FRESH}/volume/connectors": ["detail=true", "fields=uuid"],
    f"/v1/nodes/{w.FRESH}/ports": ["detail=true", "fields=uuid"],
    f"/v1/nodes/{w.FRESH}/portgroups": ["detail=true", "fields=uuid"],
    "/v1/lookup": ["", "addresses=x", "addresses=52:54:00:aa:00:00", f"node_uuid={w.FRESH}",
                   f"node_uuid={w.UNKNOWN}", "node_uuid=x", "nonsense=1"],
}
# Other forms of paths: without /v1, with suffixes, with slashes.
FORMS = [
    f"/nodes/{w.FRESH}", "/nodes", "/nodes/p-fresh", f"/nodes/{w.FRESH}/ports", "/nodes/detail",
    f"/ports/{w.PORT}", "/ports/detail?limit=1", "/ports", "/drivers", "/drivers/fake-hardware",
    "/drivers/fake-hardware/properties", f"/chassis/{w.CHASSIS}", f"/portgroups/{w.GROUP}",
    f"/volume/targets/{w.TARGET}", f"/allocations/{w.ALLOCATION}", f"/deploy_templates/{w.TEMPLATE}",
    f"/runbooks/{w.RUNBOOK}", f"/nodes/{w.FRESH}/states", "/conductors", "/conductors/parity", "/shards",
    f"/v1/nodes/{w.FRESH}.json", "/v1/nodes/p-fresh.json", f"/v1/ports/{w.PORT}.json",
    f"/v1/portgroups/{w.GROUP}.json", "/v1/portgroups/p-group.json", f"/v1/deploy_templates/{w.TEMPLATE}.json",
    "/v1/deploy_templates/CUSTOM_FAST.json", f"/v1/allocations/{w.ALLOCATION}.json",
    "/v1/allocations/p-spare.json", f"/v1/runbooks/{w.RUNBOOK}.json", f"/v1/chassis/{w.CHASSIS}.json",
    "/v1/drivers/fake-hardware.json", f"/v1/volume/targets/{w.TARGET}.json", "/v1/nodes.json",
    f"/v1/nodes/{w.FRESH}/states.json", "/v1/nodes/", f"/v1/nodes/{w.FRESH}/", "/v1/", "/v1/ports/", "/v2",
    "/v1/no-such", "/no-such", "/v1/nodes/states/console/p-fresh", f"/v1/nodes/{w.FRESH}/no-such",
    f"/v1/nodes/{w.FRESH}/states/no-such", f"/v1/nodes/{w.FRESH}/management", f"/v1/nodes/{w.FRESH}/vendor_passthru",
    f"/v1/nodes/{w.FRESH}/management/boot_device/no-such", "/v1/nodes/validate?node=p-fresh",
    f"/v1/nodes/validate?node_uuid={w.FRESH}", "/v1/nodes/states?node_ident=p-fresh", "/v1/nodes/p%2Dfresh",
]


def expand(path):
    """The path with each record for its first word; the others with their first record."""
    words = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    if not words:
        yield path
        return
    for record in WORDS[words[0]]:
        # Where a BMC is asked, only nodes that have none.
        if record == w.IPMI and any(word in path for word in ASKS_BMC):
            continue
        for last in WORDS[words[-1]] if len(words) > 1 and record == WORDS[words[0]][0] else [None]:
            out = path.replace("{%s}" % words[0], record)
            if len(words) > 1:
                out = out.replace("{%s}" % words[-1], last or WORDS[words[-1]][0])
            yield out


def around(since):
    return sorted({1, max(since - 1, 1), since, min(since + 1, LAST), LAST})


def routes(document, reads):
    for path, methods in document["paths"].items():
        for method, row in methods.items():
            if (method == "get") == reads and not path.startswith(OURS):
                since = int(row["x-since"].split(".")[1])
                names = [one["name"] for one in row["parameters"] if one.get("in") == "query"]
                since_of = {one["name"]: int(one["x-since"].split(".")[1])
                            for one in row["parameters"] if one.get("in") == "query"}
                yield method.upper(), path, since, names, since_of


def requests(document):
    for _, path, since, _, since_of in routes(document, True):
        for at, concrete in enumerate(expand(path)):
            for version in around(since) if at < 2 else [LAST]:
                yield Request("GET", concrete, version, label="" if at == 0 else "other")
        concrete = next(expand(path))
        for name, first in since_of.items():
            if first > since:
                for version in (first - 1, first):
                    value = {"detail": "true", "fields": "uuid"}.get(name, "x")
                    yield Request("GET", f"{concrete}?{name}={value}", version)
    for path in EVERY_VERSION:
        for version in range(1, LAST + 1):
            yield Request("GET", path, version)
    for path, queries in LISTS.items():
        for query in queries:
            for version in (LAST, 95, 60):
                yield Request("GET", f"{path}?{query}", version, label=query)
    for path in FORMS:
        for version in (1, 32, 60, 90, 91, LAST):
            yield Request("GET", path, version, label="form")
    for headers in ({"OpenStack-API-Version": "baremetal 1.50"}, {"OpenStack-API-Version": "baremetal latest"},
                    {"OpenStack-API-Version": "compute 2.1"}, {"X-OpenStack-Ironic-API-Version": "latest"},
                    {"X-OpenStack-Ironic-API-Version": "1.999"}, {"X-OpenStack-Ironic-API-Version": "2.1"},
                    {"X-OpenStack-Ironic-API-Version": "x"}, {"X-OpenStack-Ironic-API-Version": ""},
                    {"OpenStack-API-Version": "baremetal 1.50", "X-OpenStack-Ironic-API-Version": "1.99"},
                    {"OpenStack-API-Version": "compute 2.1", "X-OpenStack-Ironic-API-Version": "1.99"},
                    {"Accept": "text/html"}, {"Accept": "application/xml"}, {"Accept": "*/*"}, {}):
        for path in ("/", "/v1", "/v1/nodes", f"/v1/nodes/{w.FRESH}"):
            yield Request("GET", path, None, headers=headers, label=f"headers {headers}")
    for method in ("HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "POST"):
        for path in ("/", "/v1", "/v1/nodes/detail", "/v1/drivers", "/v1/conductors", "/v1/shards", "/v1/volume"):
            yield Request(method, path, label="method")
