"""Compares the inventories of two agents in the same machine, field by field.

Arguments: OURS STOCK DIFFERENCES, files of `baremetal node inventory save` and a list of known
differences. Prints each difference that is not listed and each entry of the list that did not
occur; the exit code is 1 if there is one."""

import fnmatch
import json
import sys
import tomllib

# What names an element of a list; the order of the elements has no meaning.
KEYS = {"disks": "name", "interfaces": "mac_address"}
SETS = {"cpu.flags"}
ABSENT = "absent"


def fields(value, path=""):
    """Each leaf: its path and its value."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from fields(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and path in SETS:
        yield path, sorted(value)
    elif isinstance(value, list) and path in KEYS:
        for item in value:
            yield from fields(item, f"{path}[{item[KEYS[path]]}]")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from fields(item, f"{path}[{number}]")
        if not value:
            yield path, []
    elif path.endswith(".ipv6_address") and value:
        # The zone is the name of the interface, which is compared on its own.
        yield path, value.split("%")[0]
    else:
        yield path, value


def inventory(path):
    with open(path, encoding="utf-8") as file:
        return dict(fields(json.load(file)["inventory"]))


def main():
    ours, stock = inventory(sys.argv[1]), inventory(sys.argv[2])
    with open(sys.argv[3], "rb") as file:
        known = tomllib.load(file).get("difference", [])
    occurred = set()
    unknown = 0
    for path in sorted(ours.keys() | stock.keys()):
        one, other = ours.get(path, ABSENT), stock.get(path, ABSENT)
        if one == other and type(one) is type(other):
            continue
        # A bracket is no pattern here.
        name = path.replace("[", "<").replace("]", ">")
        for number, entry in enumerate(known):
            field = entry["field"].replace("[", "<").replace("]", ">")
            if fnmatch.fnmatchcase(name, field):
                occurred.add(number)
                break
        else:
            unknown += 1
            if path in SETS and ABSENT not in (one, other):
                one, other = sorted(set(one) - set(other)), sorted(set(other) - set(one))
            print(f"{path}: ours {one!r}, stock {other!r}")
    for number, entry in enumerate(known):
        if number not in occurred and not entry.get("sometimes"):
            unknown += 1
            print(f"{entry['field']}: is in the list of differences, and does not differ")
    same = sum(ours[path] == stock.get(path, ABSENT) for path in ours)
    print(f"{same} fields are the same, {len(occurred)} of {len(known)} known differences")
    sys.exit(1 if unknown else 0)


main()
