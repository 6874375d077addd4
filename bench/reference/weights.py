#!/usr/bin/env python3
"""GPTQ and AWQ in plain numpy, written from the papers, and sinter's weights measured against them.

    weights.py SINTER DATA OUT.json [CASE..]    DATA: what examples/minilm/prepare.py wrote. Rows of
                                                OUT.json for cases that are not named stay

Both sides see the same weights and calibration tokens of the 36 linear layers of all-MiniLM-L6-v2, the
same grids (groups, zero points, codes) and settings. The error of a layer is |X (W' - W)^T|^2 over
|X W^T|^2, W' the dequantised weight: for the references computed here in double precision, for sinter
taken from what the compiled program gives. Ratios are sinter's over the reference's.

GPTQ: Frantar et al., arXiv 2210.17323: H = 2 X^T X + damp mean(diag H), U = chol(inv(H))^T, columns in
order, each one's error over U_jj taken from the columns behind it; order=act: by falling diagonal, with
groups of the original columns and their scales from the original weight.
AWQ: Lin et al., arXiv 2306.00978: s = mean|x|^a, a of 20 steps, normalised by sqrt(max min), least
error of the output of all layers that read the input; then each group's range is clipped to the best of
10 steps down to 0.55, by the error of the group's part of the output. Inputs that no norm makes (of o
and down) keep their scale, as there is nothing to fold it into. Ours tries more ranges, and takes
groups one after the other.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TEXT = ROOT / "examples" / "minilm" / "layers.sinter"
NAMES = {"q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value",
         "o": "attention.output.dense", "up": "intermediate.dense", "down": "output.dense"}
# name: by, asymmetric, group, order=act
CASES = {"gptq-g128-asym-act": ("gptq", True, 128, True), "gptq-g128-asym": ("gptq", True, 128, False),
         "gptq-g128-sym-act": ("gptq", False, 128, True), "gptq-g32-asym-act": ("gptq", True, 32, True),
         "awq-g128-asym": ("awq", True, 128, False), "awq-g128-sym": ("awq", False, 128, False),
         "awq-g32-asym": ("awq", True, 32, False)}
DAMP = 0.01
COMMAND = "bench/reference/weights.py sinter data bench/results/weights.json"

# Grids: four bits; asymmetric: 0 is inside the range; symmetric: codes -7 .. 7 -----------------------


def grid(lo, hi, asym):
    """Scale and zero point of ranges."""
    lo, hi = np.minimum(lo, 0), np.maximum(hi, 0)
    if not asym:
        top = np.maximum(-lo, hi)
        return np.where(top == 0, 1, top / 7).astype(np.float32), np.zeros(lo.shape)
    scale = np.where(hi == lo, 1, (hi - lo) / 15).astype(np.float32)
    return scale, np.clip(np.rint(-lo / scale), 0, 15)


def decode(w, scale, zero, asym):
    code = np.rint(w / scale) + zero
    return (np.clip(code, *((0, 15) if asym else (-7, 7))) - zero) * scale


def grids(w, group, asym):
    """[N, K / group] each."""
    parts = w.reshape(len(w), -1, group)
    return grid(parts.min(2), parts.max(2), asym)


def round_to_nearest(w, group, asym):
    scale, zero = (np.repeat(a, group, 1) for a in grids(w, group, asym))
    return decode(w, scale, zero, asym)


# Quantisers ------------------------------------------------------------------------------------------


def gptq(w, x, group, asym, by_activity):
    n = w.shape[1]
    h = 2 * x.T @ x
    h[np.diag_indices(n)] += DAMP * np.diag(h).mean()
    order = np.argsort(-np.diag(h), kind="stable") if by_activity else np.arange(n)
    u = np.linalg.cholesky(np.linalg.inv(h[np.ix_(order, order)])).T
    work, out = w[:, order].copy(), np.empty_like(w)
    scale, zero = grids(w, group, asym)
    for j in range(n):
        g = order[j] // group
        if not by_activity and j % group == 0:  # from the columns as they are by now
            part = work[:, j:j + group]
            scale[:, g], zero[:, g] = grid(part.min(1), part.max(1), asym)
        out[:, order[j]] = decode(work[:, j], scale[:, g], zero[:, g], asym)
        error = (work[:, j] - out[:, order[j]]) / u[j, j]
        work[:, j + 1:] -= np.outer(error, u[j, j + 1:])
    return out


def awq_scales(weights, x, group, asym):
    """One scale an input channel for all layers that read x."""
    size, hessian = np.abs(x).mean(0), x.T @ x
    best, least = np.ones(x.shape[1]), np.inf
    for step in range(20):
        s = np.maximum(size**(step / 20), 1e-4)
        s = s / np.sqrt(s.max() * s.min())
        loss = 0
        for w in weights:
            off = round_to_nearest(w * s, group, asym) / s - w
            loss += np.sum((off @ hessian) * off)
        if loss < least:
            best, least = s, loss
    return best


def awq_clip(w, x, group, asym):
    """Each group's range narrowed, by the error of what it adds to the output."""
    out = np.empty_like(w)
    for at in range(0, w.shape[1], group):
        part, seen = w[:, at:at + group], x[:, at:at + group]
        hessian, least = seen.T @ seen, np.full(len(w), np.inf)
        for step in range(10):
            keep = 1 - step / 20
            scale, zero = grid(part.min(1) * keep, part.max(1) * keep, asym)
            got = decode(part, scale[:, None], zero[:, None], asym)
            loss = np.sum(((got - part) @ hessian) * (got - part), 1)
            better = loss < least
            least = np.where(better, loss, least)
            out[better, at:at + group] = got[better]
    return out


