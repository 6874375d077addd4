"""auto.py BUILD OUT.json [--model stack|encoder] [--targets bf16,fp8,..] [--seconds S] [--work FOLDER]
[--device cuda:0] [--data FOLDER] [--width D --inner F --layers L]: `auto` on a GPU beside every uniform scheme, at that
scheme's measured error.

stack: L feed-forward layers (of an 8B model: 4096 x 14336), one of them planted with outliers that spoil coarse
formats, at T = 1, 16, 128, 1024. encoder: the sentence encoder of examples/minilm in bf16, at T = 512, 2560, with
weights of its shapes that data.c makes; --data: a folder with its own (model.safetensors as examples/minilm/prepare.py
writes it, auto-calib.safetensors and auto-heldout.safetensors as bench/auto/minilm.py does).

The first choice, which must equal the model without quantisation, runs and times every scheme alone. Then for each
scheme `sinter choose --device` is asked for the error that it has there, at no size slower, and for `between`: for half
the error of the finest scheme, which none has but bf16. Errors of layers and times of models are measured once for all
targets. Times are those of graphs of whole models. Targets that OUT.json holds already are not measured again, and none
is begun that might end more than S seconds after the start: the same command goes on there, on another machine too. The
stack's rules are compiled and run, too, and their error is found here. BUILD: a build folder, or what pack.sh made of
one.

auto.py table OUT.json..: the table that bench/results has, and whether each bar is met.
"""
import argparse
import array
import json
import math
import pathlib
import struct
import sys
import time

import stack
from stack import SCHEMES

ROWS = 64  # to calibrate with, and held out
EXACT = 100  # dB: what is asked of a choice without error
FASTER = 1.15  # than the best uniform scheme of that error, at one point or more
BETWEEN = 6  # dB beyond the finest scheme
BARS = {"seconds": 120, "off": 0.1}
TARGETS = ("bf16", "fp8", "fp8_block", "int8", "w4a16", "w4a8", "nvfp4", "between")
AUTO = """auto {{
    candidates {names}, keep
    calibrate on "{calibrate}"{rows}
    require sqnr >= {sqnr:.9g} on "{held}"
{latency}    minimize latency
    couple siblings
    slower warn
}}
"""
MODELS = {  # sizes of T, and the files of data
    "stack": ((1, 16, 128, 1024), "x.npy", "held.npy"),
    "encoder": ((512, 2560), "auto-calib.safetensors", "auto-heldout.safetensors"),
}
ENCODER = (384, 1536, 6, 512)  # width, inner width, layers, tokens to calibrate with and held out


def run(*command, folder):
    return stack.run(*command, folder=folder, codes=(0, 5))


def read_npy(path):
    data = path.read_bytes()
    head = struct.unpack("<H", data[8:10])[0]
    values = array.array("f")
    if b"'<f4'" not in data[:10 + head]:
        raise SystemExit(f"{path}: not of f32")
    values.frombytes(data[10 + head:])
    return values


def encoder_text(schemes):
    """The example's, in bf16, for up to 128 sentences."""
    path = pathlib.Path(__file__).resolve().parents[2] / "examples/minilm/encoder.sinter"
    text = "".join(line + "\n" for line in path.read_text().splitlines() if not line.startswith(("calibrate ",
                                                                                                "expect ")))
    return (text.replace("f32", "bf16").replace("dim S in [32, 128]", "dim S in [128]").rstrip("\n") + "\n"
            ).replace("const D = ", f"{schemes}\nconst D = ", 1)


