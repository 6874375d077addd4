#!/usr/bin/env python3
"""One layer before and after fusion, as the README shows it.

picture.py SINTER           writes fused.svg beside this script, from fused.sinter
picture.py SINTER --check   says whether the boxes of fused.svg are what the command draws today. TAP

Both halves are `sinter show --emit=svg`, by the command's own hand rather than Graphviz's: at -O0 every
operation is a kernel of its own, at -O1 the layer is one.
"""
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def drawing(sinter, level):
    done = subprocess.run([sinter, "show", HERE / "fused.sinter", "--no-weights", f"-O{level}", "--emit=svg"],
                          env={**os.environ, "PATH": "/nowhere"}, capture_output=True, text=True, check=True)
    return done.stdout[done.stdout.index("<svg"):]


def size(svg):
    return [float(re.search(rf'<svg[^>]* {name}="([0-9.]+)"', svg).group(1)) for name in ("width", "height")]


def title(level, svg):
    kernels = len(re.findall(r">(?:gemm|tile|move)\b", svg))
    return f"{'fused' if level else 'as written'} (-O{level}): {kernels} kernel{'s' * (kernels != 1)}"


def placed(svg, x, y, name):
    """The drawing at a place of another one, its names apart from others'."""
    svg = re.sub(r"<title>.*?</title>\n?", "", svg, count=1, flags=re.S)
    svg = svg.replace('id="a"', f'id="{name}"').replace("url(#a)", f"url(#{name})")
    return svg.replace("<svg ", f'<svg x="{x:.0f}" y="{y:.0f}" ', 1)


def picture(sinter):
    halves = [drawing(sinter, level) for level in (0, 1)]
    (left, tall), (right, short) = map(size, halves)
    right = max(right, 200)
    width, height = left + right + 120, tall + 50
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        'font-family="Helvetica,Arial,sans-serif" font-size="13" text-anchor="middle">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
        f'<text x="{20 + left / 2:.0f}" y="26">{title(0, halves[0])}</text>',
        f'<text x="{left + 70 + right / 2:.0f}" y="26">{title(1, halves[1])}</text>',
        placed(halves[0], 20, 44, "before").strip(),
        placed(halves[1], left + 70, 44 + (tall - short) / 2, "after").strip(), "</svg>", ""])


def words(svg):
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def main():
    now, file = picture(sys.argv[1]), HERE / "fused.svg"
    if "--check" not in sys.argv:
        file.write_text(now, encoding="utf-8")
        return 0
    same = sorted(words(now)) == sorted(words(file.read_text(encoding="utf-8")))
    print(f"{'ok' if same else 'not ok'} 1 - the README's picture shows what the command draws\n1..1")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
