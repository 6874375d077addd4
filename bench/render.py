#!/usr/bin/env python3
"""Results of the GPU benchmarks, read and shown.

render.py summary RESULTS.jsonl            a compact table on standard output
render.py merge RESULTS.jsonl OUT.json     one JSON document
render.py readme ROOT [--check]            between <!-- speed --> and <!-- /speed --> of ROOT/README.md the
                                           table of layers, of ROOT/bench/README.md all others, and the
                                           plots beside the newest document of ROOT/bench/results
"""
import json
import pathlib
import re
import sys

SCHEMES = ("bf16", "fp8", "int8", "w4a16", "w4a8", "w4a8-whole")
COLOURS = {"sinter": "#b3541e", "torch.compile": "#4c6a92", "cublaslt": "#7a9a4c"}


def read(path):
    text = pathlib.Path(path).read_text(encoding="utf-8")
    if text.lstrip().startswith("{\n"):
        return json.loads(text)["rows"]
    rows = []
    for line in text.splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:  # the end of a program that ran out of time
            print("a broken row:", line[:80], file=sys.stderr)
    return rows


def of(rows, bench, **want):
    return [row for row in rows if row["bench"] == bench and
            all(row.get(key) == value for key, value in want.items())]


def last(rows, bench, **want):
    found = of(rows, bench, **want)
    return found[-1] if found else None


def number(value, form="{:.1f}"):
    return "-" if value is None else form.format(value)


def columns(table):
    """Lines of cells as text in columns; the first cells to the left."""
    width = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    for line in table:
        yield "  ".join(cell.ljust(width[i]) if i < 1 else cell.rjust(width[i])
                        for i, cell in enumerate(line)).rstrip()


# Tables, as lists of lines of cells ------------------------------------------------------------


def bursts(rows, bench):
    """Those measured after a pause too, with that time in the place of the sustained one."""
    return [row | {"us": row["burst_us"]} for row in of(rows, bench) if row.get("burst_us")]


def ffn_table(rows, title="feed-forward layer, us"):
    sizes = sorted({row["m"] for row in of(rows, "ffn")})
    table = [[title] + [f"m={m}" for m in sizes] + ["nodes", "error"]]
    for scheme in SCHEMES:
        for who, level in (("sinter", 1), ("sinter", 0), ("torch.compile", None)):
            found = {row["m"]: row for row in of(rows, "ffn", who=who, scheme=scheme)
                     if row.get("level") == level}
            if not found:
                continue
            nodes = [row["nodes"] for row in found.values() if "nodes" in row]
            errors = [row["error"] for row in found.values()]
            name = f"{scheme} {who}" + (" -O0" if level == 0 else "")
            worst = None if None in errors else max(errors)
            table.append([name] + [number(found[m]["us"] if m in found else None) for m in sizes] +
                         ["/".join(sorted({f"{n:g}" for n in nodes})) or "-",
                          number(worst, "{:.1e}") if worst is not None else "nan"])
    return table


def ratios(rows):
    """Ours against the peer, and fused against -O0: lines of cells."""
    table = [["speed-up"]]
    sizes = sorted({row["m"] for row in of(rows, "ffn")})
    table[0] += [f"m={m}" for m in sizes]
    for name, scheme, who, level in (("fp8 over torch.compile", "fp8", "torch.compile", None),
                                     ("w4a16 over torch int4", "w4a16", "torch.compile", None),
                                     ("bf16 over torch.compile", "bf16", "torch.compile", None),
                                     ("fp8 fused over -O0", "fp8", "sinter", 0)):
        cells = []
        for m in sizes:
            ours = last(rows, "ffn", who="sinter", scheme=scheme, level=1, m=m)
            peer = [row for row in of(rows, "ffn", who=who, scheme=scheme, m=m)
                    if row.get("level") == level]
            cells.append(number(peer[-1]["us"] / ours["us"] if ours and peer else None, "{:.2f}x"))
        if set(cells) - {"-"}:
            table.append([name] + cells)
    return table


def gemm_names(rows):
    for who in ("sinter", "cublaslt"):
        seen = []
        for row in of(rows, "gemm", who=who):
            if row["scheme"] not in seen:
                seen.append(row["scheme"])
        for scheme in seen:
            yield who, scheme


def gemm_table(rows, title="m x NxK", least=0):
    """us at few rows, TFLOP/s from 512 on; of `least` rows and more."""
    cases = sorted({(row["shape"], row["m"]) for row in of(rows, "gemm") if row["m"] >= least},
                   key=lambda c: ([int(n) for n in c[0].split("x")], c[1]))
    names = list(gemm_names(rows))
    table = [[title] + [("our " if who == "sinter" else "lt ") +
                            scheme.replace("tensor", "tens").replace("-promoted", "-slow")
                            for who, scheme in names]]
    for shape, m in cases:
        n, k = (int(word) for word in shape.split("x"))
        line = [f"{m} x {shape}" + (" TF" if m >= 512 else " us")]
        for who, scheme in names:
            row = last(rows, "gemm", who=who, scheme=scheme, shape=shape, m=m)
            value = row and (2e-6 * m * n * k / row["us"] if m >= 512 else row["us"])
            line.append(number(value, "{:.0f}" if m >= 512 else "{:.1f}"))
        table.append(line)
    return table


