#!/usr/bin/env python3
"""export.py SINTER FOLDER [--packages=PATH]: what `sinter quantise` writes. TAP.

A model of random weights is written under each scheme that a format can say. The folder is then
read again: the program that it compiles to gives the bits of the one that was quantised here, and
decode.py's values, which share nothing with sinter, are the weights that the program multiplies by
(the identity matrix as its input shows them). --packages has compressed-tensors and AutoGPTQ's linear
layer read what was written as well: the same values again.

    pip install torch numpy safetensors transformers compressed-tensors
    pip download --no-deps auto-gptq==0.7.1   # unpacked into PATH
"""
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile

import numpy as np

import decode
import shared
from shared import finish, report

sinter, here = sys.argv[1], os.path.abspath(sys.argv[2])
packages = next((x.split("=")[1] for x in sys.argv if x.startswith("--packages=")), None)
TYPES = {"F32": np.float32, "F16": np.float16, "I32": np.int32, "I64": np.int64, "I8": np.int8, "U8": np.uint8,
         "BF16": np.uint16, "F8_E4M3": np.uint8}


def load(path):
    """Arrays, bf16 as f32 and f8 as its bytes."""
    out = {}
    for name, (dtype, shape, raw) in shared.load(path).items():
        out[name] = np.frombuffer(raw, TYPES[dtype]).reshape(shape)
        if dtype == "BF16":
            out[name] = (out[name].astype(np.uint32) << 16).view(np.float32)
    return out


def save(path, tensors):
    names = {np.dtype(np.float32): "F32", np.dtype(np.float16): "F16"}
    shared.save(path, {name: (names[t.dtype], t.shape, t.tobytes()) for name, t in tensors.items()})


def call(*words, **more):
    done = subprocess.run([sinter, *words], capture_output=True, text=True, timeout=60, **more)
    return done.returncode, done.stdout, done.stderr


# A model of three layers, the second of which reads what a norm and a bias make ------------------

N, K = 64, 96
TEXT = """version 1
weights "{weights}"
calibrate "{calib}"
dim B in [1, 96]

model m (x: f32[B, 96]) -> (y: f32[B, 96]) {{
    param norm: f32[96] from "a.norm.weight"
    param up: f16[64, 96] from "a.up.weight"
    param bias: f32[64] from "a.up.bias"
    param down: f16[96, 64] from "a.down.weight"
    param head: f16[96, 96] from "head.weight"
    n = rmsnorm(x, norm, eps=1e-5)
    y = linear(linear(n, up, bias), down) + linear(n, head)
}}
"""
ONE = """version 1
weights "{weights}"
dim B in [1, 96]

model m (x: f32[B, {k}]) -> (y: f32[B, {n}]) {{
    param up: f16[{n}, {k}] from "{weight}"
    y = linear(x, up)
}}
"""


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def make(tmp):
    r = np.random.default_rng(7)
    source = os.path.join(tmp, "source")
    shapes = {"a.norm.weight": K, "a.up.weight": (N, K), "a.up.bias": N, "a.down.weight": (K, N), "head.weight": (K, K),
              "embed.weight": (5, K)}
    os.mkdir(source)
    save(os.path.join(source, "model.safetensors"), {k: r.standard_normal(v).astype(np.float16) for k, v in shapes.items()})
    write(os.path.join(source, "config.json"), '{"model_type": "toy", "quantization_config": {}, "sizes": [1, {"a": "}"}]}')
    outliers = np.linspace(0.1, 4, K, dtype=np.float32)
    np.save(os.path.join(tmp, "calib.npy"), r.standard_normal((64, K)).astype(np.float32) * outliers)
    np.save(os.path.join(tmp, "x.npy"), r.standard_normal((7, K)).astype(np.float32))
    return source


def text_of(tmp, name, text, weights, **more):
    return write(os.path.join(tmp, name), text.format(weights=weights, calib=os.path.join(tmp, "calib.npy"), **more))


def run(tmp, text, x, *more):
    out = os.path.join(tmp, "y.npy")
    code, _, err = call("run", text, "--input", f"x={os.path.join(tmp, x)}", "--output", f"y={out}", *more)
    return np.load(out) if code == 0 else err


