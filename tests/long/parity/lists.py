"""Lists: each field as a sort key and in `fields`, filters in combination, and pages."""

import world as w
from service import Request

# Collection and the records of the world that it shows, by their first fields.
COLLECTIONS = ["nodes", "ports", "portgroups", "chassis", "volume/connectors", "volume/targets", "deploy_templates",
               "runbooks", "allocations", "conductors", "inspection_rules"]
SINGLE = {"nodes": w.BUSY, "ports": w.MEMBER, "portgroups": w.GROUP, "chassis": w.CHASSIS, "volume/connectors": w.CONNECTOR,
          "volume/targets": w.TARGET, "deploy_templates": w.TEMPLATE, "runbooks": w.RUNBOOK, "allocations": w.ALLOCATION,
          "conductors": "parity"}
# Filters of nodes, with values that some nodes have and that none has.
FILTERS = [
    ("instance_uuid", 1, [w.UNKNOWN]), ("associated", 1, ["true", "0", "odd"]), ("maintenance", 1, ["yes", "false"]),
    ("chassis_uuid", 1, [w.CHASSIS]), ("provision_state", 9, ["manageable", "available", "None", ""]),
    ("driver", 16, ["fake-hardware", ""]), ("resource_class", 21, ["large", "none", ""]), ("fault", 42, ["clean failure", ""]),
    ("conductor_group", 46, ["", "x"]), ("conductor", 49, ["parity", "other"]), ("owner", 50, ["o", "none"]),
    ("description_contains", 51, ["FIRST", "irs"]), ("retired", 61, ["true"]), ("lessee", 65, ["l"]), ("project", 65, ["l", "x"]),
    ("shard", 82, ["s1", "x,s1", ""]), ("sharded", 82, ["false"]), ("parent_node", 83, [w.MANAGED, "p-managed"]),
    ("include_children", 83, ["false", "1"]), ("instance_name", 104, ["web", "x"]),
]
PAIRS = ["maintenance=true&driver=fake-hardware", "resource_class=large&provision_state=active", "associated=false&sort_key=name",
         "retired=false&limit=2", "driver=fake-hardware&fields=uuid,driver", "maintenance=false&detail=true", "sort_key=name&sort_dir=desc&limit=2",
         f"sort_key=name&marker={w.FREE}", f"sort_key=driver&sort_dir=desc&marker={w.FRESH}&limit=3",
         f"limit=3&marker={w.FRESH}&fields=uuid", "limit=7", "limit=8", "limit=10000", "limit=2&limit=3", "limit=", "limit=1.5", "marker=p-fresh",
         "marker=x", "marker=", "sort_key=uuid", "sort_key=id", "sort_key=", "sort_dir=ASC", "sort_dir=", "fields=", "fields=uuid,uuid",
         "fields=,uuid", "fields=uuid, name", "fields=links", "fields=UUID", "detail=1", "detail=T", "detail=off", "detail=", "detail=false&fields=uuid",
         "maintenance=", "associated=", "project=", "owner=&lessee="]