def gemm_errors(rows):
    words = []
    for who, scheme in gemm_names(rows):
        errors = [row["error"] for row in of(rows, "gemm", who=who, scheme=scheme)]
        worst = "nan" if None in errors else f"{max(errors):.1e}"
        words.append(f"{'our' if who == 'sinter' else 'lt'} {scheme} {worst}")
    return words


def quantise_table(rows):
    table = [["quantise kernel", "us", "TB/s", "launches"]]
    for row in of(rows, "quantise"):
        table.append([row["scheme"], number(row["us"]), number(row["tb_s"], "{:.2f}"),
                      str(row["launches"])])
    return table


def compile_table(rows):
    """bench/compile.py's rows."""
    table = [["32 layers, 4 buckets", "kernels", "compiled", "of processors", "from the cache",
              "an image", "at most"]]
    for row in of(rows, "compile_kernels"):
        table.append([row["scheme"], str(row["kernels"]), number(row["cold_seconds"], "{:.1f} s"),
                      number(row["cpu_seconds"], "{:.1f} s"),
                      number(row["cached_seconds"], "{:.2f} s"),
                      number(row["image_mean_seconds"], "{:.2f} s"),
                      number(row["image_worst_seconds"], "{:.2f} s")])
    return table


def compile_lines(path):
    rows = read(path)
    machine = last(rows, "compile_machine")
    yield (f"Kernels of the plans for `sm_90a` and `portable`, compiled on {machine['used']} of "
           f"{machine['processors']} processors ({machine['processor']}, load {machine['load']:g}, "
           f"NVRTC {machine['nvrtc']}):")
    yield ""
    yield from markdown(compile_table(rows))
    yield ""


def other_lines(rows):
    for scheme in sorted({row["scheme"] for row in of(rows, "open")}):
        runs = sorted(of(rows, "open", scheme=scheme), key=lambda row: row["seconds"])
        row = runs[len(runs) // 2]
        yield (f"open {scheme}: {row['seconds']:.2f} s to the first result with "
               f"{row['weight_gb']:.2f} GB (at most {row['allowed_seconds']:.2f}; host to device "
               f"{row['copy_gb_s']:.1f} GB/s; driver {row['driver_seconds']:.2f} s more)")
    for row in of(rows, "replay"):
        yield (f"replay of {row['launches']} launches: {row['cpu_us']:.1f} us of the caller's "
               f"processor (p95 {row['cpu_p95_us']:.1f}), {row['gpu_us']:.0f} us on the GPU")
    compiles = of(rows, "compile")
    if compiles:
        yield "compile s: " + ", ".join(f"{row['scheme']} {row['seconds']:.1f}"
                                        for row in compiles)


def machine_line(rows):
    row = last(rows, "machine")
    if not row:
        return ""
    gpu, versions = row["gpu"], row["versions"]
    lt = of(rows, "gemm", who="cublaslt")
    words = [gpu.get("name", "a GPU"), "driver " + gpu.get("driver_version", "?"),
             "power limit " + gpu.get("power.limit", "?"),
             "clocks up to " + gpu.get("clocks.max.sm", "?"),
             "memory " + gpu.get("clocks.max.mem", "?")]
    words += [f"{name} {value}" for name, value in versions.items() if name in ("torch", "nvcc")]
    words += [f"cuBLASLt {lt[0]['version']}"] if lt else []
    return ", ".join(words)


def summary(path):
    rows = read(path)
    print(machine_line(rows))
    for table in (ffn_table(rows), ratios(rows), quantise_table(rows), gemm_table(rows),
                  ffn_table(bursts(rows, "ffn"), "layer in bursts, us"),
                  gemm_table(bursts(rows, "gemm"), "m x NxK in bursts", 512)):
        if len(table) > 1:
            print()
            print("\n".join(columns(table)))
    if of(rows, "gemm"):
        print("errors: " + "; ".join(gemm_errors(rows)))
    print()
    print("\n".join(other_lines(rows)))


# The README and the plots ------------------------------------------------------------------------


def markdown(table):
    yield "| " + " | ".join(table[0]) + " |"
    yield "|---" + "|---:" * (len(table[0]) - 1) + "|"
    for line in table[1:]:
        yield "| " + " | ".join(line) + " |"


def plot(title, groups, unit):
    """Bars by group: [(group, [(who, label, value)])], an SVG."""
    most = max((value for _, bars in groups for _, _, value in bars), default=1)
    lines, y = [], 44
    for group, bars in groups:
        lines.append(f'<text x="10" y="{y + 4}" font-weight="bold">{group}</text>')
        y += 12
        for who, label, value in bars:
            width = 420 * value / most
            lines.append(f'<text x="190" y="{y + 11}" text-anchor="end">{label}</text>'
                         f'<rect x="196" y="{y}" width="{width:.1f}" height="14" '
                         f'fill="{COLOURS[who]}"/>'
                         f'<text x="{202 + width:.1f}" y="{y + 11}">{value:.1f}</text>')
            y += 18
        y += 16
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="700" height="{y}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="700" height="{y}" fill="white"/>',
        f'<text x="10" y="20" font-size="14">{title}, {unit}</text>', *lines, "</svg>", ""])


