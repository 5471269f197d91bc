"""Right requests in the order in which clients send them: allocations, templates, runbooks, RAID,
BIOS settings, and a machine from enrol to delete."""

import world as w
from service import Request
from world import settled, uid

A, B, C = uid(301), uid(302), uid(303)
FIRST, SECOND, THIRD, FOURTH = (uid(number) for number in range(311, 315))


def get(path, label=""):
    return Request("GET", path, label=label)


def patch(path, *changes, label=""):
    body = [dict(zip(("op", "path", "value"), change)) for change in changes]
    return Request("PATCH", path, body=body, label=label)


def wait_for_allocation(ident):
    def wait(both):
        for service in both.services:
            for _ in range(200):
                if (service.send(get(f"/v1/allocations/{ident}")).body or {}).get("state") != "allocating":
                    break
    return wait


def allocate(label, ident, **body):
    yield Request("POST", "/v1/allocations", body={"uuid": ident, **body}, label=label)
    yield wait_for_allocation(ident)
    yield get(f"/v1/allocations/{ident}", label)


def allocations():
    for ident, name in [(A, "p-a"), (B, "p-b"), (C, "p-c")]:
        yield from w.node(ident, name, resource_class="baremetal", automated_clean=False)
    for ident in (A, B):
        yield from w.verb(ident, "manage")
        # A node whose power state is not known is not allocated.
        yield Request("PUT", f"/v1/nodes/{ident}/states/power", body={"target": "power off"})
        yield settled(ident)
        yield from w.verb(ident, "provide")
    yield Request("PUT", f"/v1/nodes/{B}/traits", body={"traits": ["CUSTOM_GPU"]})
    yield from allocate("by trait", FIRST, resource_class="baremetal", traits=["CUSTOM_GPU"], name="p-first")
    for path in (f"/v1/nodes/{B}/allocation", f"/v1/nodes/{B}", f"/v1/nodes/{A}/allocation", f"/v1/nodes/{B}/allocation?fields=uuid",
                 f"/v1/allocations?node={B}", "/v1/allocations?state=active", "/v1/allocations?resource_class=baremetal"):
        yield get(path, "allocated")
    yield Request("GET", f"/v1/nodes/{B}/allocation", 52, label="oldest")
    yield from allocate("candidate taken", SECOND, resource_class="baremetal", candidate_nodes=[B])
    yield from allocate("candidate by name", THIRD, resource_class="baremetal", candidate_nodes=["p-a"])
    yield Request("POST", "/v1/allocations", body={"resource_class": "baremetal", "name": "p-first"}, label="name taken")
    yield patch(f"/v1/allocations/{FIRST}", ("add", "/name", "p-renamed"), ("add", "/extra/k", 1))
    yield patch(f"/v1/allocations/{FIRST}", ("replace", "/node_uuid", A), label="node")
    yield Request("DELETE", f"/v1/nodes/{A}/allocation")
    yield get(f"/v1/allocations/{THIRD}", "gone")
    yield get(f"/v1/nodes/{A}", "freed")
    yield patch(f"/v1/nodes/{B}", ("remove", "/instance_uuid"), label="instance of an allocation")
    yield get(f"/v1/allocations/{FIRST}", "without its instance")
    yield Request("DELETE", f"/v1/allocations/{SECOND}")
    # Backfill.
    yield patch(f"/v1/nodes/{w.BUSY}", ("add", "/instance_uuid", FOURTH), label="instance of an active node")
    yield from allocate("backfill", FOURTH, node=w.BUSY)
    yield get(f"/v1/nodes/{w.BUSY}/allocation", "backfilled")
    yield Request("DELETE", f"/v1/allocations/{FOURTH}", label="of an active node")
    for label, body in {"available": {"node": A}, "with class": {"node": w.BUSY, "resource_class": "other"}, "unknown": {"node": w.UNKNOWN},
                        "with candidates": {"node": w.BUSY, "candidate_nodes": [A]}, "again": {"node": w.BUSY}}.items():
        yield Request("POST", "/v1/allocations", body=body, label=f"backfill {label}")
    yield Request("POST", "/v1/allocations", 57, {"node": w.BUSY}, label="backfill too new")


