#!/usr/bin/env python3
"""count.py [--failures] [--add PASSED FAILED] LOG...: sums the subtests of meson's testlog.json.

A TAP test counts its "ok" and "not ok" lines (skipped ones not at all), and one failure more when it
ended badly without a "not ok" line; any other test counts as one. Prints "N passed, N failed" last;
exit 1 when anything failed or nothing ran. --failures prints the output of what failed first.
"""
import argparse
import json
import re
import sys

TAP_LINE = re.compile(r"^(not )?ok\b(?:(?!#).)*(# *(skip|todo)\b)?", re.IGNORECASE)
GOOD = {"OK", "EXPECTEDFAIL"}


def count_test(entry):
    """(passed, failed) of one test of the log."""
    if entry["result"] == "SKIP":
        return 0, 0
    passed = failed = 0
    for line in (entry.get("stdout") or "").splitlines():
        match = TAP_LINE.match(line)
        if not match or match.group(2):
            continue
        if match.group(1):
            failed += 1
        else:
            passed += 1
    good = entry["result"] in GOOD
    if passed + failed == 0:
        return (1, 0) if good else (0, 1)
    if not good and failed == 0:
        failed = 1
    return passed, failed


def print_failure(entry):
    """What a failed test said: its failed lines with the remarks before each, else its end."""
    print(f"not ok - {entry['name']} ({entry['result']})")
    said, remarks = [], []
    for line in (entry.get("stdout") or "").splitlines():
        if line.startswith("not ok"):
            said += [*remarks[-20:], line]
        remarks = remarks + [line] if line.startswith("#") else []
    if not said:
        said = (entry.get("stdout") or "").splitlines()[-40:]
    said += (entry.get("stderr") or "").splitlines()[-40:]
    print("\n".join("    " + line for line in said))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--failures", action="store_true")
    parser.add_argument("--add", nargs=2, type=int, default=[0, 0], metavar=("PASSED", "FAILED"))
    parser.add_argument("log", nargs="*")
    args = parser.parse_args()
    total = list(args.add)
    for name in args.log:
        with open(name, encoding="utf-8") as f:
            for line in f:
                entry = json.loads(line)
                passed, failed = count_test(entry)
                total[0] += passed
                total[1] += failed
                if failed and args.failures:
                    print_failure(entry)
    print(f"{total[0]} passed, {total[1]} failed")
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main())