def ffn_plot(rows):
    groups = []
    for m in sorted({row["m"] for row in of(rows, "ffn")}):
        bars = []
        for scheme in SCHEMES:
            for who in ("sinter", "torch.compile"):
                found = [row for row in of(rows, "ffn", who=who, scheme=scheme, m=m)
                         if row.get("level") != 0]
                if found:
                    bars.append((who, f"{scheme} {who}", found[-1]["us"]))
        groups.append((f"{m} rows", bars))
    return plot("A feed-forward layer of an 8B model", groups, "us (shorter is better)")


def gemm_plot(rows):
    groups = []
    for shape, m in sorted({(row["shape"], row["m"]) for row in of(rows, "gemm")
                            if row["m"] >= 512}):
        n, k = (int(word) for word in shape.split("x"))
        bars = []
        for who, scheme in gemm_names(rows):
            row = last(rows, "gemm", who=who, scheme=scheme, shape=shape, m=m)
            if row:
                label = ("sinter " if who == "sinter" else "cuBLASLt ") + scheme
                bars.append((who, label, 2e-6 * m * n * k / row["us"]))
        groups.append((f"{m} x {shape}", bars))
    return plot("Linear layers", groups, "TFLOP/s (longer is better)")


def filled(page, lines):
    text = page.read_text(encoding="utf-8")
    if "<!-- speed -->" not in text:
        sys.exit(f"render.py: {page} has no <!-- speed --> <!-- /speed -->")
    body = "\n".join(lines) + "\n"
    return re.sub(r"(<!-- speed -->\n).*?(<!-- /speed -->)",
                  lambda m: m.group(1) + body + m.group(2), text, flags=re.S)


def readme(root, check):
    root = pathlib.Path(root)
    results = root / "bench" / "results"
    compiled = results / "compile.json"
    documents = [path for path in sorted(set(results.glob("*.json")) - {compiled})
                 if '"rows": [' in path.read_text(encoding="utf-8")]  # others hold other tables
    if not documents:
        sys.exit("render.py: there are no results")
    document = documents[-1]
    rows = read(document)
    files = {document.with_name(document.stem + "-ffn.svg"): ffn_plot(rows)}
    if of(rows, "gemm"):
        files[document.with_name(document.stem + "-gemm.svg")] = gemm_plot(rows)
    first = [machine_line(rows) + ".", "", *markdown(ffn_table(rows))]
    lines = [*markdown(quantise_table(rows)), ""] if len(quantise_table(rows)) > 1 else []
    if of(rows, "gemm"):
        lines += [*markdown(gemm_table(rows)), "", "Errors: " + "; ".join(gemm_errors(rows)) + ".", ""]
    if bursts(rows, "gemm"):
        lines += [*markdown(ffn_table(bursts(rows, "ffn"), "feed-forward layer in bursts, us")), "",
                  *markdown(gemm_table(bursts(rows, "gemm"), "m x NxK in bursts", 512)), ""]
    if compiled.exists():
        lines += compile_lines(compiled)
    lines += [f"![{path.stem}]({path.relative_to(root / 'bench')})" for path in files]
    for page, body in ((root / "README.md", first), (root / "bench" / "README.md", lines)):
        files[page] = filled(page, body)
    stale = [path for path, want in files.items()
             if not path.exists() or path.read_text(encoding="utf-8") != want]
    for path in [] if check else stale:
        path.write_text(files[path], encoding="utf-8")
    if check and stale:
        sys.exit("render.py: not as the results say: " + ", ".join(map(str, stale)))


def main():
    words = sys.argv[1:]
    if words[:1] == ["summary"] and len(words) == 2:
        summary(words[1])
    elif words[:1] == ["merge"] and len(words) == 3:
        rows = ",\n  ".join(json.dumps(row) for row in read(words[1]))
        pathlib.Path(words[2]).write_text('{\n "rows": [\n  ' + rows + "\n ]\n}\n",
                                          encoding="utf-8")
    elif words[:1] == ["readme"] and len(words) in (2, 3):
        readme(words[1], "--check" in words)
    else:
        sys.exit(__doc__.strip())


if __name__ == "__main__":
    main()
