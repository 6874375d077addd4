#!/usr/bin/env python3
"""auto.py BUILD OUT.json [--targets fp8,int8,..] [--work FOLDER] [--device cuda:0] [--width D --inner F --layers L]:
`auto` on a GPU beside every uniform scheme, at that scheme's measured error.

A stack of L feed-forward layers (of an 8B model: 4096 x 14336), one of them planted with outliers that spoil coarse
formats, at T = 1, 16, 128, 1024. For each uniform scheme: the model is compiled with it at every layer and run on
data held out; its error against the model without quantisation is found here. Then `sinter choose --device` is asked
for that error, at no size slower, and its rules are compiled and run, too. Times are those of graphs of the whole
models that `choose` measured there. A target that OUT.json holds already is not measured again. BUILD: a build folder,
or what pack.sh made of one.

auto.py table OUT.json: the table that bench/results has, and whether each bar is met.
"""
import argparse
import array
import json
import math
import pathlib
import struct
import subprocess
import sys
import time

SIZES = (1, 16, 128, 1024)
ROWS = 64  # to calibrate with, and held out
EXACT = 200  # dB: no error
FASTER = 1.15  # than the best uniform scheme of that error, at one point or more
SCHEMES = {
    "fp8": "weight e4m3 per channel; act e4m3 per token dynamic",
    "fp8_block": "weight e4m3 block 128x128; act e4m3 per token group 128 dynamic",
    "int8": "weight i8 sym per channel; act i8 sym per token dynamic",
    "w4a16": "weight i4 sym group 128; act bf16",
    "w4a8": "weight i4 sym group 128; act i8 sym per token dynamic",
    "nvfp4": "weight nvfp4; act nvfp4",
}
TEXT = """version 1
weights "model.safetensors"
const D = {d}
const F = {f}
dim T in [{sizes}]
{schemes}
block ffn[i] (x: bf16[T, D]) -> bf16[T, D] {{
    param norm: bf16[D]    from "model.layers.{{i}}.post_attention_layernorm.weight"
    param gate: bf16[F, D] from "model.layers.{{i}}.mlp.gate_proj.weight"
    param up:   bf16[F, D] from "model.layers.{{i}}.mlp.up_proj.weight"
    param down: bf16[D, F] from "model.layers.{{i}}.mlp.down_proj.weight"
    n = rmsnorm(x, norm, eps=1e-5)
    return x + linear(silu(linear(n, gate)) * linear(n, up), down)
}}
model stack (x: bf16[T, D]) -> (y: bf16[T, D]) {{
    y = x
    for i in 0 .. {layers} {{ y = ffn[i](y) }}
}}
"""
AUTO = """auto {{
    candidates {names}, keep
    calibrate on "x.npy" samples {rows}
    require sqnr >= {sqnr:.9g} on "held.npy"
{latency}    minimize latency
    couple siblings
    slower warn
}}
"""


def run(*command, folder):
    start = time.monotonic()
    done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 5):
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stderr[-3000:]}")
    return done.stdout, time.monotonic() - start


def read_npy(path):
    data = path.read_bytes()
    head = struct.unpack("<H", data[8:10])[0]
    values = array.array("f")
    if b"'<f4'" not in data[:10 + head]:
        raise SystemExit(f"{path}: not of f32")
    values.frombytes(data[10 + head:])
    return values


class Bench:
    def __init__(self, args):
        self.args = args
        self.sinter = (args.build / "tools/sinter").resolve()
        self.folder = args.work
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / "held.npy").exists():
            run((args.build / "bench/gpu-data").resolve(), "planted", ".", args.width, args.inner, args.layers, ROWS,
                folder=self.folder)
        schemes = "\n".join(f"scheme {name} {{ {text} }}" for name, text in SCHEMES.items())
        (self.folder / "m.sinter").write_text(TEXT.format(
            d=args.width, f=args.inner, layers=args.layers, schemes=schemes, sizes=", ".join(map(str, SIZES))))
        self.want = None

    def compiled(self, name, rules):
        """The results on data held out of the file that these rules give."""
        (self.folder / f"{name}.rules").write_text(rules)
        run(self.sinter, "compile", "m.sinter", "--target=native", "--slower=off", "--rules", f"{name}.rules", "-o",
            "file", folder=self.folder)
        run("./file", "--input", "x=held.npy", "--output", "y=y.npy", f"--device={self.args.device}",
            folder=self.folder)
        (self.folder / "file").unlink()
        return read_npy(self.folder / "y.npy")

    def sqnr(self, got):
        noise = math.fsum((x - y) ** 2 for x, y in zip(got, self.want))
        return min(10 * math.log10(math.fsum(y * y for y in self.want) / noise) if noise else EXACT, EXACT)

    def choose(self, sqnr, most):
        """A choice of at least that error and at no size slower than `most` (microseconds by what choose measured)."""
        latency = "".join(f"    require latency <= {us:.3f}us at T = {size}\n" for size, us in most.items())
        (self.folder / "auto.rules").write_text(AUTO.format(names=", ".join(SCHEMES), rows=ROWS, sqnr=sqnr,
                                                            latency=latency))
        text, took = run(self.sinter, "choose", "m.sinter", "--rules=auto.rules", f"--device={self.args.device}",
                         "-o", "chosen.rules", "--data=choice.json", folder=self.folder)
        choice = json.loads((self.folder / "choice.json").read_text())
        return choice, (self.folder / "chosen.rules").read_text(), took, text.splitlines()[0]


