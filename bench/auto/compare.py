#!/usr/bin/env python3
"""compare.py SINTER MODEL AUTO_RULES HELDOUT OUT.json [--threads N] [--outputs Y,..] [--front FILE]
[--args ARG ..]: holds `auto` against
every uniform scheme and against a choice by bits alone, at equal measured error.

AUTO_RULES is a file with schemes and an `auto` block. Its requirements are replaced: for each candidate that
can be used everywhere, the model with it at every layer runs on HELDOUT, and the error of its outputs against
the float model is found here, in numpy. Then `auto` is asked for at least that SQNR (less 1e-4 dB, for rounding)
on the same data, once for the least latency and once for the fewest bytes. All of them get the times of the
first choice (--times), so that they differ by what was chosen and not by what else the machine did. Needs numpy
and safetensors.

compare.py table OUT.json ..: what docs/auto.md says of these, as a table.
"""
import argparse
import json
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

import numpy
from safetensors.numpy import load_file


def run(command):
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 5):
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stderr[-3000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, {"wall": round(time.monotonic() - start, 2), "cpu": round(cpu, 2)}


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.model, self.heldout = args.model.resolve(), args.heldout.resolve()
        text = args.rules.read_text()
        block = re.search(r"auto \{.*?\n\}\n", text, re.S)
        self.schemes = text[: block.start()] + text[block.end() :]
        self.lines = [line for line in block.group(0).split("\n") if "require " not in line]
        self.calibrate = re.search(r'calibrate on ("[^"]*")', block.group(0)).group(1)
        names = re.search(r"candidates (.*)", block.group(0)).group(1)
        self.candidates = [name.strip() for name in names.split(",")]
        self.times = None
        self.inputs = load_file(self.heldout)

    def rules(self, name, text):
        path = self.folder / name
        path.write_text(self.schemes + text)
        return path

    def outputs(self, rules):
        """The results of the model under these rules, compiled and run on the data held out."""
        program = self.folder / "program"
        run([self.args.sinter, "compile", self.model, "--rules", rules, "-o", program])
        command = [program, f"--threads={self.args.threads}"]
        command += [f"--input={name}={self.heldout}" for name in self.inputs]
        run(command + [f"--output={name}={self.folder / (name + '.npy')}" for name in self.args.outputs])
        return [numpy.load(self.folder / f"{name}.npy").astype(numpy.float64) for name in self.args.outputs]

    def error(self, got, want):
        """SQNR and cosine of the worst output."""
        sqnr, cosine = [], []
        for y, x in zip(want, got):
            noise = ((x - y) ** 2).sum()
            sqnr.append(10 * numpy.log10((y * y).sum() / noise) if noise else float("inf"))
            cosine.append((x * y).sum() / numpy.sqrt((x * x).sum() * (y * y).sum()))
        return float(min(sqnr)), float(min(cosine))

    def choose(self, name, aim, require):
        """One choice: its JSON, its rules, and how long it took."""
        lines = list(self.lines)
        if aim:
            lines = [line if "minimize " not in line else f"    minimize {aim}" for line in lines]
        at = next(i for i, line in enumerate(lines) if "minimize " in line)
        if require is not None:
            lines.insert(at, f'    require sqnr >= {require - 1e-4:.9g} on "{self.heldout}"')
        rules = self.rules(f"{name}.auto", "\n".join(lines))
        data, chosen = self.folder / f"{name}.json", self.folder / f"{name}.rules"
        front = [f"--front={self.args.front}"] if self.times is None and self.args.front else []
        times = [f"--times={self.times}"] if self.times else []
        text, took = run([self.args.sinter, "choose", self.model, "--rules", rules, "-o", chosen,
                          f"--data={data}", f"--threads={self.args.threads}", *times, *front, *self.args.args])
        choice = json.loads(data.read_text())
        if self.times is None:
            self.times = data
        return {"choice": choice, "took": took, "rules": chosen, "text": text}


def measured(bench, picked, want):
    """What a choice comes to, with the error found here from the model compiled with its rules."""
    sqnr, cosine = bench.error(bench.outputs(picked["rules"]), want)
    choice = picked["choice"]
    beyond = choice["seconds"]["errors"] + choice["seconds"]["settle"]
    return {"us": choice["chosen"]["us"], "bytes": choice["chosen"]["bytes"], "sqnr": sqnr, "cosine": cosine,
            "measured_over_estimated": choice["measured_over_estimated"], "proven": choice["proven"],
            "runs": choice["runs"], "seconds_errors_and_solving": round(beyond, 2),
            "seconds": choice["seconds"], "seconds_of_the_command": picked["took"], "rules": picked["rules"].read_text().split("\n")}


def table(paths):
    print("| at least the SQNR of | dB | that scheme | fewest bytes | `auto` | measured / estimated error |")
    print("|---|---:|---:|---:|---:|---:|")
    for path in paths:
        result = json.loads(pathlib.Path(path).read_text())
        name = result["model"].removesuffix(".sinter")
        for row in result["against"]:
            picked, bits = row["auto"], row["bits"]
            print(f"| {name}, {row['scheme']} | {row['sqnr']:.2f} | {row['us'] / 1000:.2f} | {bits['us'] / 1000:.2f} | "
                  f"{picked['us'] / 1000:.2f} | {picked['measured_over_estimated']:.3f} |")


def main():
    if sys.argv[1:2] == ["table"]:
        table(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sinter", type=pathlib.Path)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("rules", type=pathlib.Path)
    parser.add_argument("heldout", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--outputs", default="y", type=lambda text: text.split(","))
    parser.add_argument("--threads", default="0")
    parser.add_argument("--front", type=pathlib.Path)
    parser.add_argument("--args", nargs=argparse.REMAINDER, default=[], help="further arguments of sinter choose")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, pathlib.Path(folder))
        want = bench.outputs(bench.rules("float.rules", "quant { default : keep }\n"))
        first = bench.choose("first", None, None)
        print(first["text"].split("\n")[0])
        result = {"model": args.model.name, "times": first["text"].split("\n")[0].split("times: ")[1],
                  "threads": int(args.threads), "layers": len(first["choice"]["layers"]),
                  "groups": len(first["choice"]["chosen"]["pick"]), "against": []}
        usable = {bench.candidates[point["pick"][0]]: point for point in first["choice"]["uniform"]}
        for name in (c for c in bench.candidates if c != "keep" and c in usable):
            uniform = bench.rules("uniform.rules", f"calibrate {bench.calibrate}\nquant {{ default : {name} }}\n")
            sqnr, cosine = bench.error(bench.outputs(uniform), want)
            row = {"scheme": name, "us": usable[name]["us"], "bytes": usable[name]["bytes"], "sqnr": sqnr,
                   "cosine": cosine}
            row["auto"] = measured(bench, bench.choose("auto", None, sqnr), want)
            row["bits"] = measured(bench, bench.choose("bits", "bytes", sqnr), want)
            result["against"].append(row)
            print(f"{name:12} {sqnr:6.2f} dB {row['us']:10.1f} us; bits {row['bits']['us']:10.1f} us, "
                  f"{row['bits']['sqnr']:6.2f} dB; auto {row['auto']['us']:10.1f} us, {row['auto']['sqnr']:6.2f} dB, "
                  f"error {row['auto']['measured_over_estimated']:.3f} of the estimate, "
                  f"{row['auto']['seconds_errors_and_solving']:.1f} s, of the processors "
                  f"{row['auto']['seconds_of_the_command']['cpu']:.1f} s", flush=True)
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