class Bench:
    def __init__(self, args):
        self.args = args
        self.sinter = (args.build / "tools/sinter").resolve()
        self.folder = args.work.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "cache").mkdir(mode=0o700, exist_ok=True)
        self.sizes, self.calibrate, self.held = MODELS[args.model]
        self.data(args)
        schemes = "\n".join(f"scheme {name} {{ {scheme} }}" for name, scheme in SCHEMES.items())
        text = encoder_text(schemes) if args.model == "encoder" else stack.text(args, self.sizes, schemes)
        (self.folder / "m.sinter").write_text(text)
        self.want = None

    def data(self, args):
        if args.data:
            for name in ("model.safetensors", self.calibrate, self.held):
                link = self.folder / name
                link.unlink(missing_ok=True)
                link.symlink_to((args.data / name).resolve())
        elif not (self.folder / self.held).exists():
            kind = ("encoder", *ENCODER) if args.model == "encoder" else ("planted", args.width, args.inner,
                                                                          args.layers, ROWS)
            run((args.build / "bench/gpu-data").resolve(), kind[0], ".", *kind[1:], folder=self.folder)

    def compiled(self, name, rules):
        """The results on data held out of the file that these rules give."""
        (self.folder / f"{name}.rules").write_text(rules)
        run(self.sinter, "compile", "m.sinter", "--target=native", "--slower=off", "--rules", f"{name}.rules", "-o",
            "file", folder=self.folder)
        run("./file", "--input", f"x={self.held}", "--output", "y=y.npy", f"--device={self.args.device}",
            folder=self.folder)
        (self.folder / "file").unlink()
        return read_npy(self.folder / "y.npy")

    def sqnr(self, rules):
        """Of the file of these rules, in dB, found here."""
        if self.want is None:
            self.want = self.compiled("bf16", "")
        noise = math.fsum((x - y) ** 2 for x, y in zip(self.compiled("chosen", rules), self.want))
        return 10 * math.log10(math.fsum(y * y for y in self.want) / noise) if noise else None

    def choose(self, name, sqnr, most):
        """A choice of at least that error and at no size slower than `most` (microseconds)."""
        latency = "".join(f"    require latency <= {us:.3f}us at T = {size}\n" for size, us in most.items())
        (self.folder / "auto.rules").write_text(AUTO.format(
            names=", ".join(SCHEMES), sqnr=sqnr, latency=latency, calibrate=self.calibrate, held=self.held,
            rows="" if self.args.model == "encoder" else f" samples {ROWS}"))
        errors = ["--errors=survey.json"] if (self.folder / "survey.json").exists() else []
        text, took = run(self.sinter, "choose", "m.sinter", "--rules=auto.rules", f"--device={self.args.device}",
                         "-o", "chosen.rules", f"--data={name}.json", *errors, folder=self.folder)
        choice = json.loads((self.folder / f"{name}.json").read_text())
        return choice, (self.folder / "chosen.rules").read_text(), took, text.splitlines()[0]


def graphs(choice, point):
    """Microseconds of each size."""
    return {str(bucket["T"]): ns / 1e3 for bucket, ns in zip(choice["buckets"], point["graph_ns"])}


def uniforms(choice):
    """Error (None: exact) and times of each scheme that can be used everywhere."""
    name = {index: "bf16" if name == "keep" else name for index, name in enumerate(choice["candidates"])}
    return {name[point["pick"][0]]: {"sqnr": point.get("measured_sqnr"), "us": graphs(choice, point)}
            for point in choice["uniform"]}


def finest(uniform):
    """Of the schemes that are not exact; infinity: all are."""
    return max((row["sqnr"] for row in uniform.values() if row["sqnr"] is not None), default=math.inf)


def measure(bench, name, uniform):
    """One target: what a uniform scheme has, and what auto makes of its error."""
    like = "bf16" if name == "between" else name
    error = finest(uniform) + BETWEEN if name == "between" else uniform[name]["sqnr"]
    row = {"scheme": name, "sqnr": error, "us": uniform[like]["us"]}
    choice, rules, took, times = bench.choose(name, EXACT if error is None else error - 0.02, row["us"])
    add(bench, row, choice, rules, took, times)
    return row


def add(bench, row, choice, rules, took, times):
    us, point = graphs(choice, choice["chosen"]), choice["chosen"]
    row["auto"] = {"sqnr": point["measured_sqnr"], "us": us, "estimated_us": point["us"],
                   "measured_us": point["measured_us"], "seconds": took, "steps": choice["seconds"],
                   "runs": choice["runs"], "times": times, "rules": rules.split("quant {")[-1].split("\n")[1:-2]}
    if bench.args.model == "stack":
        row["auto"]["file_sqnr"] = bench.sqnr(rules)
    print(f"{row['scheme']}: {'exact' if row['sqnr'] is None else format(row['sqnr'], '.2f') + ' dB'}, auto {took:.0f} s, "
          f"{choice['runs']} runs, " + ", ".join(f"T = {size}: {us[size] / row['us'][size]:.3f}x" for size in us),
          file=sys.stderr, flush=True)


def survey(bench, result):
    """Every scheme alone; the first target comes with it. What an earlier command left is taken."""
    path = bench.folder / "survey.json"
    if not path.exists():
        choice, rules, took, times = bench.choose("first", EXACT, {})
        uniform = uniforms(choice)
        row = {"scheme": "bf16", "sqnr": None, "us": uniform["bf16"]["us"]}
        add(bench, row, choice, rules, took, times)
        result["rows"] = [row] + [other for other in result["rows"] if other["scheme"] != "bf16"]
        (bench.folder / "first.json").rename(path)
    choice = json.loads(path.read_text())
    result["device"], result["uniform"] = choice["device"], uniforms(choice)
    return result["uniform"]