def graphs(choice, point):
    """Microseconds of each size."""
    return {str(bucket["T"]): ns / 1e3 for bucket, ns in zip(choice["buckets"], point["graph_ns"])}


def point_of(choice, name):
    found = [point for point in choice["uniform"]
             if set(point["pick"]) == {choice["candidates"].index(name)}]
    if not found:
        raise SystemExit(f"{name} cannot be used everywhere")
    return found[0]


def measure(bench, name, first):
    """One uniform scheme, and what auto makes of its error."""
    error = bench.sqnr(bench.compiled(name, f"quant {{ default : {name} }}\n"))
    row = {"scheme": name, "sqnr": error, "us": graphs(first, point_of(first, name))}
    choice, rules, took, times = bench.choose(error - 0.02, row["us"])
    us = graphs(choice, choice["chosen"])
    point = choice["chosen"]
    row["auto"] = {"sqnr": bench.sqnr(bench.compiled("chosen", rules)), "us": us, "estimated_us": point["us"],
                   "measured_us": point["measured_us"], "seconds": took, "steps": choice["seconds"],
                   "times": times, "rules": rules.split("quant {")[-1].split("\n")[1:-2]}
    print(f"{name}: {error:.2f} dB, auto {took:.0f} s, "
          + ", ".join(f"T = {size}: {us[size] / row['us'][size]:.3f}x" for size in us), file=sys.stderr, flush=True)
    return row


def table(result):
    rows = {row["scheme"]: row for row in result["rows"]}
    print("| scheme | dB | " + " | ".join(f"T = {size}: us, `auto` | ratio" for size in SIZES)
          + " | measured / estimated | s |")
    print("|---|---:|" + "---:|---:|" * len(SIZES) + "---:|---:|")
    worst, best, off = 0, 0, 0
    for name, row in rows.items():
        if "auto" not in row:
            print(f"| {name} | | " + " | ".join(f"{row['us'][str(s)]:.1f} | " for s in SIZES) + " | | |")
            continue
        picked = row["auto"]
        ratio = {size: picked["us"][str(size)] / row["us"][str(size)] for size in SIZES}
        fit = [other for other in rows.values() if other["sqnr"] >= row["sqnr"] - 0.02]  # itself, and finer ones
        uniform = {size: min(other["us"][str(size)] for other in fit) for size in SIZES}
        worst = max(worst, *ratio.values())
        best = max(best, *(uniform[size] / picked["us"][str(size)] for size in SIZES))
        of = picked["measured_us"] / picked["estimated_us"]
        off = max(off, abs(of - 1))
        print(f"| {name} | {row['sqnr']:.2f} | "
              + " | ".join(f"{row['us'][str(s)]:.1f}, {picked['us'][str(s)]:.1f} | {ratio[s]:.3f}" for s in SIZES)
              + f" | {of:.3f} | {picked['seconds']:.0f} |")
    print(f"\n{result['device']}: at most {worst:.3f}x of a uniform scheme's time at its error (bar: 1.00x); faster "
          f"than the best uniform scheme of that error by up to {best:.2f}x (bar: {FASTER}x); measured within "
          f"{100 * off:.1f} % of the estimate (bar: 10 %)")


def main():
    if sys.argv[1:2] == ["table"]:
        table(json.loads(pathlib.Path(sys.argv[2]).read_text()))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--targets", default=",".join(SCHEMES))
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("auto-work"))
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--inner", type=int, default=14336)
    parser.add_argument("--layers", type=int, default=4)
    args = parser.parse_args()
    result = json.loads(args.out.read_text()) if args.out.exists() else {"rows": []}
    bench = Bench(args)
    known = {row["scheme"] for row in result["rows"]}
    wanted = [name for name in args.targets.split(",") if name not in known]
    if wanted:
        bench.want = bench.compiled("bf16", "")
        first = bench.choose(-100, {})[0]
        result["device"] = first["device"]
        result["rows"] = [row for row in result["rows"] if row["scheme"] != "bf16"]
        result["rows"].insert(0, {"scheme": "bf16", "sqnr": EXACT, "us": graphs(first, point_of(first, "keep"))})
    for name in wanted:
        result["rows"].append(measure(bench, name, first))
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    table(result)


if __name__ == "__main__":
    main()
