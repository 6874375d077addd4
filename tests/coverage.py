#!/usr/bin/env python3
"""coverage.py EXPORT UNCOVERED [--check]: sums of llvm-cov's export, by room and by file that strangers' bytes reach.

A branch is one side of a condition at a place of a source, whichever programs and copies of inline functions hold it.
MC/DC counts conditions of decisions that have several: those that were seen to decide by themselves.
Those of the readers that no test took are written to UNCOVERED. With --check each of them must stand in
coverage.expected, which says why; otherwise the exit code is 1. Rows there that nothing needs are told.
"""
import collections
import json
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EXPECTED = os.path.join(ROOT, "tests", "coverage.expected")
READERS = re.compile(r"^(io/(npy|safetensors|gguf|ggml|json|names|weights|file|tensorfile|labels|guard)\.c|"
                     r"checkpoint/(?!write|folder)[a-z0-9_]*\.[ch]|onnx/[a-z]*\.c|"
                     r"artifact/(container|plan|plan_(alias|bind|check|load)|code_class)\.c|runtime/model\.c|"
                     r"passes/calib_file\.c|codegen/timing_files\.c)$")


def read(path):
    """By file: how many lines ran, of how many; sides of conditions to how often they were taken; and decisions to
    which of their conditions decided by themselves."""
    lines = {}
    decisions = collections.defaultdict(dict)
    branches = collections.defaultdict(lambda: collections.defaultdict(int))
    with open(path, encoding="utf-8") as file:
        export = json.load(file)["data"][0]
    for entry in export["files"]:
        name = os.path.relpath(entry["filename"], ROOT)
        lines[name] = entry["summary"]["lines"]["covered"], entry["summary"]["lines"]["count"]
        for line, column, _, _, true, false, *_ in entry["branches"]:
            branches[name][line, column, "true"] += true
            branches[name][line, column, "false"] += false
        for *place, conditions in entry.get("mcdc_records", []):
            known = decisions[name].get(tuple(place[:4]), [False] * len(conditions))
            decisions[name][tuple(place[:4])] = [a or b for a, b in zip(known, conditions)]
    return lines, branches, decisions


def row(what, names, lines, branches, decisions):
    """what: lines, branches and conditions that ran, of all; no conditions without a compiler that counts them."""
    def part(ran, num):
        return f"{ran:6} of {num:6} {100 * ran / num if num else 100:6.1f} %"
    counts = [count for name in names for count in branches[name].values()]
    alone = [ran for name in names for conditions in decisions[name].values() for ran in conditions]
    print(f"{what:34} lines {part(sum(lines[name][0] for name in names), sum(lines[name][1] for name in names))}"
          f"   branches {part(sum(1 for count in counts if count), len(counts))}"
          + (f"   MC/DC {part(sum(alone), len(alone))}" if any(decisions.values()) else ""))


def uncovered(names, branches):
    """(file, side, line's text) of each branch that was not taken, to the numbers of their lines."""
    found = collections.defaultdict(list)
    for name in names:
        with open(os.path.join(ROOT, name), encoding="utf-8") as file:
            text = file.read().splitlines()
        for (line, column, side), count in sorted(branches[name].items()):
            if not count:
                found[name, f"{side} {text[line - 1][column - 1:].strip()}"].append(line)
    return found


def expected():
    """The same keys from coverage.expected: how many of each may be missed. A line '# WHY' heads its rows."""
    num = collections.Counter()
    with open(EXPECTED, encoding="utf-8") as file:
        for text in file.read().splitlines():
            if text and not text.startswith("#"):
                name, branch = text.split(": ", 1)
                num[name, branch] += 1
    return num


def check(found):
    """Prints what is not listed, and what is listed in vain; true if all is listed."""
    listed = expected()
    for key in sorted(set(found) | set(listed)):
        missed = len(found.get(key, ()))
        if missed > listed[key]:
            print(f"no test takes {key[0]}:{','.join(map(str, found[key]))}: {key[1]}, "
                  f"and tests/coverage.expected does not say why")
        elif missed < listed[key]:
            print(f"tests/coverage.expected lists {key[0]}: {key[1]}, which is taken or is no more")
    return all(len(at) <= listed[key] for key, at in found.items())


def main():
    lines, branches, decisions = read(sys.argv[1])
    names = sorted(name for name in lines if not name.startswith(".."))
    for room in sorted({name.split("/")[0] for name in names if "/" in name}):
        row(room, [name for name in names if name.startswith(room + "/")], lines, branches, decisions)
    print()
    readers = [name for name in names if READERS.match(name)]
    for name in readers:
        row(name, [name], lines, branches, decisions)
    row("all of these", readers, lines, branches, decisions)
    row("everything", names, lines, branches, decisions)
    found = uncovered(readers, branches)
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        for (name, branch), at in sorted(found.items(), key=lambda entry: (entry[0][0], entry[1])):
            out.writelines(f"{name}: {branch}  [line {line}]\n" for line in at)
    return 0 if "--check" not in sys.argv or check(found) else 1


sys.exit(main())