def requests(both):
    for collection in COLLECTIONS:
        path = f"/v1/{collection}"
        # Not all have details.
        query = "?detail=true" if both.services[0].send(Request("GET", f"{path}?detail=true")).status == 200 else ""
        records = both.services[0].send(Request("GET", path + query)).body[collection.rpartition("/")[2]]
        names = sorted(records[0]) if records else []
        for name in names:
            for version in (115, 60):
                yield Request("GET", f"{path}?sort_key={name}", version, label=f"sort_key {name}")
                yield Request("GET", f"{path}?fields={name}", version, label=f"fields {name}")
            yield Request("GET", f"{path}?sort_key={name}&sort_dir=desc&limit=2", label=f"sort_key {name} desc")
            if collection in SINGLE:
                for version in (115, 60, 30, 7):
                    yield Request("GET", f"{path}/{SINGLE[collection]}?fields={name}", version, label=f"fields {name}")
        for query in ("limit=1", "limit=2&sort_dir=desc", "limit=x", "marker=x", f"marker={w.UNKNOWN}", "sort_dir=x", "detail=x",
                      "detail=true&limit=1", "fields=uuid&limit=1", "detail=true&fields=uuid", "sort_key=created_at"):
            yield Request("GET", f"{path}?{query}", label=query)
            yield Request("GET", f"{path}/detail?{query}", label=query)
    for name, since, values in FILTERS:
        for value in values:
            for version in sorted({since - 1, since, 115} - {0}):
                for path in ("/v1/nodes", "/v1/nodes/detail"):
                    yield Request("GET", f"{path}?{name}={value.replace(' ', '%20')}",
                                  version, label=f"{name}={value}")
    for query in PAIRS:
        for path in ("/v1/nodes", "/v1/nodes/detail"):
            yield Request("GET", f"{path}?{query.replace(' ', '%20')}", label=query)
    for version in (1, 7, 8, 43, 60, 115):
        yield Request("GET", f"/v1/nodes/{w.FRESH}?fields=uuid,driver", version, label="fields")
        yield Request("GET", "/v1/nodes?fields=uuid", version, label="fields")
        yield Request("GET", "/v1/nodes?detail=true", version, label="detail")
        yield Request("GET", f"/v1/nodes/{w.FRESH}/ports?fields=uuid", version, label="fields")
        yield Request("GET", f"/v1/nodes/{w.FRESH}/ports?detail=true", version, label="detail")
        yield Request("GET", f"/v1/nodes/{w.FRESH}/ports?limit=1", version, label="limit")
        yield Request("GET", f"/v1/nodes/{w.FRESH}/ports/detail?limit=1", version, label="limit")
        yield Request("GET", f"/v1/nodes/{w.FRESH}/portgroups?limit=1", version, label="limit")
        yield Request("GET", f"/v1/portgroups/{w.GROUP}/ports?detail=true", version, label="detail")
        yield Request("GET", f"/v1/portgroups/{w.GROUP}/ports?limit=1", version, label="limit")
        yield Request("GET", f"/v1/chassis/{w.CHASSIS}/nodes?detail=true", version, label="detail")
        yield Request("GET", f"/v1/chassis/{w.CHASSIS}/nodes?limit=1&fields=uuid", version, label="limit")
        yield Request("GET", "/v1/drivers?fields=name", version, label="fields")
        yield Request("GET", "/v1/drivers/fake-hardware?fields=name", version, label="fields")
        yield Request("GET", "/v1/drivers/ipmi/properties", version)
        yield Request("GET", "/v1/drivers/redfish/properties", version)
        for driver in ("fake-hardware", "ipmi", "redfish", "no-such"):
            yield Request("GET", f"/v1/drivers/{driver}/raid/logical_disk_properties", version)
            yield Request("GET", f"/v1/drivers/{driver}/vendor_passthru/methods", version)
            yield Request("GET", f"/v1/drivers/{driver}", version)
    for node in (w.FRESH, w.MANAGED, w.FREE, w.BUSY, w.BROKEN, w.IPMI, w.REDFISH):
        for below in ("", "/states", "/traits", "/ports", "/portgroups", "/volume", "/volume/connectors", "/volume/targets", "/bios",
                      "/firmware", "/history", "/inventory", "/children", "/vifs", "/allocation", "/vendor_passthru/methods", "/maintenance",
                      "/states/console", "/states/power", "/states/provision", "/states/raid", "/management", "/states/boot_mode",
                      "/vmedia" if node not in (w.IPMI, w.REDFISH) else "", "/validate" if node not in (w.IPMI, w.REDFISH) else "",
                      "/management/boot_device/supported", "/management/indicators"):
            if node == w.REDFISH and below.startswith("/management"):
                continue
            yield Request("GET", f"/v1/nodes/{node}{below}", label=f"{node[-1]}{below}")