def values(tmp, folder, weight, n, k):
    """The weight [n, k] as a program that reads the folder multiplies by it; or what is wrong."""
    np.save(os.path.join(tmp, "eye.npy"), np.eye(k, dtype=np.float32))
    have = run(tmp, text_of(tmp, "one.sinter", ONE, folder, weight=weight, n=n, k=k), "eye.npy")
    return have if isinstance(have, str) else have.T


def setting_of(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        return json.load(f)["quantization_config"]


def decoded(t, name, setting):
    """The module's weight by decode.py, in f32."""
    if setting["quant_method"] == "gptq":
        return decode.gptq(t, name, setting["bits"], 0 if setting["checkpoint_format"] == "gptq_v2" else 1).astype(np.float32)
    group = next(g for g in setting["config_groups"].values() if name in g["targets"])
    args, fmt = group["weights"], group.get("format", setting["format"])
    scale = t[name + ".weight_scale"]
    if fmt == "pack-quantized":
        out = decode.ct_packed(t, name, args["num_bits"], args.get("group_size"), name + ".weight_g_idx" in t)
    elif fmt == "int-quantized":
        out = decode.ct_int8(t, name)
    elif fmt == "nvfp4-pack-quantized":
        out = decode.nvfp4(t, name)
    elif fmt == "mxfp4-pack-quantized":
        out = decode.mxfp4(t[name + ".weight_packed"], scale)
    elif fmt == "mxfp8-quantized":
        out = decode.e4m3(t[name + ".weight"]) * np.repeat(2.0**(scale.astype(float) - 127), 32, 1)
    elif args["strategy"] == "block":
        out = decode.fp8_block({**t, name + ".weight_scale_inv": scale}, name, *args["block_structure"])
    elif args["strategy"] == "group":
        out = decode.e4m3(t[name + ".weight"]) * np.repeat(scale.astype(float), args["group_size"], 1)
    else:
        out = decode.fp8_scaled(t, name)
    return out.astype(np.float32)


def by_package(name, setting, folder):
    """compressed-tensors' own values, and the type in which it computes them."""
    import torch
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme
    from safetensors.torch import load_file
    group = dict(next(g for g in setting["config_groups"].values() if name in g["targets"]))
    fmt = group.pop("format", setting["format"])
    tensors = load_file(os.path.join(folder, "model.safetensors"))
    state = {k[len(name) + 1:]: v for k, v in tensors.items() if k.startswith(name + ".weight")}
    value = BaseCompressor.get_value_from_registry(fmt).decompress(state, QuantizationScheme(**group))["weight"]
    return value, lambda want: torch.from_numpy(np.ascontiguousarray(want)).to(value.dtype)


def by_autogptq(name, setting, folder):
    """What AutoGPTQ's linear layer makes of the identity matrix, in f16."""
    import importlib
    import types
    import torch
    from safetensors.torch import load_file
    for package in ("auto_gptq", "auto_gptq.nn_modules", "auto_gptq.nn_modules.qlinear"):  # without what wants a GPU
        sys.modules[package] = types.ModuleType(package)
        sys.modules[package].__path__ = [os.path.join(packages, package.replace(".", "/"))]
    linear = importlib.import_module("auto_gptq.nn_modules.qlinear.qlinear_cuda_old").QuantLinear
    tensors = load_file(os.path.join(folder, "model.safetensors"))
    parts = {x: tensors[f"{name}.{x}"] for x in ("qweight", "qzeros", "scales", "g_idx")}
    k, n = parts["g_idx"].numel(), parts["scales"].shape[1]
    layer = linear(setting["bits"], setting["group_size"], k, n, False)
    layer.load_state_dict(parts, strict=False)
    value = layer(torch.eye(k, dtype=torch.float16)).T
    return value, lambda want: torch.from_numpy(np.ascontiguousarray(want)).to(value.dtype)


def check_package(want, name, setting, folder):
    if setting["quant_method"] == GPTQ:
        have, as_theirs = by_autogptq(name, setting, folder)
    else:
        have, as_theirs = by_package(name, setting, folder)
    want = as_theirs(want)
    bad = have != want
    return [f"{bad.sum()} of {want.numel()} values differ from the package's: {have[bad][:3]}, not {want[bad][:3]}"] if bad.any() else []


def check_weight(tmp, folder, name, n, k):
    """decode.py's values are those that a program multiplies by."""
    setting = setting_of(folder)
    t = load(os.path.join(folder, "model.safetensors"))
    want = decoded(t, name, setting)
    have = values(tmp, folder, name + ".weight", n, k)
    if isinstance(have, str):
        return [have]
    product = decode.nvfp4_last(t, name) if setting.get("format") == "nvfp4-pack-quantized" else want
    problems = [] if np.array_equal(have, product) else [f"{(have != product).sum()} of {want.size} values differ from decode.py's"]
    if packages and setting.get("checkpoint_format") != "gptq_v2":  # which AutoGPTQ does not know
        problems += check_package(want, name, setting, folder)
    return problems


def quantise(tmp, text, fmt, rules, *more):
    """Into a folder of its own."""
    out = tempfile.mkdtemp(dir=tmp)
    path = write(os.path.join(tmp, "q.rules"), rules)
    return (out, *call("quantise", text, "--rules", path, f"--format={fmt}", "-o", out, *more))


# Schemes -----------------------------------------------------------------------------------------

CT, GPTQ = "compressed-tensors", "gptq"
SCHEMES = [  # format, what is said of the weight, of the activation
    (CT, "i4 sym group 32", "f32"),
    (CT, "i4 sym group 32 scale f16", "f32"),
    (CT, "i4 asym group 32 scale bf16", "f32"),
    (CT, "u4 asym group 16", "f32"),
    (CT, "i4 sym per channel", "f32"),
    (CT, "i8 sym per channel", "f32"),
    (CT, "u8 asym group 32", "f32"),
    (CT, "i8 sym per tensor", "f32"),
    (CT, "i8 sym per channel", "i8 sym per token dynamic"),
    (CT, "u8 asym per channel", "i8 asym per token dynamic"),
    (CT, "i8 asym per channel", "i8 asym per tensor static minmax"),
    (CT, "i4 sym group 32", "i8 sym per token dynamic"),
    (CT, "i8 sym per channel", "i8 sym per token group 32 dynamic"),
    (CT, "i8 sym per channel", "i8 sym per tensor dynamic"),
    (CT, "i8 sym per channel", "i8 sym per token scale f16 dynamic"),
    (CT, "i8 sym per channel", "i8 asym per token scale bf16 dynamic"),
    (CT, "i8 sym per channel", "i8 sym per tensor scale f16 static minmax"),
    (CT, "i8 sym per channel", "i4 sym per token dynamic"),
    (CT, "i4 sym group 32", "i4 sym per token group 32 dynamic"),
    (CT, "i4 sym per channel", "i4 asym per token dynamic"),
    (CT, "i4 sym per channel", "u4 asym per token scale f16 dynamic"),
    (CT, "i4 sym per channel", "u4 asym per tensor static minmax"),
    (CT, "i4 sym per channel", "i4 sym per tensor static minmax"),
    (CT, "i8 sym per channel", "mxfp4"),
    (CT, "i8 sym per channel", "mxfp8"),
    (CT, "i8 sym per channel", "e4m3 per token scale bf16 dynamic"),
    (CT, "e4m3 per channel", "e4m3 per token scale e4m3 dynamic"),
    (CT, "i4 sym group 32", "e2m1 per token group 16 scale e4m3 dynamic"),
    (CT, "i4 sym group 32", "e2m1 per token group 32 dynamic"),
    (CT, "e4m3 per channel", "e2m1 per token group 16 dynamic"),
    (CT, "mxfp4", "i8 sym per token dynamic"),
    (CT, "mxfp4", "i8 asym per token dynamic"),
    (CT, "mxfp8", "e4m3 per token dynamic"),
    (CT, "mxfp8", "mxfp8"),
    (CT, "mxfp4", "mxfp4"),
    (CT, "nvfp4", "e2m1 per token group 16 scale e4m3 dynamic"),
    (CT, "i4 asym per tensor", "f32"),
    (CT, "u4 asym per tensor", "i8 sym per token dynamic"),
    (CT, "i7 asym per tensor", "f32"),
    (CT, "u2 asym per tensor", "f32"),
    (CT, "i5 asym per channel", "f32"),
    (CT, "e4m3 per channel scale e8m0", "f32"),
    (CT, "i4 sym group 32 scale e8m0", "f32"),
    (CT, "e4m3 per channel", "f32"),
    (CT, "e4m3 per channel", "e4m3 per token dynamic"),
    (CT, "e4m3 per tensor", "e4m3 per tensor static minmax"),
    (CT, "e4m3 block 32x32", "e4m3 per token group 32 dynamic"),
    (CT, "e4m3 block 32x32", "f32"),
    (CT, "e4m3 group 32", "f32"),
    (CT, "mxfp8", "f32"),
    (CT, "mxfp4", "f32"),
    (CT, "mxfp4", "mxfp8"),
    (CT, "nvfp4", "f32"),
    (CT, "nvfp4", "nvfp4 static minmax"),
    (CT, "i2 sym group 32", "f32"),
    (CT, "i3 sym group 32", "f32"),
    (CT, "u3 asym group 32", "f32"),
    (CT, "i5 sym per channel", "f32"),
    (CT, "i6 asym group 32 scale f16", "f32"),
    (CT, "u7 asym group 32", "f32"),
    (CT, "ternary group 32 by mse", "f32"),
    (GPTQ, "i2 sym group 32 scale f16", "f32"),
    (GPTQ, "i3 sym group 32 scale f16", "f32"),
    (GPTQ, "u2 asym group 32 scale f16", "f32"),
    (GPTQ, "i3 asym per channel scale f16", "f32"),
    (GPTQ, "ternary per channel scale f16 by mse", "f32"),
    (GPTQ, "i4 sym group 32 scale f16", "f32"),
    (GPTQ, "u4 asym group 32 scale f16", "f32"),
    (GPTQ, "i4 asym group 16 scale f16", "f32"),
    (GPTQ, "i8 sym per channel scale f16", "f32"),
    (GPTQ, "u8 asym group 32 scale f16", "f32"),
]


def check_results(tmp, model, rules, out, exact):
    here_y = run(tmp, model, "x.npy", "--rules", rules)
    there_y = run(tmp, text_of(tmp, "again.sinter", TEXT, out), "x.npy")
    if isinstance(there_y, str) or isinstance(here_y, str):
        return [here_y, there_y]
    if exact:
        return [] if np.array_equal(here_y, there_y) else [f"results differ by {np.abs(here_y - there_y).max()}"]
    return [] if np.allclose(here_y, there_y, rtol=1e-4, atol=1e-4) else [here_y - there_y]


def check_scheme(tmp, model, before, fmt, weight, act):
    rules = f"scheme s {{ weight {weight}; act {act} }}\nquant {{\n    default : keep\n    up : s\n    down : s\n}}\n"
    out, code, _, err = quantise(tmp, model, fmt, rules)
    if code:
        return [err]
    with open(os.path.join(out, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    after = load(os.path.join(out, "model.safetensors"))
    problems = [] if config["model_type"] == "toy" and config["sizes"] == [1, {"a": "}"}] else [config]
    problems += [f"{k} changed" for k in ("a.norm.weight", "a.up.bias", "head.weight", "embed.weight")
                 if not np.array_equal(after[k], before[k])]
    if "a.up.weight" in after and after["a.up.weight"].dtype == np.float16:
        problems.append("the float weights are there, too")
    # nvfp4: its second scale moves by units of its last place
    problems += check_results(tmp, model, os.path.join(tmp, "q.rules"), out, weight != "nvfp4")
    problems += check_act(out, act)
    return problems + (check_weight(tmp, out, "a.up", N, K) if act == "f32" else [])


def check_act(folder, act):
    """What is read back of the activation, in words: of unsigned integers the signed ones, of a static range its scale
    alone, which needs no rounding any more."""
    code, out, err = call("import", "--json", "--no-weights", folder)
    if code:
        return [err]
    have = {m["module"]: m.get("activation", "f32") for m in json.loads(out)["modules"]}
    names = {"mxfp8": "e4m3 per token group 32 scale e8m0", "mxfp4": "e2m1 per token group 32 scale e8m0",
             "nvfp4 static minmax": "e2m1 per token group 16 scale e4m3 outer"}
    want = names.get(act, re.sub(r"^u(?=\d)", "i", re.sub(r" dynamic| scale f16(?= static)| static minmax", "", act)))
    return [f"{name}: the activation is {said}, not {want}" for name, said in have.items() if said != want]


# What passes do to other tensors, and what is stored already --------------------------------------

MOVED = {
    "smoothing": "scheme s { weight i8 sym per channel; act i8 sym per token dynamic }\n"
                 "quant {\n    default : s\n    (up|head) : smooth 0.5\n    down : smooth 0.5\n}\n",
    "awq": "scheme s { weight i4 asym group 32 by awq; act f32 }\nquant { default : s }\n",
    "gptq in the order of activations": "scheme s { weight i4 sym group 32 by gptq(order=act); act f32 }\nquant { default : s }\n",
    "rotation": "scheme s { weight i8 sym per channel; act i8 sym per token dynamic }\nquant {\n    default : s\n    down : rotate hadamard\n}\n",
}


def check_moved(tmp, model, rules):
    out, code, _, err = quantise(tmp, model, CT, rules)
    return [err] if code else check_results(tmp, model, os.path.join(tmp, "q.rules"), out, True)


# Two layers of one weight ------------------------------------------------------------------------

TIED = """version 1
weights "{weights}"
calibrate {calib}
dim B in [1, 96]

model m (x: f32[B, 96], z: f32[B, 96]) -> (y: f32[B, 64], u: f32[B, 64]) {{
    param up: f16[64, 96] from "a.up.weight"
    param norm: f32[96] from "a.norm.weight"
    param other: f32[96] from "a.norm.weight"
    {param}
    y = linear({x}, up)
    u = linear({z}, {other})
}}
"""
AGAIN = 'param again: f16[64, 96] from "a.up.weight"'
BY = {"gptq": "i4 sym group 32 by gptq", "imatrix": "i4 sym group 32 by imatrix", "awq": "i4 sym group 32 by awq",
      "a static range": "i8 sym per channel"}


def tied_text(tmp, name, source, param="", calib=None, **more):
    said = {"x": "x", "z": "z", "other": "again" if param else "up", **more}
    text = TIED if "norm" in said["x"] else "\n".join(x for x in TIED.split("\n") if "norm" not in x)
    path = calib or f'"{os.path.join(tmp, "tied.safetensors")}"'
    return write(os.path.join(tmp, name), text.format(weights=source, param=param, calib=path, **said))


def tied_rules(what):
    act = "i8 sym per tensor static minmax" if what == "a static range" else "f32"
    return f"scheme s {{ weight {BY[what]}; act {act} }}\nquant {{ default : s }}\n"


def written_tensors(tmp, text, what):
    out, code, _, err = quantise(tmp, text, CT, tied_rules(what))
    return err if code else {k: v[2] for k, v in shared.load(os.path.join(out, "model.safetensors")).items()}


def check_tied(tmp, source, what):
    """The weight is calibrated on what both layers see: as one layer is that sees the rows of both. Integers, whose
    sums are exact in any order."""
    r = np.random.default_rng(9)
    rows = {"x": r.integers(-9, 9, (96, K)).astype(np.float32), "z": r.integers(-40, 40, (96, K)) * np.linspace(0, 1, K).round()}
    rows["z"] = rows["z"].astype(np.float32)
    save(os.path.join(tmp, "tied.safetensors"), rows)
    np.save(os.path.join(tmp, "both.npy"), np.vstack([rows["x"], rows["z"]]))
    np.save(os.path.join(tmp, "first.npy"), rows["x"])
    one = ONE.replace("dim B", 'calibrate "{calib}"\ndim B')
    want, alone = (written_tensors(tmp, write(os.path.join(tmp, f"{calib}.sinter"), one.format(
        weights=source, calib=os.path.join(tmp, calib + ".npy"), k=K, n=N, weight="a.up.weight")), what) for calib in ("both", "first"))
    have = {}
    for names, param in (("two names", AGAIN), ("one name", "")):
        model = tied_text(tmp, "tied.sinter", source, param)
        have[names] = written_tensors(tmp, model, what)
        if what == "imatrix":  # columns alone do, which a file may bring
            calib = os.path.join(tmp, "tied.calib")
            code, _, err = call("calibrate", model, "-o", calib)
            text = tied_text(tmp, "file.sinter", source, param, f'from "{calib}"')
            have[names + ", from a file"] = err if code else written_tensors(tmp, text, what)
    problems = [f"{name}: not the codes of one layer that sees all rows: {got if isinstance(got, str) else ''}"
                for name, got in have.items() if got != want]
    return problems + ([] if want != alone and not isinstance(want, str) else ["the rows of the first do as well", want])


def check_tied_refused(tmp, source):
    """Factors of awq for the columns are those of one input."""
    text = tied_text(tmp, "tied.sinter", source, AGAIN, x="rmsnorm(x, norm)", z="rmsnorm(z, other)")
    _, code, _, err = quantise(tmp, text, CT, tied_rules("awq"))
    said = "E0520.*a.up.weight: two layers read this weight, and awq, .*linear.rmsnorm.z.*the other layer.*linear.rmsnorm.x"
    return [] if code == 1 and re.search(said, err, re.S) else [err]


# One size of groups for all of gptq's modules ----------------------------------------------------

GROUPS = {  # the rules of four layers, [64, 64], [128, 64], [64, 128] twice; the size that the configuration says
    "one group is a whole row of some": ("g g g keep", 64),
    "a row per channel is one group, too": ("c g g keep", 64),
    "rows of one group": ("g g c keep", -1),
    "rows of one group, of two sizes": ("g g G keep", -1),
    "groups that are no row of another layer": ("g g G g", None),
    "groups that are no row of another layer, per channel": ("g c c g", None),
}
CHAIN = """version 1
weights "{weights}"
dim B in [1, 96]
model m (x: f32[B, 64]) -> (y: f32[B, 64], z: f32[B, 64]) {{
    param a: f32[64, 64] from "a.weight"
    param b: f32[128, 64] from "b.weight"
    param c: f32[64, 128] from "c.weight"
    param d: f32[64, 128] from "d.weight"
    h = linear(linear(x, a), b)
    y = linear(h, c)
    z = linear(h, d)
}}
"""


def check_groups(tmp, said, size):
    r = np.random.default_rng(8)
    shapes = {"a": (64, 64), "b": (128, 64), "c": (64, 128), "d": (64, 128)}
    save(os.path.join(tmp, "chain.safetensors"), {k + ".weight": r.standard_normal(s).astype(np.float32) for k, s in shapes.items()})
    np.save(os.path.join(tmp, "short.npy"), r.standard_normal((9, 64)).astype(np.float32))
    text = text_of(tmp, "chain.sinter", CHAIN, os.path.join(tmp, "chain.safetensors"))
    words = {"g": "group 64", "G": "group 128", "c": "per channel"}
    rules = "".join(f"scheme {k} {{ weight i4 sym {v} scale f16; act f32 }}\n" for k, v in words.items()) + "quant {\n" + \
        "".join(f"    {layer} : {rule}\n" for layer, rule in zip("abcd", said.split())) + "}\n"
    out, code, _, err = quantise(tmp, text, GPTQ, rules)
    if size is None:
        return [] if code == 1 and re.search("E0520.*its groups are not those of", err) else [code, err]
    if code or setting_of(out)["group_size"] != size:
        return [err or setting_of(out)]
    want = run(tmp, text, "short.npy", "--rules", os.path.join(tmp, "q.rules"))
    have = run(tmp, text_of(tmp, "again.sinter", CHAIN, out), "short.npy")
    return [] if not isinstance(have, str) and np.array_equal(have, want) else [have, want]


STORED = [("gptq-2", GPTQ), ("gptq-3", GPTQ), ("gptq-3", CT), ("ct-w3a16", CT), ("gptq-4-sym", GPTQ), ("gptq-4-order", GPTQ), ("gptq-8-asym", CT), ("awq-gemm", CT),
          ("awq-gemm", GPTQ), ("ct-w4a16-asym", CT), ("ct-mxfp4", CT), ("fp8-block", CT), ("bnb-int8", CT)]


def as_stored(have, want):
    """Rounded as want is: to f16 or, which shows in f32, to bf16."""
    if want.dtype == np.float16 or (want.view(np.uint32) & 0xffff).any():
        return have.astype(want.dtype)
    bits = have.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


def check_stored(tmp, folder, fmt):
    """What a checkpoint stores quantised is written as it is, under another format or its own."""
    want = load(os.path.join(here, folder, "expected.safetensors"))
    source = os.path.join(here, folder)
    name = sorted(want)[0]
    n, k = want[name].shape
    text = text_of(tmp, "stored.sinter", ONE, source, weight=name + ".weight", n=n, k=k)
    out, code, _, err = quantise(tmp, text, fmt, "")
    if code:
        return [err]
    have, there = values(tmp, source, name + ".weight", n, k), values(tmp, out, name + ".weight", n, k)
    problems = [] if np.array_equal(have, there) else ["the weights differ from those that were read"]
    setting = setting_of(out)
    found = decoded(load(os.path.join(out, "model.safetensors")), name, setting)
    if not np.array_equal(as_stored(found, want[name]), want[name]):
        problems.append("decode.py's values are not those of the package that made the checkpoint")
    return problems + (check_package(found, name, setting, out) if packages and fmt == CT else [])


# What cannot be written ---------------------------------------------------------------------------

ALL = "quant { default : s }\n"
REFUSED = {
    "a format of elements": (CT, "scheme s { weight nf4 group 32; act f32 }\n" + ALL, "a.up: compressed-tensors has no layout for nf4"),
    "binary": (CT, "scheme s { weight binary group 32; act f32 }\n" + ALL, "no layout for binary"),
    "five bits of gptq": (GPTQ, "scheme s { weight i5 group 32 scale f16; act f32 }\n" + ALL, "2, 3, 4 and 8 bits, not i5"),
    "e5m2": (CT, "scheme s { weight e5m2 per channel; act f32 }\n" + ALL, "no layout for e5m2"),
    "blocks of integers": (CT, "scheme s { weight i8 block 32x32; act f32 }\n" + ALL, "no layout for i8 sym block 32x32"),
    "groups that leave a rest": (CT, "scheme s { weight i4 group 40; act f32 }\n" + ALL, "40 does not divide 96 columns"),
    "nvfp4's activations without a static scale": (CT, "scheme s { weight nvfp4; act nvfp4 }\n" + ALL, "second scale from the checkpoint"),
    "integers under powers of two": (CT, "scheme s { weight i8 per channel; act i8 sym per token scale e8m0 dynamic }\n" + ALL,
                                    "no word for the scales of the activation i8 sym per token scale e8m0.*`mxfp8` and `mxfp4`"),
    "powers of two of other groups": (CT, "scheme s { weight e4m3 per channel; act e4m3 per token group 16 scale e8m0 dynamic }\n" + ALL,
                                     "no word for the scales of the activation e4m3 per token group 16 scale e8m0"),
    "activations of e5m2": (CT, "scheme s { weight e4m3 per channel; act e5m2 per token dynamic }\n" + ALL, "no word for the activation e5m2"),
    "scales of gptq": (GPTQ, "scheme s { weight i4 group 32; act f32 }\n" + ALL, "stores scales as f16.*say `scale f16`"),
    "activations of gptq": (GPTQ, "scheme s { weight i4 group 32 scale f16; act i8 per token dynamic }\n" + ALL, "no word for the activation"),
    "floats of gptq": (GPTQ, "scheme s { weight e4m3 per channel scale f16; act f32 }\n" + ALL, "gptq holds integers"),
    "two schemes of gptq": (GPTQ, "scheme s { weight i4 group 32 scale f16; act f32 }\nscheme t { weight i4 group 16 scale f16; act f32 }\n"
                                  "quant {\n    default : s\n    head : t\n}\n", "head: .*its groups are not those of a.up"),
    "an order of columns": (CT, "", "--format=gptq does", "gptq-4-order"),
    "zero points that are no integers": (CT, "", "its zero points are no integers", "hqq-4"),
    "nothing": (CT, "quant { default : keep }\n", "no layer is quantised"),
}


def files_of(folder):
    return sorted(os.listdir(folder))


def check_refused(tmp, model, fmt, rules, words, folder=None):
    if folder:
        name, want = sorted(load(os.path.join(here, folder, "expected.safetensors")).items())[0]
        n, k = want.shape
        model = text_of(tmp, "stored.sinter", ONE, os.path.join(here, folder), weight=name + ".weight", n=n, k=k)
    out, code, said, err = quantise(tmp, model, fmt, rules)
    problems = [] if code == 1 and "E0520" in err and re.search(words, err, re.S) else [f"exit code {code}", err]
    return problems + files_of(out)


def limited():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def check_folders(tmp, model):
    rules = "scheme s { weight i4 group 32; act f32 }\n" + ALL
    whole, code, _, err = quantise(tmp, model, CT, rules)
    report("one file", [] if code == 0 and files_of(whole) == ["config.json", "model.safetensors"] else [err, files_of(whole)])
    parts, code, _, err = quantise(tmp, model, CT, rules, "--shard-bytes", "6000")
    names = files_of(parts)
    report("several files", [] if code == 0 and len(names) > 4 and "model.safetensors.index.json" in names else [err, names])
    report("several files hold the same", check_results(tmp, model, os.path.join(tmp, "q.rules"), parts, True))
    sizes = [os.path.getsize(os.path.join(parts, x)) for x in names if re.match(r"model-\d{5}-of-\d{5}\.safetensors", x)]
    report("no file is too large", [] if len(sizes) > 2 and min(sizes) < 8000 and sorted(sizes)[-2] < 8000 else sizes)
    path = write(os.path.join(tmp, "q.rules"), rules)
    code, _, err = call("quantise", model, "--rules", path, "-o", whole)
    report("a folder that is not empty", [] if code == 1 and "E0502" in err and "not an empty folder" in err else [err])
    code, _, err = call("quantise", model, "--rules", path, "-o", os.path.join(tmp, "no", "where"))
    report("a folder in none", [] if code == 1 and "E0502" in err else [err])
    code, _, err = call("quantise", model, "--rules", path)
    report("no folder", [] if code == 2 and "-o FOLDER" in err else [err])
    gone = os.path.join(tmp, "gone")
    code, _, err = call("quantise", model, "--rules", path, "-o", gone, preexec_fn=limited, env={**os.environ, "SINTER_CACHE": tmp})
    report("a disk that is full", [] if code == 1 and "E0502" in err and not os.path.exists(gone) else [f"exit code {code}", err])


with tempfile.TemporaryDirectory() as folder:
    origin = make(folder)
    toy = text_of(folder, "model.sinter", TEXT, origin)
    tensors = load(os.path.join(origin, "model.safetensors"))
    for case in SCHEMES:
        report("{}: {}, act {}".format(*case), check_scheme(folder, toy, tensors, *case))
    for title, said in MOVED.items():
        report(title, check_moved(folder, toy, said))
    for title in BY:
        report(f"two layers of one weight: {title}", check_tied(folder, origin, title))
    report("refused: two layers of one weight, awq's factors", check_tied_refused(folder, origin))
    for title, case in GROUPS.items():
        report("gptq: " + title, check_groups(folder, *case))
    for title, fmt in STORED:
        report(f"{title} as {fmt}", check_stored(folder, title, fmt))
    for title, case in REFUSED.items():
        report("refused: " + title, check_refused(folder, toy, *case))
    check_folders(folder, toy)

finish()
