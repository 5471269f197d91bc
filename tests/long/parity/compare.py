"""What differs between two answers. Ids are equal on both sides because the requests give them;
those that a server chooses, and times, are replaced by words."""

import json
import re

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)?")
# Ids that the requests give begin with this.
OURS = "aaaaaaaa-"
HEADERS = (
    "x-openstack-ironic-api-version",
    "x-openstack-ironic-api-minimum-version",
    "x-openstack-ironic-api-maximum-version",
    "openstack-api-version",
    "location",
    "x-openstack-request-id",
    "openstack-request-id",
)
VERSION_RANGE = HEADERS[1:3] + HEADERS[:1]
# Their text is for people, or the server's own; only the type is compared.
FREE = {"description", "last_error", "reason", "event", "driver_internal_info", "agent_token", "next",
        "alive"}
# What only the server itself reads, and the lock of a moment.
SKIPPED = {"driver_internal_info", "reservation"}
# Lists whose order means nothing.
SETS = re.compile(r"enabled_\w+_interfaces|drivers|traits|supported_boot_devices")
# Two longer texts are for people.
WORDS_MAX = 3
# Parts of error texts that scripts search for: where Ironic has one, ours must have it.
PHRASES = (
    r"Expected UUID for \w+",
    r"does not match",
    r"is too long",
    r"is too short",
    r"is not of type",
    r"is not one of",
    r"is not valid under any of the given schemas",
    r"is a required property",
    r"Additional properties are not allowed",
    r"No valid host was found\. Reason: No conductor service registered which supports driver",
    r"can't remove a non-existent object",
    r"could not be found",
    r"is locked by",
    r"Unexpected arguments",
    r"already exists",
    r"is associated with instance",
    r"while it is in state",
    r"can not be performed on node",
    r"is not valid",
    r"does not support (?!indexing)",
    r"mandatory",
    r"No handler for method",
    r"Can not delete",
    r"Request not acceptable",
    r"invalid name",
    r"Invalid input",
    r"Invalid sort direction",
    r"Limit must be positive",
    r"Couldn't apply patch",
    r"Heartbeat requires",
    r"maximum number of traits per node \(\d+ vs\. \d+\)",
    r"is not a valid sequence index",
    r"can't replace outside of list",
    r"Cannot change name to invalid name",
    r"Cannot update hardware address",
    r"can not have any connectivity attributes",
    r"Missing the following",
    r"is not a valid port",
    r"There cannot be an owner for a public runbook",
    r"should be non-empty",
    r"is less than the minimum of",
)


def plain(text, url):
    text = text.replace(url, "BASE")
    text = TIME.sub("{time}", text)
    return UUID.sub(lambda got: got[0] if got[0].startswith(OURS) else "{uuid}", text)


def kind(value):
    names = {dict: "object", list: "list", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")


def inner(answer):
    """The error document inside an error body, with the name of its form."""
    try:
        fault = json.loads(answer.body["error_message"])
        form = "faultstring" if "faultstring" in fault else "description"
        return form, fault.get(form) or ""
    except (TypeError, KeyError, ValueError):
        return "none", ""


def names_of(items):
    """What identifies the items of a list; nothing where they have no names."""
    for key in ("uuid", "name", "hostname"):
        names = [item.get(key) if isinstance(item, dict) else None for item in items]
        if items and all(isinstance(name, str) for name in names) and len(set(names)) == len(names):
            return dict(zip(names, items))
    return {}


def bodies(theirs, ours, where, free):
    """Yields what differs below one place; `theirs` and `ours` are (value, url)."""
    (their, their_url), (our, our_url) = theirs, ours
    if kind(their) != kind(our):
        yield f"{where or 'body'} is {kind(their)}, ours {kind(our)}"
    elif isinstance(their, dict):
        lacking = sorted(their.keys() - our.keys())
        added = sorted(our.keys() - their.keys())
        if lacking:
            yield f"{where or 'body'} lacks {', '.join(lacking)}"
        if added:
            yield f"{where or 'body'} has also {', '.join(added)}"
        for key in sorted((their.keys() & our.keys()) - SKIPPED):
            below = f"{where}.{key}" if where else key
            yield from bodies((their[key], their_url), (our[key], our_url), below, key in FREE)
    elif isinstance(their, list):
        if SETS.fullmatch(where.rpartition(".")[2]) and all(isinstance(one, str) for one in their + our):
            if set(their) != set(our):
                yield f"{where} differ: only Ironic {sorted(set(their) - set(our))}, " \
                      f"only ours {sorted(set(our) - set(their))}"
            return
        named, others = names_of(their), names_of(our)
        pairs = list(zip(their, our))
        if named and others:
            if named.keys() != others.keys():
                yield f"{where or 'body'} differ: only Ironic {sorted(named.keys() - others.keys())}, " \
                      f"only ours {sorted(others.keys() - named.keys())}"
            elif list(named) != list(others) and not SETS.fullmatch(where):
                yield f"{where or 'body'} are in another order"
            pairs = [(named[name], others[name]) for name in named.keys() & others.keys()]
        elif len(their) != len(our):
            yield f"{where or 'body'} has {len(their)} items, ours {len(our)}"
        for one, other in pairs:
            yield from bodies((one, their_url), (other, our_url), f"{where}[]", free)
    elif free:
        return
    elif isinstance(their, str):
        their, our = plain(their, their_url), plain(our, our_url)
        if their != our and min(len(their.split()), len(our.split())) <= WORDS_MAX:
            yield f"{where or 'body'} is {their[:80]!r}, ours {our[:80]!r}"
    elif their != our:
        yield f"{where or 'body'} is {their}, ours {our}"


def differences(theirs, ours, urls):
    """Sentences about what differs; `urls` of Ironic and of the box."""
    if theirs.status != ours.status:
        said = plain(inner(theirs)[1], urls[0])[:160]
        told = plain(inner(ours)[1], urls[1])[:160]
        yield f"status {theirs.status}, ours {ours.status}", f"{said} | {told}"
        return
    if VERSION_RANGE[0] not in theirs.headers and VERSION_RANGE[0] in ours.headers:
        yield "no version headers, ours has them", ""
        names = [name for name in HEADERS if name not in VERSION_RANGE]
    else:
        names = HEADERS
    for name in names:
        their, our = theirs.headers.get(name), ours.headers.get(name)
        their = plain(their, urls[0]) if their else their
        our = plain(our, urls[1]) if our else our
        if their != our:
            yield f"header {name} {their}, ours {our}", ""
    form = [(answer.headers.get("content-type") or "none").split(";")[0] for answer in (theirs, ours)]
    if form[0] != form[1] and (theirs.text or ours.text):
        yield f"content type {form[0]}, ours {form[1]}", ""
    if theirs.status >= 400:
        (form, said), (our_form, told) = inner(theirs), inner(ours)
        if form != our_form:
            yield f"error form {form}, ours {our_form}", f"{said[:160]} | {told[:160]}"
        for phrase in PHRASES:
            found = re.search(phrase, said)
            if found and found[0].lower() not in told.lower():
                yield f"error text lacks {found[0]!r}", f"{said[:160]} | {told[:160]}"
        return
    for sentence in bodies((theirs.body, urls[0]), (ours.body, urls[1]), "", False):
        yield sentence, ""