def save(args, result):
    result["rows"].sort(key=lambda row: TARGETS.index(row["scheme"]))
    args.out.write_text(json.dumps(result, indent=1) + "\n")


def decibels(sqnr):
    return math.inf if sqnr is None else sqnr


def best_uniform(uniform, sqnr, size):
    """The least time at a size of the schemes with that error: this one, and finer ones."""
    return min(row["us"][size] for row in uniform.values() if decibels(row["sqnr"]) >= decibels(sqnr) - 0.02)


def table(result):
    """Ratios: to the scheme's own time, and that of the best uniform scheme of that error."""
    sizes = list(result["rows"][0]["us"])
    print("| at least the error of | dB | " + " | ".join(f"T = {size}: us, `auto` | ratio | best" for size in sizes)
          + " | measured / estimated | s |")
    print("|---|---:|" + "---:|---:|---:|" * len(sizes) + "---:|---:|")
    worst, best, off, slowest, where = 0, 0, 0, 0, ""
    for row in result["rows"]:
        picked = row["auto"]
        cells = []
        for size in sizes:
            us, mine = row["us"][size], picked["us"][size]
            faster = best_uniform(result["uniform"], row["sqnr"], size) / mine
            worst = max(worst, mine / us)
            if faster > best:
                best, where = faster, f"{row['scheme']}, T = {size}"
            cells.append(f"{us:.1f}, {mine:.1f} | {mine / us:.3f} | {faster:.3f}")
        of = picked["measured_us"] / picked["estimated_us"]
        off, slowest = max(off, abs(of - 1)), max(slowest, picked["seconds"])
        print(f"| {row['scheme']} | {'exact' if row['sqnr'] is None else format(row['sqnr'], '.2f')} | "
              + " | ".join(cells) + f" | {of:.3f} | {picked['seconds']:.0f} |")

    def met(ok):
        return "met" if ok else "MISSED"

    missing = [name for name in TARGETS if name not in [row["scheme"] for row in result["rows"]]]
    print(f"\n{result['device']}, {result['model']}: at most {worst:.3f}x of a uniform scheme's time at its error (bar: "
          f"1.00x, {met(round(worst, 3) <= 1)}); faster than the best uniform scheme of that error by up to {best:.2f}x, "
          f"at {where} (bar: {FASTER}x, {met(best >= FASTER)}); measured within {100 * off:.1f} % of the estimate (bar: "
          f"{100 * BARS['off']:.0f} %, {met(off <= BARS['off'])}); chosen in at most {slowest:.0f} s (bar: "
          f"{BARS['seconds']} s, {met(slowest <= BARS['seconds'])})"
          + (f"; not measured: {', '.join(missing)}" if missing else ""))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--model", choices=MODELS, default="stack")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--inner", type=int, default=14336)
    parser.add_argument("--layers", type=int, default=4)
    args = parser.parse_args()
    args.work = args.work or pathlib.Path(f"auto-work-{args.model}")
    return args


def main():
    if sys.argv[1:2] == ["table"]:
        for path in sys.argv[2:]:
            table(json.loads(pathlib.Path(path).read_text()))
        return
    args, start = arguments(), time.monotonic()
    result = json.loads(args.out.read_text()) if args.out.exists() else {"rows": []}
    result["model"] = f"{args.model}, weights " + ("given" if args.data else "made")
    known = {row["scheme"] for row in result["rows"]}
    wanted = [name for name in args.targets.split(",") if name not in known]
    if wanted:
        bench = Bench(args)
        uniform = survey(bench, result)
        save(args, result)
    longest = max((row["auto"]["seconds"] for row in result["rows"]), default=0)
    for name in wanted:
        if name not in uniform and (name != "between" or math.isinf(finest(uniform))):
            print(f"{name}: cannot be used everywhere, or has no error", file=sys.stderr)
        elif name != "bf16":
            begun = time.monotonic()
            if begun - start + longest > args.seconds:
                print(f"{name} and what follows: not begun, {begun - start:.0f} s are over; the same command goes on",
                      file=sys.stderr)
                break
            result["rows"].append(measure(bench, name, uniform))
            save(args, result)
            longest = max(longest, time.monotonic() - begun)
    table(result)


if __name__ == "__main__":
    main()
