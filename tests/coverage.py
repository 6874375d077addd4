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

# Why no input takes a branch, by what its line says; the first row that fits.
REASONS = (
    ("what reports an error is never true",
     re.compile(r"\|\| *\(?(\w*fail\w*|altered|clash|need_\w+|expect\w*)\(|^(\w*fail\w*|altered)\(")),
    ("memory is exhausted: tests/faults",
     re.compile(r"alloc|grow|setjmp|E_MEMORY|memory|createState|names_add|\b(table|view|begin|r|w) [&?]|if \(\w+\)$|"
                r"!(state|grown|view|text|table|begin|order|extent|layout|name|copy|tmp|value|arena|r|f|w)\b")),
    ("a size beyond what limits allow before", re.compile(r"checked_|LIMIT_|MAX_|overflow")),
    ("a system call fails: tests/faults",
     re.compile(r"errno|open|read\(|write|mmap|MAP_FAILED|stat\(|rename|link|fsync|close|fd |got <")),
    ("work goes on after an error that was kept", re.compile(r"failed|error|problem|\bok\b")),
)


def reason(name, text):
    if name.startswith("numerics/"):
        return "an inline function, in a file that calls others of its header"
    return next((what for what, pattern in REASONS if pattern.search(text)), "no test takes it")


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
    reasons = collections.Counter()
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        for name in readers:
            with open(os.path.join(ROOT, name), encoding="utf-8") as file:
                text = file.read().splitlines()
            for (line, _, branch), count in sorted(branches[name].items()):
                if count:
                    continue
                why = reason(name, text[line - 1].strip())
                reasons[why] += 1
                out.write(f"{name}:{line}: {'not true' if branch % 2 == 0 else 'not false'}: "
                          f"{text[line - 1].strip()}  [{why}]\n")
    print()
    for why, count in reasons.most_common():
        print(f"{count:6} branches: {why}")


main()
