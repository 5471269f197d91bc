#!/usr/bin/env python3
"""Prints the line coverage of each core crate: coverage.py COVERAGE.json ratios.txt

The first file is what `cargo llvm-cov --json --summary-only` writes, the second lists the
core crates. A file belongs to the crate with the longest path that it is below.
"""

import json
import os
import sys

GOAL_PERCENT = 90


def main(coverage, ratios):
    with open(ratios, encoding="ascii") as lines:
        crates = [line.split()[0] for line in lines if line.strip() and line[0] != "#"]
    with open(coverage, encoding="utf-8") as text:
        files = json.load(text)["data"][0]["files"]
    totals = {crate: [0, 0] for crate in crates}
    for file in files:
        path = os.path.relpath(file["filename"])
        owners = [crate for crate in crates if path.startswith(crate + "/src/")]
        if owners:
            total = totals[max(owners, key=len)]
            total[0] += file["summary"]["lines"]["covered"]
            total[1] += file["summary"]["lines"]["count"]
    covered = sum(total[0] for total in totals.values())
    count = sum(total[1] for total in totals.values())
    if count == 0:
        sys.exit("coverage.py: the report has no line of a core crate")
    for crate, (lines, all_lines) in sorted(totals.items(), key=lambda item: rate(item[1])):
        below = "  below the goal" if rate((lines, all_lines)) < GOAL_PERCENT else ""
        print(f"{rate((lines, all_lines)):6.1f} %  {lines:6} of {all_lines:6}  {crate}{below}")
    print(f"{rate((covered, count)):6.1f} %  {covered:6} of {count:6}  all; the goal is {GOAL_PERCENT} %")


def rate(total):
    return 100.0 * total[0] / total[1] if total[1] else 0.0


if __name__ == "__main__":
    main(*sys.argv[1:])