# The model -------------------------------------------------------------------------------------------


def norm(x, weight, bias):
    x = x - x.mean(1, keepdims=True)
    return x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-12) * weight + bias


def layers(model, seen):
    """For each layer: name, weight, input in double precision, the input's name."""
    data = {name: value.astype(np.float64) for name, value in seen.items()}
    for i in range(6):
        at = f"encoder.layer.{i}."
        norms = {"x": (at + "input.weight", at + "input.bias"),
                 "n": (at + "attention.output.LayerNorm.weight",
                       at + "attention.output.LayerNorm.bias")}
        inputs = {p: data[f"{p}{i}"] for p in "cg"}
        for p, (w, b) in norms.items():
            inputs[p] = norm(data[f"{p}{i}"], model[w].astype(np.float64), model[b])
        for part, reads in zip(("q", "k", "v", "o", "up", "down"), "xxxcng"):
            yield (f"{part}{i}", model[at + NAMES[part] + ".weight"].astype(np.float64),
                   model[at + NAMES[part] + ".bias"].astype(np.float64), inputs[reads], reads + str(i))


def references(by, asym, group, by_activity, calib):
    """The dequantised weight of each layer."""
    out, shared = {}, {}
    for name, w, _, x, reads in calib:
        shared.setdefault(reads, []).append(w)
    for name, w, _, x, reads in calib:
        if by == "gptq":
            out[name] = gptq(w, x, group, asym, by_activity)
            continue
        s = np.ones(w.shape[1])
        if reads[0] in "xn":
            if not isinstance(shared[reads], np.ndarray):
                shared[reads] = awq_scales(shared[reads], x, group, asym)
            s = shared[reads]
        out[name] = awq_clip(w * s, x / s, group, asym) / s
    return out


def programs(sinter, data, by, asym, group, by_activity, parts):
    """What the compiled model gives for each set of inputs: {set: {output: values}}."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file in ("model.safetensors", "layers-calib.safetensors"):
            (folder / file).symlink_to(data / file)
        shutil.copy(TEXT, folder)
        words = f"({'order=act, ' if by_activity else ''}damp={DAMP})" if by == "gptq" else ""
        (folder / "s.rules").write_text(f"scheme s {{ weight i4 {'asym' if asym else 'sym'} group {group} "
                                        f"by {by}{words}; act f32 }}\nquant {{ default : s }}\n")
        subprocess.run([sinter, "compile", folder / "layers.sinter", "--rules", folder / "s.rules", "-o",
                        folder / "layers"], check=True, stderr=subprocess.PIPE)
        for part, names in parts.items():
            ends = [f"{p}{i}" for i in range(6) for p in NAMES]
            words = [f"--input={n}={data / part}.safetensors" for n in names]
            words += [f"--output={n}={folder / n}.npy" for n in ends]
            subprocess.run([folder / "layers", "--device=cpu", *words], check=True)
            yield part, {n: np.load(folder / f"{n}.npy").astype(np.float64) for n in ends}


def compare(sinter, data, model, files, case):
    """Two rows: over the calibration tokens, and over those that are held out."""
    settings = CASES[case]
    sets = {part: list(layers(model, file)) for part, file in files.items()}
    refs = references(*settings, sets["layers-calib"])
    for part, got in programs(sinter, data, *settings, {p: list(f) for p, f in files.items()}):
        ours, theirs = {}, {}
        for name, w, b, x, _ in sets[part]:
            want = x @ w.T + b
            power = np.sum(want**2)
            ours[name] = np.sum((got[name] - want)**2) / power
            theirs[name] = np.sum((x @ (refs[name] - w).T)**2) / power
        ratio = {name: ours[name] / theirs[name] for name in ours}
        yield {"case": case, "tokens": "calibration" if "calib" in part else "held out",
               "sinter": sum(ours.values()) / 36, "reference": sum(theirs.values()) / 36,
               "mean_ratio": float(np.exp(np.mean(np.log(list(ratio.values()))))),
               "worst_ratio": max(ratio.values()), "worst": max(ratio, key=ratio.get),
               "ratios": {name: round(r, 4) for name, r in ratio.items()}}


def main():
    if len(sys.argv) < 4 or set(sys.argv[4:]) - set(CASES):
        sys.exit(__doc__.strip())
    sinter, data, out = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3])
    model = load_file(data / "model.safetensors")
    files = {part: load_file(data / f"{part}.safetensors") for part in ("layers-calib", "layers-x")}
    old = json.loads(out.read_text(encoding="utf-8"))["weights"] if out.exists() else []
    rows = {case: [row for row in old if row["case"] == case] for case in CASES}
    for case in sys.argv[4:] or CASES:
        rows[case] = list(compare(sinter, data, model, files, case))
        for row in rows[case]:
            print({key: value for key, value in row.items() if key != "ratios"}, flush=True)
        text = ",\n  ".join(json.dumps(row) for part in rows.values() for row in part)
        out.write_text(f'{{\n "command": "{COMMAND}",\n "weights": [\n  {text}\n ]\n}}\n',
                       encoding="utf-8")


if __name__ == "__main__":
    main()