def settings():
    steps = [{"interface": "bios", "step": "apply_configuration",
              "args": {"settings": [{"name": "Virt", "value": "on"}, {"name": "Boot", "value": "UEFI"}]}}]
    yield from w.verb(C, "manage")
    yield from w.verb(C, "clean", clean_steps=steps)
    for path in ("", "?detail=true", "/Virt", "/none", "?fields=name,value"):
        yield get(f"/v1/nodes/{C}/bios{path}")
    yield from w.verb(C, "clean", clean_steps=[{"interface": "bios", "step": "factory_reset"}])
    yield get(f"/v1/nodes/{C}/bios", "reset")
    yield from w.verb(C, "clean", clean_steps=[{"interface": "deploy", "step": "no_such_step"}])
    yield get(f"/v1/nodes/{C}", "failed clean")
    yield get(f"/v1/nodes/{C}/history", "failed clean")
    yield from w.verb(C, "manage")
    yield Request("PUT", f"/v1/nodes/{C}/states/raid", body={"logical_disks": [{"size_gb": 100, "raid_level": "1", "is_root_volume": True}]})
    yield get(f"/v1/nodes/{C}/states", "raid")
    yield from w.verb(C, "clean", clean_steps=[{"interface": "raid", "step": "delete_configuration"},
                                               {"interface": "raid", "step": "create_configuration"}])
    yield get(f"/v1/nodes/{C}", "raid")
    yield Request("PUT", f"/v1/nodes/{C}/states/raid", body={})
    for mode in ("uefi", "bios"):
        yield Request("PUT", f"/v1/nodes/{C}/states/boot_mode", body={"target": mode})
        yield settled(C)
    for on in (True, False, "on"):
        yield Request("PUT", f"/v1/nodes/{C}/states/secure_boot", body={"target": on})
        yield settled(C)
    yield get(f"/v1/nodes/{C}/states", "boot mode")
    book = uid(321)
    yield Request("POST", "/v1/runbooks", body={"uuid": book, "name": "CUSTOM_P", "public": True, "extra": {"k": 1}, "description": "d",
                                                "steps": [{"interface": "bios", "step": "factory_reset", "args": {}, "order": 1}]})
    yield Request("PUT", f"/v1/nodes/{C}/states/provision", body={"target": "clean", "runbook": "CUSTOM_P"}, label="without the trait")
    yield settled(C)
    yield Request("PUT", f"/v1/nodes/{C}/traits/CUSTOM_P")
    yield from w.verb(C, "clean", runbook="CUSTOM_P")
    yield get(f"/v1/nodes/{C}", "runbook")
    for path in (f"/v1/runbooks/{book}/traits", "/v1/runbooks/CUSTOM_P", "/v1/runbooks?detail=true"):
        yield get(path)
    yield Request("PUT", f"/v1/runbooks/{book}/traits", body={"traits": ["CUSTOM_Q"]})
    yield Request("PUT", f"/v1/runbooks/{book}/traits/CUSTOM_R")
    yield get(f"/v1/runbooks/{book}/traits", "set")
    yield Request("DELETE", f"/v1/runbooks/{book}/traits/CUSTOM_R")
    yield Request("DELETE", f"/v1/runbooks/{book}/traits")
    yield Request("DELETE", f"/v1/runbooks/{book}")
    template = uid(331)
    yield Request("POST", "/v1/deploy_templates", body={"uuid": template, "name": "CUSTOM_T", "extra": {"k": 1},
                                                        "steps": [{"interface": "bios", "step": "factory_reset", "args": {}, "priority": 9}]})
    yield patch(f"/v1/deploy_templates/{template}", ("replace", "/name", "CUSTOM_U"), ("replace", "/steps/0/priority", 5))
    yield get(f"/v1/deploy_templates/{template}")
    yield Request("DELETE", f"/v1/deploy_templates/{template}")


def life():
    one = uid(341)
    yield from w.node(one, "p-life")
    for target in ("manage", "inspect"):
        yield from w.verb(one, target)
        yield get(f"/v1/nodes/{one}", target)
    yield get(f"/v1/nodes/{one}/inventory", "inspected")
    yield from w.verb(one, "provide")
    yield get(f"/v1/nodes/{one}", "provide")
    yield patch(f"/v1/nodes/{one}", ("add", "/instance_info/image_source", "http://127.0.0.1:1/i.raw"),
                ("add", "/instance_info/image_checksum", "0" * 64), ("add", "/instance_info/capabilities", {"a": "b"}))
    yield get(f"/v1/nodes/{one}/validate", "life")
    yield from w.verb(one, "active", configdrive={"meta_data": {"a": 1}, "user_data": "x"})
    yield get(f"/v1/nodes/{one}", "active")
    yield patch(f"/v1/nodes/{one}", ("add", "/protected", True), ("add", "/protected_reason", "mine"))
    for target in ("deleted", "rebuild"):
        yield Request("PUT", f"/v1/nodes/{one}/states/provision", body={"target": target}, label=f"protected {target}")
    yield Request("DELETE", f"/v1/nodes/{one}", label="protected")
    yield patch(f"/v1/nodes/{one}", ("replace", "/protected", False))
    yield get(f"/v1/nodes/{one}", "unprotected")
    yield from w.verb(one, "rebuild")
    yield from w.verb(one, "rescue", rescue_password="secret")
    yield get(f"/v1/nodes/{one}", "rescue")
    yield from w.verb(one, "unrescue")
    yield Request("DELETE", f"/v1/nodes/{one}", label="active")
    yield from w.verb(one, "service", service_steps=[{"interface": "bios", "step": "factory_reset"}])
    yield get(f"/v1/nodes/{one}", "service")
    yield from w.verb(one, "deleted")
    yield get(f"/v1/nodes/{one}", "deleted")
    yield patch(f"/v1/nodes/{one}", ("add", "/retired", True), ("add", "/retired_reason", "old"))
    yield Request("PUT", f"/v1/nodes/{one}/states/provision", body={"target": "active"}, label="retired")
    yield settled(one)
    yield from w.verb(one, "manage")
    yield Request("PUT", f"/v1/nodes/{one}/states/provision", body={"target": "provide"}, label="retired")
    yield patch(f"/v1/nodes/{one}", ("replace", "/retired", False))
    yield from w.verb(one, "adopt")
    yield get(f"/v1/nodes/{one}", "adopt")
    yield Request("PUT", f"/v1/nodes/{one}/maintenance", body={"reason": "x"})
    yield Request("PUT", f"/v1/nodes/{one}/states/provision", body={"target": "deleted"}, label="in maintenance")
    yield settled(one)
    yield get(f"/v1/nodes/{one}", "in maintenance")
    yield Request("DELETE", f"/v1/nodes/{one}", label="in maintenance")
    yield get(f"/v1/nodes/{one}", "gone")


def requests():
    for part in (allocations(), settings(), life()):
        yield from part
