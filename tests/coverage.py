#!/usr/bin/env python3
"""coverage.py LCOV UNCOVERED: sums of an lcov file, by room and by file that reads what strangers write."""
import collections
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
READERS = re.compile(r"^(io/(npy|safetensors|gguf|json|names|weights|cache|file|tensorfile)[^/]*\.c|"
                     r"checkpoint/.*\.c|artifact/(container|plan|plan_[a-z]+|code_class)\.c|"
                     r"runtime/model\.c|passes/calib_file\.c|codegen/timing[^/]*\.c|numerics/.*\.[ch]|"
                     r"frontend/(lex|parse|sema|rules)[^/]*\.c|ir/(parse[^/]*|verify[^/]*)\.c)$")


def read(path):
    """By file: lines and branches to how often they ran, summed over programs."""
    lines = collections.defaultdict(lambda: collections.defaultdict(int))
    branches = collections.defaultdict(lambda: collections.defaultdict(int))
    name = ""
    with open(path, encoding="utf-8") as file:
        for row in file:
            word, _, rest = row.strip().partition(":")
            if word == "SF":
                name = os.path.relpath(rest, ROOT)
            elif word == "DA":
                line, count = rest.split(",")[:2]
                lines[name][int(line)] += int(count)
            elif word == "BRDA":
                line, block, branch, count = rest.split(",")
                branches[name][int(line), int(block), int(branch)] += 0 if count == "-" else int(count)
    return lines, branches


def row(what, lines, branches):
    """what: lines and branches that ran, of all."""
    def part(counts):
        ran = sum(1 for count in counts if count)
        return f"{ran:6} of {len(counts):6} {100 * ran / len(counts) if counts else 100:6.1f} %"
    print(f"{what:34} lines {part(lines)}   branches {part(branches)}")


def main():
    lines, branches = read(sys.argv[1])
    names = sorted(name for name in lines if not name.startswith(".."))
    for room in sorted({name.split("/")[0] for name in names if "/" in name}):
        mine = [name for name in names if name.startswith(room + "/")]
        row(room, [n for name in mine for n in lines[name].values()],
            [n for name in mine for n in branches[name].values()])
    readers = [name for name in names if READERS.match(name)]
    print()
    for name in readers:
        row(name, lines[name].values(), branches[name].values())
    row("all of these", [n for name in readers for n in lines[name].values()],
        [n for name in readers for n in branches[name].values()])
    row("everything", [n for name in names for n in lines[name].values()],
        [n for name in names for n in branches[name].values()])
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        for name in readers:
            with open(os.path.join(ROOT, name), encoding="utf-8") as file:
                text = file.read().splitlines()
            for (line, _, branch), count in sorted(branches[name].items()):
                if not count:
                    out.write(f"{name}:{line}: {'not true' if branch % 2 == 0 else 'not false'}: "
                              f"{text[line - 1].strip()}\n")


main()
