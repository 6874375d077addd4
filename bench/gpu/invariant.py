"""invariant.py BUILD OUT.json [--work FOLDER] [--schemes fp8,int8,w4a16] [--timing WORD] [--width D --inner F
--layers L]: what the same bits in every batch cost on the first GPU.

Feed-forward layers of an 8B model (4096 x 14336), each scheme compiled with --invariant and without, at T = 1, 16, 128,
1024: microseconds of a layer in graphs of the whole model (gpu-model time), over more weights than the L2 holds, and by
how much one order of sums is slower. A bar is met at 16 % at 128 rows and at 25 % at any size. BUILD: a build folder, or
what pack.sh made of one. Weights and files that FOLDER holds already are used as they are.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import sys
import tempfile

import stack

SIZES = (1, 16, 128, 1024)
BARS = {size: 0.16 if size == 128 else 0.25 for size in SIZES}
SCHEMES = ("fp8", "int8", "w4a16")


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.build = args.build.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cache").mkdir(mode=0o700, exist_ok=True)
        if not (folder / "model.safetensors").exists():
            self.run(self.build / "bench/gpu-data", "planted", ".", args.width, args.inner, args.layers, 1)

    def run(self, *command):
        stack.run(*command, folder=self.folder)

    def compile(self, scheme, option):
        """The name of the compiled file."""
        name = f"{scheme}{option}"
        text = self.folder / f"{name}.sinter"
        if not (self.folder / name).exists():
            schemes = f"scheme s {{ {stack.SCHEMES[scheme]} }}\nquant {{ default : s }}"
            text.write_text(stack.text(self.args, SIZES, schemes))
            self.run(self.build / "tools/sinter", "compile", text, "--target=sm_90a", "--slower=off",
                     f"--timing={self.args.timing}", *filter(None, [option]), "-o", name)
        return name

    def time(self, name):
        """Microseconds of a layer at each size."""
        (self.folder / "times.jsonl").unlink(missing_ok=True)
        self.run(self.build / "bench/gpu-model", "time", name, f"--layers={self.args.layers}", "--bench=invariant",
                 "--json=times.jsonl")
        rows = [json.loads(line) for line in (self.folder / "times.jsonl").read_text().splitlines()]
        return {row["m"]: row["us"] for row in rows if row["bench"] == "invariant"}


def measure(bench, schemes):
    pairs = [(scheme, option) for scheme in schemes for option in ("", "--invariant")]
    with concurrent.futures.ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 4)) as pool:
        list(pool.map(lambda pair: bench.compile(*pair), pairs))
    rows = []
    for scheme in schemes:
        free, ours = (bench.time(bench.compile(scheme, option)) for option in ("", "--invariant"))
        for size in SIZES:
            cost = ours[size] / free[size] - 1
            rows.append({"scheme": scheme, "T": size, "free_us": free[size], "invariant_us": ours[size], "cost": cost,
                         "bar": BARS[size], "met": cost <= BARS[size]})
    return rows


def table(rows):
    print("| | T | in any order, us | in one order, us | slower | bar |\n|---|---:|---:|---:|---:|---:|")
    for row in rows:
        print(f"| {row['scheme']} | {row['T']} | {row['free_us']:.1f} | {row['invariant_us']:.1f} | "
              f"{100 * row['cost']:.1f} % | {100 * row['bar']:.0f} %{'' if row['met'] else ' MISSED'} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--schemes", default=",".join(SCHEMES))
    parser.add_argument("--timing", default="sm_90-132sm-144g", help="as sinter's")
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--inner", type=int, default=14336)
    parser.add_argument("--layers", type=int, default=2)
    args = parser.parse_args()
    schemes = args.schemes.split(",")
    if set(schemes) - set(SCHEMES):
        parser.error(f"schemes are {', '.join(SCHEMES)}")
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Bench(args, (args.work or pathlib.Path(folder)).resolve()), schemes)
    args.out.write_text(json.dumps({"width": args.width, "inner": args.inner, "layers": args.layers, "rows": rows},
                                   indent=1) + "\n")
    table(rows)
    return 0 if all(row["met"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
