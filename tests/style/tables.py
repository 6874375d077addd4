#!/usr/bin/env python3
"""tables.py [--update] ROOT: the parts of README.md and docs/ that repeat a source file.

Between "<!-- NAME -->" and "<!-- /NAME -->" stands what NAME's table renders to; without --update,
says what differs and exits 1. TAP, one line a table.
"""
import pathlib
import re
import sys

README_LINES = 200
FAMILY = {
    "FLOAT": "stored as it is",
    "INT": "integer",
    "MINIFLOAT": "minifloat",
    "CODEBOOK": "codebook",
}


def rows(root, path, macro):
    """The arguments of each row MACRO(..) of a table, split at top-level commas."""
    text = re.sub(r"/\*.*?\*/", "", (root / path).read_text(), flags=re.S)
    for match in re.finditer(rf"^\s*{macro}\(", text, flags=re.M):
        depth, quoted, word, words = 1, False, "", []
        for c in text[match.end():]:
            if c == '"':
                quoted = not quoted
            elif not quoted:
                depth += (c == "(") - (c == ")")
                if depth == 0:
                    break
                if c == "," and depth == 1:
                    words.append(word.strip())
                    word = ""
                    continue
            word += c
        words.append(word.strip())
        yield [w.strip('"') for w in words]


def formats(root):
    yield "| format | bits | family | exponent, mantissa | quantised range |"
    yield "|---|---|---|---|---|"
    for _, name, bits, family, signed, exp, man, _, low, high in rows(
        root, "numerics/formats.def", "FORMAT"
    ):
        if name in ("f64", "i32"):
            continue
        parts = f"{exp}, {man}" if int(exp) else ""
        span = f"{low} to {high}" if family != "FLOAT" and name != "e8m0" else ""
        yield f"| `{name}` | {bits} | {FAMILY[family]} | {parts} | {span} |"


def passes(root):
    yield "| pass | runs at | what it does |"
    yield "|---|---|---|"
    for _, name, level, describe in rows(root, "passes/passes.def", "PASS"):
        yield f"| `{name}` | {'-O0, -O1' if level == '0' else '-O1'} | {describe} |"


def commands(root):
    yield "| command | what it does |"
    yield "|---|---|"
    for row in rows(root, "tools/words/commands.def", "COMMAND"):
        name, operands, describe = row[1], row[2], row[6]
        operands = operands.replace("|", "\\|")
        yield f"| `sinter {name} {operands}`".rstrip("` ") + f"` | {describe} |"


def quote(root, path):
    yield "```"
    yield from (root / path).read_text().rstrip("\n").split("\n")
    yield "```"


def model(root):
    yield from quote(root, "examples/digits/digits.sinter")


def rules(root):
    yield from quote(root, "examples/digits/w8a8.rules")


def tutorial(root):
    yield from (root / "examples/tutorial/results.md").read_text().rstrip("\n").split("\n")


def format_version(root, update):
    """Whether docs/file.md names the version of the container that artifact/artifact.h defines."""
    page = root / "docs/file.md"
    text = page.read_text(encoding="utf-8")
    version, = re.findall(r"^#define ARTIFACT_VERSION (\d+)$", (root / "artifact/artifact.h").read_text(), re.M)
    new = re.sub(r"(version of the format, )\d+", rf"\g<1>{version}", text)
    if update:
        page.write_text(new, encoding="utf-8")
    return update or (new == text and f"version of the format, {version}" in text)


TABLES = {"formats": formats, "passes": passes, "commands": commands,
          "model": model, "rules": rules, "tutorial": tutorial}


def main():
    update = "--update" in sys.argv
    root = pathlib.Path(sys.argv[-1])
    number, bad = 0, False
    for page in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        for name, render in TABLES.items():
            pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.S)
            if not pattern.search(text):
                continue
            number += 1
            want = "".join(line + "\n" for line in render(root))
            new = pattern.sub(lambda m, w=want: m.group(1) + w + m.group(2), text)
            same = new == text
            if not same and update:
                page.write_text(new, encoding="utf-8")
            text = new if update else text
            bad |= not same and not update
            ok = "ok" if same or update else "not ok"
            print(f"{ok} {number} - table '{name}' of {page.name} says what the source says")
    number += 1
    same = format_version(root, update)
    bad |= not same
    print(f"{'ok' if same else 'not ok'} {number} - docs/file.md names the version of the format")
    number += 1
    lines = len((root / "README.md").read_text(encoding="utf-8").splitlines())
    bad |= lines > README_LINES
    print(f"{'ok' if lines <= README_LINES else 'not ok'} {number} - README.md has {lines} lines, at most "
          f"{README_LINES}")
    print(f"1..{number}")
    return 1 if bad or not number else 0


if __name__ == "__main__":
    sys.exit(main())
