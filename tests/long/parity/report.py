"""Groups differences and compares them with the file of known ones."""

import os
import re
import tomllib
from collections import defaultdict

import compare

KNOWN_MAX = 20
LISTED = re.compile(r" differ: only Ironic \[.*\baaaa| differ: .* only ours \[.*\baaaa| in another order| items, ours |has also next")


def template(path, query_too):
    """The path without ids, names and values."""
    path, _, query = path.partition("?")
    words = [
        "X" if compare.UUID.search(word) or word.startswith(("p-", "no-such")) else word
        for word in path.split("/")
    ]
    names = sorted({part.partition("=")[0] for part in query.split("&") if part})
    return "/".join(words) + ("?" + "&".join(names) if names and query_too else "")


def ranges(numbers):
    """1-3,5 for 1, 2, 3 and 5."""
    out = []
    for number in sorted(numbers):
        if out and out[-1][1] == number - 1:
            out[-1][1] = number
        else:
            out.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in out)


class Report:
    def __init__(self):
        self.requests = 0
        self.equal = 0
        self.found = defaultdict(lambda: {"versions": set(), "count": 0, "example": ""})

    def add(self, request, theirs, ours, urls):
        self.requests += 1
        same = True
        for sentence, example in compare.differences(theirs, ours, urls):
            same = False
            # Which request it was matters where it is refused, and where a list has other records.
            labelled = sentence.startswith(("status", "error")) or LISTED.search(sentence)
            label = request.label if labelled else ""
            self.note(f"{request.method} {template(request.path, labelled)}", label, sentence,
                      request.version, example)
        self.equal += same

    def note(self, route, label, sentence, version, example):
        entry = self.found[" ".join(filter(None, [route, f"({label})" if label else "", sentence]))]
        entry["versions"].add(version or 0)
        entry["count"] += 1
        entry["example"] = entry["example"] or example

    def lines(self):
        for line, entry in sorted(self.found.items()):
            text = f"{line} [1.{ranges(entry['versions'])}]"
            yield line, text + (f"\n      {entry['example']}" if entry["example"] else "")

    def finish(self, file):
        """Prints what is not known; True when all is known and every entry occurs."""
        with open(file, "rb") as text:
            known = tomllib.load(text).get("difference", [])
        used = [0] * len(known)
        unknown = []
        for line, text in self.lines():
            hits = [at for at, entry in enumerate(known)
                    if any(re.search(pattern, line) for pattern in entry["match"])]
            for at in hits:
                used[at] += 1
            if not hits:
                unknown.append(text)
            elif os.environ.get("KNOWN"):
                # For a reader of the file: what each entry stands for.
                print(f"KNOWN {hits[0] + 1} {text}")
        for text in unknown:
            print("DIFFERENCE", text)
        gone = [entry["reason"] for entry, count in zip(known, used) if not count]
        for reason in gone:
            print("NO LONGER DIFFERS:", reason)
        if len(known) > KNOWN_MAX:
            print(f"{len(known)} known differences, at most {KNOWN_MAX}")
        print(f"parity: {self.requests} requests, {self.equal} answered alike; "
              f"{len(unknown)} unknown differences, {sum(used)} known ones in {len(known)} entries, "
              f"{len(gone)} entries without a difference")
        return not unknown and not gone and len(known) <= KNOWN_MAX
