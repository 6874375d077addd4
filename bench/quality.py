#!/usr/bin/env python3
"""What each scheme costs a real model in accuracy: examples/minilm through compiled programs.

quality.py run SINTER DATA OUT.json [SCHEME..]   DATA: what examples/minilm/prepare.py wrote. Rows of
                                                 OUT.json for other schemes than those named stay
quality.py readme ROOT [--check]                 the table between <!-- quality --> and
                                                 <!-- /quality --> of ROOT/README.md, from
                                                 ROOT/bench/results/minilm.json

Errors are those of the 36 linear layers, each fed with what it reads in the float model, over the
tokens of the held-out sentences, against double precision; accuracy is that of the whole encoder.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

EXAMPLE = pathlib.Path(__file__).resolve().parent.parent / "examples" / "minilm"
ROWS = (("float", "f32, as written"), ("fp8-tensor", "fp8, per tensor"),
        ("fp8-channel", "fp8, per channel and token"), ("fp8-1x128", "fp8, 128x128 and 1x128"),
        ("mxfp8", "MXFP8"), ("int8-static", "int8, static: extremes"),
        ("int8-percentile", "int8, static: percentile 99.9"), ("int8-mse", "int8, static: mse"),
        ("int8-kl", "int8, static: kl"), ("int8-dynamic", "int8, dynamic per token"),
        ("int4-rtn", "int4 weights, groups of 128: RTN"), ("int4-gptq", "the same: GPTQ"),
        ("int4-awq", "the same: AWQ"), ("int4-hqq", "the same: HQQ"),
        ("nf4", "NF4 weights, groups of 64"), ("mxfp4", "MXFP4, both operands"),
        ("nvfp4", "NVFP4, both operands"))
COMMAND = "bench/quality.py run sinter data bench/results/minilm.json"


def evaluate(sinter, folder, text, scheme, *more):
    rules = [] if scheme == "float" else ["--rules", str(EXAMPLE / "rules" / (scheme + ".rules"))]
    done = subprocess.run([sinter, "eval", str(folder / text), "--json", *rules, *more],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode not in (0, 3):  # 3: a bound of the text is missed, which is a result
        sys.exit(f"quality.py: {text} {scheme}: {done.stderr}")
    return json.loads(done.stdout)


def measure(sinter, folder, scheme):
    layers = evaluate(sinter, folder, "layers.sinter", scheme)["expects"]
    whole = evaluate(sinter, folder, "encoder.sinter", scheme, "--labels", str(folder / "labels.npy"))
    ends = {row["output"]: row for row in whole["expects"]}
    num = sum(row["elements"] for row in layers)
    return {"scheme": scheme,
            "mean_abs": sum(row["mean_abs"] * row["elements"] for row in layers) / num,
            "max_abs": max(row["max_abs"] for row in layers),
            "sqnr_db": sum(row["sqnr_db"] for row in layers) / len(layers),
            "worst_layer": min(layers, key=lambda row: row["sqnr_db"])["output"],
            "worst_sqnr_db": min(row["sqnr_db"] for row in layers),
            "embedding_cosine": ends["embedding"]["cosine"],
            "logits_sqnr_db": ends["logits"]["sqnr_db"],
            "accuracy": whole["accuracy"],
            "layers": {row["output"]: round(row["sqnr_db"], 3) for row in layers}}


def read(path):
    rows = json.loads(path.read_text(encoding="utf-8"))["quality"] if path.exists() else []
    return {row["scheme"]: row for row in rows}


def run(sinter, data, out, schemes):
    data, out = pathlib.Path(data).resolve(), pathlib.Path(out)
    unknown = set(schemes) - {scheme for scheme, _ in ROWS}
    if unknown:
        sys.exit("quality.py: no such scheme: " + ", ".join(sorted(unknown)))
    rows = read(out)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file in data.iterdir():
            if file.suffix != ".sinter":
                (folder / file.name).symlink_to(file)
        for text in ("layers.sinter", "encoder.sinter"):
            shutil.copy(EXAMPLE / text, folder)
        for scheme, _ in ROWS:
            if schemes and scheme not in schemes:
                continue
            rows[scheme] = measure(sinter, folder, scheme)
            print({key: value for key, value in rows[scheme].items() if key != "layers"}, flush=True)
            body = ",\n  ".join(json.dumps(rows[scheme]) for scheme, _ in ROWS if scheme in rows)
            out.write_text(f'{{\n "command": "{COMMAND}",\n "quality": [\n  {body}\n ]\n}}\n',
                           encoding="utf-8")


def short(error):
    return f"{error:.0f}" if error >= 10 else f"{error:.2g}"


def table(path):
    rows = read(path)
    yield "| scheme | mean error | largest error | SQNR | worst layer | cosine | accuracy |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for scheme, title in ROWS:
        row = rows[scheme]
        yield (f"| {title} | {short(row['mean_abs'])} | {short(row['max_abs'])} | {row['sqnr_db']:.1f} dB | "
               f"{row['worst_sqnr_db']:.1f} dB | {row['embedding_cosine']:.4f} | "
               f"{100 * row['accuracy']:.1f} % |")


def readme(root, check):
    root = pathlib.Path(root)
    page = root / "README.md"
    text = page.read_text(encoding="utf-8")
    if "<!-- quality -->" not in text:
        sys.exit("quality.py: README.md has no <!-- quality --> <!-- /quality -->")
    body = "\n".join(table(root / "bench" / "results" / "minilm.json")) + "\n"
    want = re.sub(r"(<!-- quality -->\n).*?(<!-- /quality -->)",
                  lambda m: m.group(1) + body + m.group(2), text, flags=re.S)
    if check and want != text:
        sys.exit("quality.py: the README's table is not what the results say")
    if not check:
        page.write_text(want, encoding="utf-8")


def main():
    words = sys.argv[1:]
    if words[:1] == ["run"] and len(words) >= 4:
        run(*words[1:4], words[4:])
    elif words[:1] == ["readme"] and len(words) in (2, 3):
        readme(words[1], "--check" in words)
    else:
        sys.exit(__doc__.strip())


if __name__ == "__main__":
    main()
