#!/usr/bin/env python3
"""import.py SINTER FOLDER [--update]: what `sinter import` says of each checkpoint here is its
import.txt; what is wrong is refused with a code and both facts, never read, never a crash. TAP."""
import copy
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

from shared import finish, load, report, save

sinter, here = sys.argv[1], os.path.abspath(sys.argv[2])
update = "--update" in sys.argv
SIZE = {"F32": 4, "F16": 2, "BF16": 2, "I16": 2, "I32": 4, "I64": 8, "I8": 1, "U8": 1, "F8_E4M3": 1, "F8_E8M0": 1}


def metadata(path):
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        return json.loads(f.read(size)).get("__metadata__")


def run(*words):
    done = subprocess.run([sinter, "import", *words], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def read_folder(folder):
    if not os.path.exists(os.path.join(here, folder, "config.json")):  # the file says itself what it holds
        path = os.path.join(here, folder, "model.safetensors")
        return {"__metadata__": metadata(path)}, load(path)
    with open(os.path.join(here, folder, "config.json"), encoding="utf-8") as f:
        return json.load(f), load(os.path.join(here, folder, "model.safetensors"))


def write_folder(path, config, tensors):
    os.makedirs(path, exist_ok=True)
    about = config.get("__metadata__") if isinstance(config, dict) else None
    save(os.path.join(path, "model.safetensors"), tensors, about)
    if config is not None and not about:
        with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as f:
            f.write(config if isinstance(config, str) else json.dumps(config))


# Goldens -----------------------------------------------------------------------------------------

folders = sorted(x for x in os.listdir(here) if os.path.exists(os.path.join(here, x, "import.txt")) or os.path.exists(os.path.join(here, x, "config.json")))
for folder in folders:
    code, out, err = run(os.path.join(here, folder))
    golden = os.path.join(here, folder, "import.txt")
    if update:
        with open(golden, "w", encoding="utf-8") as f:
            f.write(out)
    with open(golden, encoding="utf-8") as f:
        want = f.read()
    report(folder, [] if code == 0 and out == want else [f"exit code {code}", *out.splitlines(), *err.splitlines()])
    code, out, err = run("--json", os.path.join(here, folder))
    report(folder + " as JSON", [] if code == 0 and json.loads(out)["modules"] else [err])
    code, out, err = run("--no-weights", os.path.join(here, folder))
    report(folder + " without weights", [] if code == 0 and "codes occur" not in out else [err])

done = subprocess.run([sinter, "eval", os.path.join(here, "gguf/layers.sinter")], capture_output=True, text=True, timeout=60)
report("gguf: layers run", [] if done.returncode == 0 and done.stdout.count("ok ") == 17 and not done.stderr
       else [*done.stdout.splitlines(), *done.stderr.splitlines()])


# Wrong ones --------------------------------------------------------------------------------------

def tensor(tensors, suffix):
    return next(x for x in tensors if x.endswith(suffix))


def drop(suffix):
    return lambda c, t: t.pop(tensor(t, suffix))


def dtype(suffix, name):
    """The same bytes under another dtype."""
    def change(c, t):
        entry = t[tensor(t, suffix)]
        entry[1] = entry[1][:-1] + [entry[1][-1] * SIZE[entry[0]] // SIZE[name]] if entry[1] else entry[1]
        entry[0] = name
    return change


def short(suffix, axis=0):
    """One less along an axis."""
    def change(c, t):
        entry = t[tensor(t, suffix)]
        shape = entry[1]
        entry[1] = shape[:axis] + [shape[axis] - 1] + shape[axis + 1:]
        size = SIZE[entry[0]]
        for n in entry[1]:
            size *= n
        entry[2] = entry[2][:size]
    return change


def fill(suffix, raw):
    def change(c, t):
        entry = t[tensor(t, suffix)]
        entry[2] = (raw * len(entry[2]))[:len(entry[2])]
    return change


def config(path, value):
    def change(c, t):
        at = c["quantization_config"]
        *keys, last = path.split("/")
        for key in keys:
            at = at[key]
        if value is None:
            at.pop(last)
        else:
            at[last] = value
    return change


def about(key, value, module="model.layers.0.proj.weight"):
    """What torchao's metadata say of a module."""
    def change(c, t):
        said = json.loads(c["__metadata__"][module])
        at = said
        for step in key.split("/")[:-1]:
            at = at[step]
        at[key.split("/")[-1]] = value
        c["__metadata__"][module] = json.dumps(said)
    return change


def about_text(value):
    return lambda c, t: c["__metadata__"].update({"model.layers.0.proj.weight": value})


def both(first, second):
    def change(c, t):
        first(c, t)
        second(c, t)
    return change


NAN16, NAN32 = b"\xff\x7e", b"\xff\xff\xff\x7f"
GPTQ = {
    "no scales": (drop(".scales"), "E0517", "has no scales"),
    "no zero points": (drop(".qzeros"), "E0517", "has no qzeros"),
    "codes are floats": (dtype(".qweight", "F32"), "E0517", "not a matrix of I32"),
    "short words": (short(".qweight"), "E0517", "words of 32 bits do not hold"),
    "a group too few": (short(".scales"), "E0517", "groups"),
    "zero points short": (short(".qzeros", 1), "E0517", "need"),
    "other bits": (config("bits", 8), "E0517", "says bits = 8"),
    "another group": (config("group_size", 128), "E0517", "groups of 128 columns"),
    "a negative group": (config("group_size", -7), "E0517", "groups of -7"),
    "scales are NaN": (fill(".scales", NAN16), "E0517", "not a finite number"),
    "g_idx out of range": (fill(".g_idx", b"\x7f\0\0\0"), "E0517", "belongs to group 127"),
    "one group has all": (fill(".g_idx", b"\0"), "E0517", "group 0 has"),
    "not symmetric": (fill(".qzeros", b"\x21"), "E0517", "stored as 1"),
    "an unknown layout": (config("checkpoint_format", "gptq_p"), "E0516", "gptq_p"),
    "another method": (config("quant_method", "awq"), "E0517", None),
    "an unknown method": (config("quant_method", "quip"), "E0516", "quip"),
}
AWQ = {
    "no scales": (drop(".scales"), "E0517", "has no scales"),
    "no zero points": (drop(".qzeros"), "E0517", "has no qzeros"),
    "codes are floats": (dtype(".qweight", "F32"), "E0517", "not a matrix of I32"),
    "scales short": (short(".scales", 1), "E0517", None),
    "zero points short": (short(".qzeros", 1), "E0517", "need"),
    "another group": (config("group_size", 5), "E0517", "groups of 5 columns"),
    "another version": (config("version", "marlin"), "E0516", "marlin"),
    "another version's words": (config("version", "gemv_fast"), "E0517", "not a matrix of I16"),
    "other bits": (config("bits", 3), "E0516", "3 bits"),
    "scales are NaN": (fill(".scales", NAN16), "E0517", "not a finite number"),
    "bits by two names": (config("w_bit", 8), "E0517", "says bits = 4, but w_bit = 8"),
    "groups by two names": (config("q_group_size", 64), "E0517", "says group_size = 32, but q_group_size = 64"),
    "no zero points, but some": (config("zero_point", False), "E0517", "has zero points other than 8, but"),
}
GROUP = "config_groups/group_0/"
CT = {
    "no scales": (drop(".weight_scale"), "E0517", "no weight_scale"),
    "no codes": (drop(".weight_packed"), "E0517", "has no codes beside it"),
    "no shape": (drop(".weight_shape"), "E0517", "no weight_shape"),
    "an absurd shape": (fill(".weight_shape", b"\xff" * 7 + b"\x7f"), "E0517", "weight_shape says"),
    "short words": (short(".weight_packed", 1), "E0517", "words for"),
    "a row too few": (short(".weight_packed"), "E0517", "weight_shape says"),
    "scales short": (short(".weight_scale", 1), "E0517", "need"),
    "other bits": (config(GROUP + "weights/num_bits", 8), "E0517", "8 bits"),
    "no bits": (config(GROUP + "weights/num_bits", 77), "E0517", "77 bits"),
    "a float": (config(GROUP + "weights/type", "float"), "E0517", "float"),
    "another group": (config(GROUP + "weights/group_size", 48), "E0517", "need"),
    "no group": (config(GROUP + "weights/group_size", None), "E0517", None),
    "not symmetric": (config(GROUP + "weights/symmetric", False), "E0517", "no weight_zero_point"),
    "no target": (config(GROUP + "targets", ["re:.*mlp.*"]), "E0517", "no target"),
    "a bad expression": (config(GROUP + "targets", ["re:["]), "E0516", "not understood"),
    "ignored": (config("ignore", ["re:.*proj"]), "E0517", "'ignore' names"),
    "a private format": (config("format", "marlin-24"), "E0516", "marlin-24"),
    "scales are NaN": (fill(".weight_scale", b"\xff\x7f"), "E0517", "not a finite number"),
}
AO = {
    "no codes": (drop("0.proj._weight_qdata"), "E0517", "there is no qdata"),
    "no scales": (drop("0.proj._weight_scale"), "E0517", "there is no scale"),
    "scales short": (short("0.proj._weight_scale"), "E0517", "is [63, 1]"),
    "scales are integers": (dtype("0.proj._weight_scale", "I32"), "E0517", None),
    "scales are NaN": (fill("0.proj._weight_scale", NAN32), "E0517", "not a finite number"),
    "zero points are floats": (dtype("0.proj._weight_zero_point", "F8_E4M3"), "E0517", None),
    "no block": (about("_data/block_size", None), "E0517", "no block_size of two sizes"),
    "a block of nothing": (about("_data/block_size", [1, 0]), "E0517", "no block_size of two sizes"),
    "experts": (about("_data/block_size", [1, 1, 32]), "E0517", "no block_size of two sizes"),
    "another block": (about("_data/block_size", [1, 48]), "E0517", None),
    "an unknown class": (about("_type", "Int5Tensor"), "E0516", "torchao's Int5Tensor, which is not read"),
    "a private layout": (about("_type", "Int4TilePackedTo4dTensor"), "E0516", "its layout is private to one kernel"),
    "metadata of noise": (about_text("{\"_type\": "), "E0517", "model.layers.0.proj.weight: byte"),
    "no metadata": (lambda c, t: c["__metadata__"].clear() or c["__metadata__"].update({"format": "pt"}), "E0517", "do not say what they are"),
}
AO_INTX = {
    "no type": (about("_data/target_dtype", None), "E0517", "is no integer of 1 to 8 bits"),
    "a wide type": (about("_data/target_dtype/_data", "int16"), "E0517", "'int16' is no integer of 1 to 8 bits"),
    "a code that is none": (fill("0.proj._weight_qdata", b"\x1f"), "E0517", "is 31, no code of 4 bits"),
}
AO_MICRO = {
    "rows that blocks do not fill": (short("0.proj._weight_qdata", 1), "E0517", "whole blocks of 16"),
    "swizzled": (about("_data/is_swizzled_scales", True), "E0517", "tiles of 128 by 4"),
    "a second scale of 0": (fill("0.proj._weight_per_tensor_scale", b"\0" * 4), "E0517", "is 0, not a scale"),
}
FP8 = {
    "no scales": (drop(".weight_scale_inv"), "E0517", "no weight_scale_inv"),
    "scales short": (short(".weight_scale_inv"), "E0517", "blocks of 128x128"),
    "scales are integers": (dtype(".weight_scale_inv", "I32"), "E0517", "holds no scales"),
    "another block": (config("weight_block_size", [64, 64]), "E0517", "blocks of 64x64"),
    "a block of nothing": (config("weight_block_size", [0, 128]), "E0517", "below 1"),
    "no block": (config("weight_block_size", None), "E0517", "nothing says the size of its blocks"),
    "another format": (config("fmt", "e5m2"), "E0517", "is stored as F8_E4M3, but"),
    "an unknown format": (config("fmt", "e3m4"), "E0517", "says fmt 'e3m4'"),
    "a format of another bias": (config("fmt", "float8_e4m3fnuz"), "E0517", "says fmt 'float8_e4m3fnuz'"),
    "a float weight": (dtype("0.proj.weight", "F32"), "E0517", "stored as F32, not quantised"),
    "static without a scale": (config("activation_scheme", "static"), "E0517", "no input_scale"),
    "codes are bytes": (both(dtype("0.proj.weight", "U8"), dtype("1.proj.weight", "U8")), "E0517",
                        "no tensor is stored so"),
    "scales are NaN": (fill(".weight_scale_inv", NAN32), "E0517", "not a finite number"),
    "a long weight": (short(".weight"), None, None),
}
BNB = {
    "no absmax": (drop(".absmax"), "E0517", "has no absmax"),
    "no quant_map": (drop(".quant_map"), "E0517", "has no quant_map"),
    "no state": (drop(".bitsandbytes__nf4"), "E0517", "no quant_state"),
    "a state of noise": (fill(".bitsandbytes__nf4", b"\x81"), "E0517", None),
    "a state of nothing": (fill(".bitsandbytes__nf4", b" "), "E0517", None),
    "short codes": (short(".weight"), "E0517", "codes need"),
    "short absmax": (short(".absmax"), "E0517", "need"),
    "absmax is nested, but nothing else": (dtype(".absmax", "U8"), "E0517", "nested"),
    "absmax is NaN": (fill(".absmax", NAN32), "E0517", "not a finite number"),
    "another method": (config("quant_method", "fp8"), "E0517", "those of bitsandbytes"),
}
HQQ = {
    "no scales": (drop(".scale"), "E0517", "has no scale"),
    "no zero points": (drop(".zero"), "E0517", "has no zero"),
    "no bits": (drop(".nbits"), "E0517", "no nbits"),
    "no shape": (drop(".shape"), "E0517", "no shape"),
    "an absurd shape": (fill(".shape", b"\xff" * 7 + b"\x7f"), "E0517", "says ["),
    "absurd bits": (fill(".nbits", b"\5"), "E0517", "nbits is"),
    "no group": (fill(".group_size", b"\0"), "E0517", "group_size is 0"),
    "down the columns": (fill(".axis", b"\0"), "E0517", "need [16, 96]"),
    "an absurd axis": (fill(".axis", b"\2"), "E0517", "axis is"),
    "short codes": (short(".W_q"), "E0517", "need"),
    "short scales": (short(".scale"), "E0517", "groups"),
    "scales are NaN": (fill(".scale", NAN32), "E0517", "not a finite number"),
    "zero points are NaN": (fill(".zero", NAN32), "E0517", "not a finite number"),
}
COLUMNS = {
    "groups that leave a rest": (fill(".group_size", b"\x40"), "E0516", "run across the ends of columns"),
    "along the rows": (fill(".axis", b"\1\0\0\0"), "E0516", "run across the ends of rows"),
    "scales are NaN": (fill(".scale", NAN32), "E0517", "not a finite number"),
}
NVFP4 = {
    "no scales": (drop(".weight_scale"), "E0517", "no weight_scale"),
    "no second scale": (drop(".weight_scale_2"), "E0517", "no scales of groups"),
    "scales short": (short(".weight_scale", 1), "E0517", "need"),
    "scales are bytes": (dtype(".weight_scale", "U8"), "E0517", "F8_E4M3 is needed"),
    "a second scale of 0": (fill(".weight_scale_2", b"\0"), "E0517", "not a scale"),
    "a second scale of NaN": (fill(".weight_scale_2", NAN32), "E0517", "not a scale"),
    "scales are NaN": (fill(".weight_scale", b"\x7f"), "E0517", "not a finite number"),
    "short codes": (short(".weight", 1), "E0517", "do not fill"),
}
CT_NVFP4 = {
    "no second scale": (drop(".weight_global_scale"), "E0517", "no weight_global_scale"),
    "a second scale of 0": (fill(".weight_global_scale", b"\0"), "E0517", "not a scale"),
}
CT_PLAIN = {
    "codes of one dimension": (lambda c, t: t.update({tensor(t, "0.proj.weight"): ["F8_E4M3", [64], bytes(64)]}),
                               "E0517", "is [64], not a matrix"),
}
CT_ACT = {
    "an activation's scale of 0": (fill(".input_global_scale", b"\0"), "E0517", "is 0, not a scale"),
    "an activation's scale of NaN": (fill(".input_global_scale", NAN32), "E0517", "not a scale"),
    "an activation's scale of bytes": (dtype(".input_global_scale", "U8"), "E0517", "not one F32"),
}
MXFP4 = {
    "no scales": (drop("_scales"), "E0517", "has no scales"),
    "scales short": (short("_scales", 1), "E0517", "need"),
    "scales are floats": (dtype("_scales", "F8_E4M3"), "E0517", "U8 is needed"),
    "short blocks": (short("_blocks", 3), "E0517", "not [experts"),
    "an expert too few": (short("_blocks"), "E0517", "need"),
    "scales are NaN": (fill("_scales", b"\xff"), "E0517", "not a finite number"),
    "no codes": (drop("_blocks"), "E0517", "no tensor is stored so"),
    "another method": (config("quant_method", "gptq"), "E0517", "those of mxfp4"),
}
INT8 = {
    "no codes": (drop("fc.weight"), "E0517", "no matrix of I8"),
    "scales short": (short(".SCB"), "E0517", "need"),
    "tiles": (fill(".weight_format", b"\2"), "E0516", "tiled"),
    "no scales": (drop(".SCB"), "E0517", None),
    "codes of another type": (dtype("fc.weight", "U8"), "E0517", "no matrix of I8"),
    "a row of codes short": (short("fc.weight"), "E0517", "need"),
    "scales of another type": (dtype(".SCB", "F16"), "E0517", "need"),
    "a scale that is NaN": (fill(".SCB", NAN32), "E0517", "not a finite number"),
    "another method": (config("quant_method", "fp8"), "E0517", "those of bitsandbytes"),
}


def put(name, dtype, shape, raw):
    """A tensor more, or another one, for each row, or for each 32 of a row (shape None, "groups"); raw is repeated."""
    def change(c, t):
        rows, cols = t[name.replace("_scale", "")][1] if shape in (None, "groups") else (0, 0)
        sizes = [rows] if shape is None else [rows, -(-cols // 32)] if shape == "groups" else shape
        size = SIZE[dtype]
        for n in sizes:
            size *= n
        t[name] = [dtype, sizes, (raw * size)[:size]]
    return change


def put_like(suffix, dtype, shape, raw):
    return lambda c, t: put(tensor(t, suffix), dtype, shape, raw)(c, t)


def no_config(c, t):
    c.clear()


def words_of(*numbers):
    return struct.pack(f"<{len(numbers)}q", *numbers)


PROJ = "model.layers.0.proj."
KWARGS = {"_type": "QuantizeTensorToInt8Kwargs", "_data": {"mapping_type": {"_type": "MappingType", "_data": "SYMMETRIC"},
                                                          "granularity": {"_type": "PerTensor"}}}
ASYM = {"_type": "QuantizeTensorToInt8Kwargs", "_data": {"mapping_type": {"_type": "MappingType", "_data": "ASYMMETRIC"}}}
ONE = b"\0\0\x80\x3f"


def act(kwargs, *scale):
    """torchao's Int8Tensor with an activation."""
    def change(c, t):
        about("_data/act_quant_kwargs", kwargs)(c, t)
        if scale:
            put(PROJ + "_weight_act_quant_scale", *scale)(c, t)
    return change


def named_as(old, new):
    """Tensors of one module under the name of another."""
    def change(c, t):
        for name in [n for n in t if old in n]:
            t[name.replace(old, new)] = t.pop(name)
    return change


def drop_all(t, suffix):
    for name in [n for n in t if n.endswith(suffix)]:
        t.pop(name)


def copied(old, new):
    return lambda c, t: t.update({name.replace(old, new): copy.deepcopy(t[name]) for name in list(t) if old in name})


def state(key, value):
    """bitsandbytes keeps what it knows as the bytes of a text."""
    def change(c, t):
        entry = t[tensor(t, "nf4")]
        said = {**json.loads(entry[2]), key: value}
        entry[2] = json.dumps(said).encode()
        entry[1] = [len(entry[2])]
    return change


ARGS = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "dynamic": True, "symmetric": True}

def one_of_all(zero):
    """compressed-tensors' first module with one scale and one zero point."""
    def change(c, t):
        for name in [n for n in t if ".layers.1." in n]:
            t.pop(name)
        for part, value in (("strategy", "tensor"), ("group_size", None)):
            config(GROUP + "weights/" + part, value)(c, t)
        put_like(".weight_scale", "F32", [1], ONE)(c, t)
        put_like(".weight_zero_point", "I8", [1], zero)(c, t)
    return change


def symmetric(c, t):
    """AWQ: zero points of 8; of gemv_fast -8 s, which three more in a half's exponent and its sign are."""
    for name in [n for n in t if n.endswith(".qzeros")]:
        halves = t[name][0] == "F16"
        scales = t[name.replace("qzeros", "scales")][2] if halves else b""
        t[name][2] = b"".join(struct.pack("<e", -8 * x) for x, in struct.iter_unpack("<e", scales)) if halves else b"\x88" * len(t[name][2])


ROTATED = {"config_groups": {"u": {"type": "hadamard", "apply": [{"targets": ["Linear"], "location": "weight_output"}, {"targets": ["Linear"], "location": "input"}]}}}
INT8_TOKEN = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True, "symmetric": True}
SAID = (  # checkpoints in forms that are rarely written: code None means that they are read
    ("gptq-4-sym", "no group size, and groups that do not divide", both(config("group_size", None), both(
        both(put_like(".scales", "F16", [5, 64], b"\0\x3c"), put_like(".qzeros", "I32", [5, 8], b"\x77")),
        drop("g_idx"))), "E0517", "groups of 0"),
    ("gptq-4-sym", "zero points that differ within a group", lambda c, t: t[tensor(t, ".qzeros")].__setitem__(
        2, t[tensor(t, ".qzeros")][2][:4] + b"\x11" + t[tensor(t, ".qzeros")][2][5:]), "E0517", "of a symmetric weight differ"),
    ("gptq-4-sym", "bits beyond any number", config("bits", -(1 << 40)), None, "gptq v1"),
    ("awq-gemm", "no group size, and groups that do not divide", both(config("group_size", None), both(
        put_like(".scales", "F16", [7, 64], b"\0\x3c"), put_like(".qzeros", "I32", [7, 8], b"\x77"))), "E0517", None),
    ("gptq-4-sym", "a zero point between the first and the last group", lambda c, t: t[tensor(t, ".qzeros")].__setitem__(
        2, t[tensor(t, ".qzeros")][2][:33] + b"\x11" + t[tensor(t, ".qzeros")][2][34:]), "E0517", "has the zero point"),
    ("gptq-4-sym", "no bits", both(config("bits", None), lambda c, t: drop_all(t, ".g_idx")), "E0517", "nothing says how many bits"),
    ("gptq-4-sym", "five bits", both(config("bits", 5), lambda c, t: drop_all(t, ".g_idx")), "E0516", "codes of 5 bits are not read"),
    ("awq-gemv", "no group size", config("group_size", None), "E0517", "groups of 0"),
    ("ct-w4a16", "a long name", named_as("model.layers.0.", "model." + "a" * 1100 + "."), None, "codes"),
    ("ct-w4a16", "no format", config("format", None), None, "compressed-tensors"),
    ("ct-w4a16", "a format of the group", config(GROUP + "format", "pack-quantized"), None, "pack-quantized"),
    ("ct-w4a16", "a group of a long name", lambda c, t: c["quantization_config"].update(
        {"config_groups": {"g" * 1100: c["quantization_config"]["config_groups"]["group_0"]}}), "E0517", "0 bits"),
    ("ct-w4a16", "a shape without columns", put_like(".weight_shape", "I64", [2], words_of(64, 0)), "E0517", "weight_shape says"),
    ("ct-w4a16", "targets that are no list", config(GROUP + "targets", {"a": "Linear"}), "E0517", "no target"),
    ("ct-w4a16", "an expression that matches from the middle", config(GROUP + "targets", ["re:proj"]), "E0517", "no target"),
    ("ct-w4a16", "an expression that looks ahead", config(GROUP + "targets", ["re:(?=model)"]), "E0516", "not understood"),
    ("ct-w4a16-channel", "no strategy but a group size of -1", both(config(GROUP + "weights/strategy", None), config(GROUP + "weights/group_size", -1)),
     None, "per channel"),
    ("ct-w3a16", "words that are dense and spaced alike", both(put_like(".weight_shape", "I64", [2], words_of(64, 109)), both(
        put_like(".weight_packed", "I32", [64, 11], b"\x11"), put_like(".weight_scale", "BF16", [64, 4], b"\x80\x3f"))), None, "both would take as many words"),
    ("ct-mxfp4", "an activation of mxfp4", config(GROUP + "input_activations", ARGS), None, "mxfp4"),
    ("ct-mxfp4", "an activation of other groups", config(GROUP + "input_activations", {**ARGS, "group_size": 64}), None,
     "activation e2m1 per token group 64 dynamic"),
    ("ct-nvfp4", "an activation of mxfp4 for nvfp4", config(GROUP + "input_activations", ARGS), None, "activation e2m1 per token group 32 scale e8m0 dynamic"),
    ("ct-mxfp4", "an activation of mxfp8", config(GROUP + "input_activations", {**ARGS, "num_bits": 8, "scale_dtype": "torch.uint8"}), None,
     "activation e4m3 per token group 32 scale e8m0 dynamic"),
    ("ct-mxfp4", "an activation of 8-bit floats beside powers of two", config(GROUP + "input_activations", {**ARGS, "num_bits": 8, "group_size": 96}), None,
     "activation e4m3 per token group 96 dynamic"),
    ("ct-mxfp8", "an activation of 8 bits beside powers of two", config(GROUP + "input_activations", INT8_TOKEN), None, "activation i8 sym per token dynamic"),
    ("ct-mxfp8", "an asymmetric activation", config(GROUP + "input_activations", {**INT8_TOKEN, "symmetric": False}), None, "activation i8 asym per token dynamic"),
    ("ct-w8a8", "an activation of 4 bits", config(GROUP + "input_activations/num_bits", 4), None, "activation i4 sym per token dynamic"),
    ("ct-w8a8", "an activation of 4-bit floats", both(config(GROUP + "input_activations/num_bits", 4), config(GROUP + "input_activations/type", "float")),
     None, "activation e2m1 per token dynamic"),
    ("ct-w8a8", "an activation under scales of f16", config(GROUP + "input_activations/scale_dtype", "torch.float16"), None, "activation i8 sym per token scale f16 dynamic"),
    ("ct-w8a8", "an activation of 6 bits", config(GROUP + "input_activations/num_bits", 6), "E0516", "activations of 6 bits of int are not read"),
    ("ct-w8a8", "an activation of 16 bits", both(config(GROUP + "input_activations/num_bits", 16), config(GROUP + "input_activations/type", "float")),
     "E0516", "activations of 16 bits of float are not read"),
    ("ct-w8a8", "an activation of integers under powers of two", config(GROUP + "input_activations/scale_dtype", "torch.uint8"), "E0516",
     "activations of 8 bits of int under scales of 'uint8' are not read"),
    ("ct-w8a8", "an activation by channels", config(GROUP + "input_activations/strategy", "channel"), "E0516", "strategy 'channel'"),
    ("ct-w8a8", "a static activation of a token", config(GROUP + "input_activations/dynamic", False), "E0516", "static activations of strategy 'token'"),
    ("ct-w8a8", "an activation that is partly dynamic", config(GROUP + "input_activations/dynamic", "local"), "E0517", "dynamic as 'local'"),
    ("ct-w8a8", "an activation that is dynamic in another way", config(GROUP + "input_activations/dynamic", "global"), "E0516", "dynamic as 'global'"),
    ("ct-w8a8", "an activation's group beside tokens", config(GROUP + "input_activations/group_size", 32), "E0517", "groups of 32 for its activation, but strategy 'token'"),
    ("ct-fp8-block", "an activation's group of more than there is", config(GROUP + "input_activations/group_size", 512), "E0517",
     "has 256 columns, but config.json says groups of 512 for its activation"),
    ("ct-fp8-block", "an activation's absurd group", config(GROUP + "input_activations/group_size", 1 << 63), "E0517", "has 256 columns, but config.json says groups of"),
    ("ct-fp8-block", "an activation's group of no size", config(GROUP + "input_activations/group_size", None), "E0517", "groups of 0 for its activation"),
    ("ct-fp8", "an asymmetric activation of floats", config(GROUP + "input_activations/symmetric", False), "E0516", "asymmetric activations of floats"),
    ("ct-nvfp4-act", "an activation without its second scale", drop(".input_global_scale"), "E0517", "there is no input_global_scale"),
    ("ct-nvfp4-act", "an activation of nvfp4 with other groups", config(GROUP + "input_activations/group_size", 32), "E0516", "strategy 'tensor_group' are read of 4-bit floats"),
    ("ct-w8a8-static", "a zero point of four bits that has eight", both(config(GROUP + "input_activations/num_bits", 4), fill(".input_zero_point", b"\x14")), "E0517",
     "is 20, which is no code of 4 bits"),
    ("ct-w4a16-asym", "one zero point", one_of_all(b"\3"), None, "i4 asym per tensor"),
    ("ct-w4a16-asym", "one zero point of more bits", one_of_all(b"\x63"), "E0517", "is 99, which is no code of 4 bits"),
    ("ct-w4a16-asym", "one zero point, and several", both(one_of_all(b"\3"), put_like(".weight_zero_point", "I8", [3], b"\3")), "E0517",
     "but strategy 'tensor' has one I8"),
    ("ct-w4a16", "rotations at run time", config("transform_config", ROTATED), "E0516", "transform_config says that 'u' transforms activations at run time"),
    ("ct-w4a16", "rotations of nobody knows what", config("transform_config", {"config_groups": {"u": {"type": "hadamard"}}}), "E0516", "transform_config"),
    ("ct-w4a16", "rotations that lie in the weights", config("transform_config", {"config_groups": {"u": {"type": "hadamard", "apply": [
        {"targets": ["Linear"], "location": "weight_output"}, {"targets": ["Linear"], "location": "weight_input"}]}}}), None, "pack-quantized"),
    ("ct-w4a16", "no rotations", config("transform_config", {}), None, "pack-quantized"),
    ("ct-w4a16", "sparse words", config("sparsity_config", {"format": "sparse-24-bitmask"}), "E0516", "sparsity_config says format 'sparse-24-bitmask'"),
    ("ct-w4a16", "sparsity that is none", config("sparsity_config", {"format": "dense"}), None, "pack-quantized"),
    ("ct-w4a16", "an unknown format", config("format", "quint-quantized"), "E0516", "format 'quint-quantized' is not read"),
    ("ct-w4a16", "an unknown format of the group", config(GROUP + "format", "mxfp6-pack-quantized"), "E0516", "format 'mxfp6-pack-quantized' is not read"),
    ("ct-w4a16", "formats of groups", both(config("format", "mixed-precision"), config(GROUP + "format", "pack-quantized")), None, "pack-quantized"),
    ("ct-w4a16", "words as 8-bit floats", config("format", "float-quantized"), "E0517", "as 'pack-quantized' stores it, but"),
    ("ct-w4a16", "words as plain weights", config("format", "dense"), "E0517", "as 'pack-quantized' stores it, but"),
    ("ct-w4a16", "words as the group says", config(GROUP + "format", "int-quantized"), "E0517", "says format 'int-quantized'"),
    ("ct-w8a8", "bytes as nvfp4", config("format", "nvfp4-pack-quantized"), "E0517", "is I8 beside scales of BF16, as 'int-quantized' stores it, but"),
    ("ct-w8a8", "bytes by another name", config("format", "naive-quantized"), None, "naive-quantized"),
    ("ct-fp8", "8-bit floats as mxfp8", config("format", "mxfp8-quantized"), "E0517", "as 'float-quantized' stores it"),
    ("ct-mxfp8", "mxfp8 as 8-bit floats", config("format", "float-quantized"), "E0517", "as 'mxfp8-quantized' stores it"),
    ("ct-mxfp4", "mxfp4 as nvfp4", config("format", "nvfp4-pack-quantized"), "E0517", "as 'mxfp4-pack-quantized' stores it"),
    ("ct-w4a16", "words of floats", both(both(config(GROUP + "weights/num_bits", 8), config(GROUP + "weights/type", "float")), dtype(".weight_packed", "F32")),
     "E0517", "is stored as F32, which holds no codes"),
    ("ct-w8a8", "scales of powers of two", dtype(".weight_scale", "U8"), "E0517", "is stored as U8, which holds no scales of integers"),
    ("ct-w8a8", "a weight's strategy that is an activation's", config(GROUP + "weights/strategy", "token"), "E0517", "strategy 'token', which is none of weights"),
    ("ct-w4a16-asym", "symmetric, and zero points", config(GROUP + "weights/symmetric", True), "E0517",
     "is not 0 everywhere, but config.json says that the weights are symmetric"),
    ("ct-w4a16-asym", "symmetric, and zero points of 0", both(config(GROUP + "weights/symmetric", True), lambda c, t: [
        fill(x, b"\x88")(c, t) for x in t if x.endswith("weight_zero_point")]), None, "i4 sym group 32"),
    ("ct-w4a16", "symmetric, and bytes of 0", put(PROJ + "weight_zero_point", "I8", [64, 3], b"\0"), None, "zero points are stored, and all 0"),
    ("ct-w4a16", "symmetric, and bytes of 1", put(PROJ + "weight_zero_point", "I8", [64, 3], b"\1"), "E0517", "is not 0 everywhere"),
    ("ct-w4a16", "symmetric, and a zero point too many", put(PROJ + "weight_zero_point", "I8", [64, 4], b"\0"), "E0517", "has 256 elements, but there are 192 scales"),
    ("ct-fp8", "floats and zero points of 0", put(PROJ + "weight_zero_point", "F8_E4M3", [64, 1], b"\0"), None, "zero points are stored, and all 0"),
    ("ct-fp8", "floats and zero points", put(PROJ + "weight_zero_point", "F8_E4M3", [64, 1], b"\x38"), "E0517", "but the weights are floats"),
    ("ct-fp8", "asymmetric floats", config(GROUP + "weights/symmetric", False), "E0517", "there is no weight_zero_point"),
    ("awq-gemm", "the same number by two names", config("w_bit", 4), None, "awq gemm"),
    ("awq-gemm", "no zero points: each is 8", both(config("zero_point", False), symmetric), None, "awq gemm"),
    ("awq-gemv", "no zero points: each is 8", both(config("zero_point", False), symmetric), None, "awq gemv"),
    ("awq-gemv", "no zero points, but some", config("zero_point", False), "E0517", "zero points other than 8"),
    ("awq-gemv-fast", "no zero points, but some", config("zero_point", False), "E0517", "zero points other than 8"),
    ("awq-gemv-fast", "no zero points: each is 8", both(config("zero_point", False), symmetric), None, "awq gemv_fast"),
    ("fp8-block", "a format by another name", config("fmt", "float8_e4m3fn"), None, "e4m3 block"),
    ("fp8-block", "blocks of one row", both(config("weight_block_size", [1, 256]), both(
        put_like("0.proj.weight", "F8_E4M3", [64, 256], b"\x38"), both(
            put_like("0.proj.weight_scale_inv", "F32", [64, 1], ONE), put_like("1.proj.weight_scale_inv", "F32", [64, 1], ONE)))), None, "block"),
    ("fp8-block", "rows that blocks do not fill", both(put_like("1.proj.weight", "F8_E4M3", [129, 128], b"\x38"),
                                                      put_like("1.proj.weight_scale_inv", "F32", [2, 1], ONE)), None, "block"),
    ("fp8-tensor", "plain floats beside them, and no configuration", both(no_config, put("a.weight", "F8_E4M3", [2, 2], b"\x38")), None, "fp8"),
    ("bnb-nf4", "a state of a megabyte", put_like("nf4", "U8", [70000], b" "), "E0517", "not the text of a state"),
    ("bnb-nf4", "a state of other numbers", dtype("nf4", "I8"), "E0517", "not the text of a state"),
    ("bnb-nf4", "an absurd shape", state("shape", [1 << 30, 1 << 30]), "E0517", "codes need"),
    ("bnb-nf4", "an offset in words", state("nested_offset", "x"), None, "bitsandbytes nf4"),
    ("bnb-nf4-nested", "no blocks of blocks", state("nested_blocksize", 0), "E0517", "lacks nested_absmax"),
    ("bnb-int8", "a layout that is no number", put_like(".weight_format", "U8", [2], b"\1"), None, "bitsandbytes int8"),
    ("bnb-int8", "rows as they are", fill(".weight_format", b"\0"), None, "bitsandbytes int8"),
    ("hqq-4", "a shape without columns", put_like(".shape", "I64", [2], words_of(64, 0)), "E0517", "says [64, 0]"),
    ("hqq-4", "an absurd shape of two sizes", put_like(".shape", "I64", [2], words_of(1 << 30, 1 << 30)), "E0517", "says [1073741824"),
    ("hqq-4", "bits as two numbers", put_like(".nbits", "I32", [2], b"\4\0\0\0"), "E0517", "no nbits of one I32"),
    ("hqq-4", "bits as a long number", put_like(".nbits", "I64", [1], b"\4\0\0\0\0\0\0\0"), "E0517", "no nbits of one I32"),
    ("hqq-8", "an odd number of groups for nibbles", both(fill(".nbits", b"\4\0\0\0"), lambda c, t: odd_groups(t)), "E0517", "do not fill 2 parts"),
    ("modelopt-nvfp4", "siblings whose second scales are of other types", both(both(copied("0.proj", "0.gate_proj"), named_as("0.proj", "0.up_proj")),
        put_like("up_proj.weight_scale_2", "F16", [], b"\0\x3c")), None, "gate_proj"),
    ("modelopt-fp8", "a scale for each row", put_like(".weight_scale", "F32", None, ONE), None, "per channel"),
    ("modelopt-fp8", "a scale for each row and token", both(put_like(".weight_scale", "F32", None, ONE), both(
        config("quant_algo", "FP8_PER_CHANNEL_PER_TOKEN"), drop(".input_scale"))), None, "per channel"),
    ("modelopt-fp8", "another algorithm", both(config("quant_algo", "FP8_X"), drop(".input_scale")), None, "fp8"),
    ("modelopt-fp8", "scales of e8m0", both(put_like(".weight_scale", "U8", "groups", b"\x7f"), drop(".input_scale")), None, "mxfp8"),
    ("modelopt-fp8", "no algorithm", both(config("quant_algo", None), drop(".input_scale")), None, "fp8"),
    ("ao-int8", "a static scale", act(KWARGS, "F32", [1], ONE), None, "per tensor static, scale 1"),
    ("ao-int8", "blocks that rows do not fill", both(about("_data/block_size", [48, 96]), both(
        put(PROJ + "_weight_scale", "F32", [2, 1], ONE), put(PROJ + "_weight_zero_point", "I8", [2, 1], b"\0"))), None, "i8 sym block 48"),
    ("ao-int8", "a static scale of two", act(KWARGS, "F32", [2], ONE), "E0517", "not one scale"),
    ("ao-int8", "a static scale of integers", act(KWARGS, "I32", [1], ONE), "E0517", "not one scale"),
    ("ao-int8", "a static scale of NaN", act(KWARGS, "F32", [1], NAN32), "E0517", "is nan, not a scale"),
    ("ao-int8", "a static scale of infinity", act(KWARGS, "F32", [1], b"\0\0\x80\x7f"), "E0517", "is inf, not a scale"),
    ("ao-int8", "a static range with a zero point", act(ASYM, "F32", [1], ONE), None, "a static range with a zero point is not read"),
    ("ao-int8", "a range with a zero point", act(ASYM), None, "asym"),
    ("ao-int8", "an activation of 8-bit floats", act({"_type": "QuantizeTensorToFloat8Kwargs", "_data": {}}), None, "e4m3"),
    ("ao-int8", "an activation of another class", act({"_type": "QuantizeTensorToInt2Kwargs", "_data": {}}), None, "QuantizeTensorToInt2Kwargs is for weights only"),
    ("ao-int8", "an activation that is multiplied first", put(PROJ + "_weight_act_pre_scale", "F32", [96], ONE), None, "_weight_act_pre_scale\" first"),
    ("ao-int8", "a tensor of another name", lambda c, t: c["__metadata__"].update({"a.bias": c["__metadata__"][PROJ + "weight"]}), "E0516", "only tensors named 'weight'"),
    ("ao-micro", "a second scale of two", put(PROJ + "_weight_per_tensor_scale", "F32", [2], ONE), "E0517", "not one F32"),
    ("gptq-4-sym", "torchao's method and none of its tensors", both(config("quant_method", "torchao"), lambda c, t: t.clear() or put("a.weight", "F32", [2, 2], ONE)(c, t)), "E0517", "no tensor is stored so"),
)


def odd_groups(t):
    """hqq: three rows of one group, of which two lie in a byte."""
    for name in [n for n in t if n.endswith(".W_q")]:
        module = name[:-len("W_q")]
        put(module + "shape", "I64", [2], words_of(3, 64))(None, t)
        put(module + "group_size", "I32", [1], b"\x40\0\0\0")(None, t)
        put(module + "scale", "F32", [3, 1], ONE)(None, t)
        put(module + "zero", "F32", [3, 1], ONE)(None, t)


def check_wrong(folder, name, change, code, words):
    setting, tensors = copy.deepcopy(read_folder(folder))
    change(setting, tensors)
    if name == "a long weight":  # rows of one more block than there are scales for
        entry = tensors["model.layers.1.proj.weight"]
        entry[1], entry[2] = [129, entry[1][1]], entry[2] + bytes(entry[1][1] * (129 - entry[1][0]))
        code, words = "E0517", "blocks of 128x128"
    with tempfile.TemporaryDirectory() as tmp:
        write_folder(tmp, setting, tensors)
        exit_code, out, err = run(tmp)
        if code == "E0516" and exit_code == 0:  # one module that is refused by name
            err = "error[E0516]: " + "".join(re.findall(r"refused: .*", out))
            exit_code = 1 if "refused" in out else 0
    if code is None:  # it is read, and something is said of it
        good = exit_code == 0 and words in out
    else:
        good = exit_code == 1 and f"error[{code}]" in err and (not words or words in err)
    report(f"{folder}: {name}", [] if good else [f"exit code {exit_code}", out, *err.splitlines()])


for folder, cases in (("gptq-4-sym", GPTQ), ("awq-gemm", AWQ), ("ct-w4a16", CT), ("fp8-block", FP8),
                      ("bnb-nf4", BNB), ("bnb-int8", INT8), ("hqq-4", HQQ), ("hqq-4-columns", COLUMNS), ("modelopt-nvfp4", NVFP4),
                      ("gpt-oss", MXFP4), ("ct-nvfp4", CT_NVFP4), ("ct-fp8", CT_PLAIN), ("ct-nvfp4-act", CT_ACT), ("ao-int8", AO), ("ao-intx", AO_INTX), ("ao-micro", AO_MICRO)):
    for name, (change, code, words) in cases.items():
        check_wrong(folder, name, change, code, words)
for row in SAID:
    check_wrong(*row)


# Every layout: what its own tensors can lack -------------------------------------------------------

FEWEST = 8  # of ways in which a layout is tried, all refused


def mutations(tensors, module):
    """Each tensor of the module gone, short, of another type, or full of NaN."""
    for name in sorted(t for t in tensors if t.startswith(module) and "shape" not in t):
        entry = tensors[name]
        yield "no " + name, lambda t, name=name: t.pop(name)
        for axis in range(len(entry[1])):
            yield f"{name} short in {axis}", lambda t, name=name, axis=axis: short(name, axis)(None, t)
        other = "I32" if entry[0] in ("F32", "F16", "BF16") else "F32"
        if entry[1] and entry[1][-1] * SIZE[entry[0]] % SIZE[other] == 0:
            yield f"{name} as {other}", lambda t, name=name, other=other: dtype(name, other)(None, t)
        if entry[0] in ("F32", "F16", "BF16", "F8_E4M3"):
            yield f"{name} of NaN", lambda t, name=name: fill(name, b"\x7f" if entry[0] == "F8_E4M3" else b"\xff")(None, t)


def damages(path):
    """The file cut, with a header beyond its end, or a pickle."""
    with open(path, "rb") as f:
        whole = f.read()
    yield "a file that is cut", whole[:-1]
    yield "a header beyond the end", struct.pack("<Q", 1 << 40) + whole[8:]
    yield "a pickle", b"\x80\x04\x95" + whole


def check_layout(folder):
    setting, tensors = read_folder(folder)
    module = re.match(r"(.*?proj|fc|.*experts\.[a-z_]*proj)", min(t for t in tensors if "proj" in t or t.startswith("fc")))[0]
    refused, taken, problems = 0, [], []

    def attempt(name, tmp):
        nonlocal refused
        code, out, err = run(tmp)
        good = code == 1 and re.search(r"error\[E05\d\d\]", err) or code == 0 and "refused:" in out
        refused += bool(good)
        if code not in (0, 1) or code and not good:
            problems.append(f"{name}: exit code {code}: {err}")
        if not good:
            taken.append(name.replace(module, ""))

    with tempfile.TemporaryDirectory() as tmp:
        for name, change in mutations(tensors, module):
            now = copy.deepcopy(tensors)
            change(now)
            write_folder(tmp, setting, now)
            attempt(name, tmp)
        for name, raw in damages(os.path.join(here, folder, "model.safetensors")):
            with open(os.path.join(tmp, "model.safetensors"), "wb") as f:
                f.write(raw)
            attempt(name, tmp)
    print(f"# {folder}: {refused} refused; read, because nothing says otherwise: {', '.join(taken) or 'none'}")
    report(f"{folder}: at least {FEWEST} ways to be wrong are refused", problems if refused >= FEWEST else problems + [f"{refused} are"])


for folder in folders:
    if os.path.exists(os.path.join(here, folder, "model.safetensors")):  # GGUF has its own, below
        check_layout(folder)


# GGUF --------------------------------------------------------------------------------------------

def gguf(path, *tensors):
    """tensors: name, dimensions (the innermost first), type, bytes."""
    head, data = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 0), b""
    for name, dims, kind, raw in tensors:
        head += struct.pack("<Q", len(name)) + name.encode() + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
        data += raw + bytes(-len(raw) % 32)
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + data)


GGUF = {  # name: (dimensions, type, bytes, exit code, words)
    "a good one": ([32, 2], 8, bytes(68), 0, "i8 sym group 32 scale f16"),
    "a scale that is NaN": ([32, 2], 8, bytes(34) + b"\0\x7e" + bytes(32), 1, "E0517.*scale 1 is not a finite number"),
    "a least value that is infinite": ([32, 1], 3, b"\0\0\0\x7c" + bytes(16), 1, "E0517.*least value is not a finite"),
    "a power of two that is NaN": ([32, 1], 39, b"\xff" + bytes(16), 1, "E0517.*not a finite number"),
    "a scale of a super-block that is NaN": ([256, 1], 12, b"\0\x7e" + bytes(142), 1, "E0517.*not a finite number"),
    "a scale with a sign": ([64, 1], 40, b"\x81" + bytes(35), 1, "E0517.*not a finite number"),
    "a vector": ([32], 8, bytes(34), 1, "E0517.*neither a matrix nor a stack"),
    "nothing at all": ([32, 0], 8, b"", 1, "E0517.*neither a matrix nor a stack"),
    "four dimensions": ([32, 1, 1, 1], 8, bytes(34), 1, "E0517.*neither a matrix nor a stack"),
    "a type that is only known by name": ([256, 1], 21, bytes(110), 0, "refused: its type IQ3_S is not read"),
    "a type that is unknown": ([32, 1], 77, bytes(34), 1, "E0518.*type 77 is unknown"),
    "a type that is gone": ([32, 1], 31, bytes(34), 1, "E0518.*type 31 is unknown or no longer in use"),
    "half a block": ([16, 2], 8, bytes(34), 1, "E0518.*whole blocks"),
    "a block too few": ([32, 3], 8, bytes(64), 1, "E0518.*beyond the end"),
}
BLOCKS = {  # type: its number, elements and bytes of a block, where its scales lie, one that is no number
    "Q4_0": (2, 32, 18, [0], b"\0\x7e"), "Q4_1": (3, 32, 20, [0, 2], b"\0\x7e"), "Q5_0": (6, 32, 22, [0], b"\0\x7e"),
    "Q5_1": (7, 32, 24, [0, 2], b"\0\x7e"), "Q8_0": (8, 32, 34, [0], b"\0\x7e"), "Q2_K": (10, 256, 84, [80, 82], b"\0\x7e"),
    "Q3_K": (11, 256, 110, [108], b"\0\x7e"), "Q4_K": (12, 256, 144, [0, 2], b"\0\x7e"), "Q5_K": (13, 256, 176, [0, 2], b"\0\x7e"),
    "Q6_K": (14, 256, 210, [208], b"\0\x7e"), "Q8_K": (15, 256, 292, [0], NAN32), "IQ4_NL": (20, 32, 18, [0], b"\0\x7e"),
    "IQ4_XS": (23, 256, 136, [0], b"\0\x7e"), "TQ1_0": (34, 256, 54, [52], b"\0\x7e"), "TQ2_0": (35, 256, 66, [64], b"\0\x7e"),
    "MXFP4": (39, 32, 17, [0], b"\xff"), "NVFP4": (40, 64, 36, [0], b"\x81")}


def check_blocks(tmp, name):
    """Two rows of two blocks of the type, then all ways in which it is broken."""
    kind, elements, size, scales, nan = BLOCKS[name]
    dims, raw, path = [2 * elements, 2], bytes(4 * size), os.path.join(tmp, "model.gguf")
    gguf(path, ("a.weight", dims, kind, raw))
    with open(path, "rb") as f:
        whole = f.read()
    end = len(whole) - -len(raw) % 32  # without what follows the data
    code, out, err = run(path)
    problems = [] if code == 0 and name + ", said by the file" in out else [f"a good one: exit code {code}", out, err]
    wrong = {"a scale at %d that is no number" % at: (dims, raw[:size + at] + nan + raw[size + at + len(nan):]) for at in scales}
    wrong.update({"half a block": ([2 * elements - elements // 2, 2], raw), "a row too many": ([2 * elements, 40], raw),
                  "a row of 2^61": ([1 << 61, 2], raw), "rows of 2^62": ([2 * elements, 1 << 62], raw), "no rows": ([2 * elements, 0], b""),
                  "a vector": ([2 * elements], raw), "four dimensions": ([2 * elements, 2, 1, 1], raw)})
    files = {"cut": whole[:end - 1], "cut in a block": whole[:end - size // 2], "cut before the data": whole[:end - len(raw)]}
    for what, (shape, data) in wrong.items():
        gguf(path, ("a.weight", shape, kind, data))
        with open(path, "rb") as f:
            files[what] = f.read()
    for what, data in files.items():
        with open(path, "wb") as f:
            f.write(data)
        code, out, err = run(path)
        if code != 1 or not re.search(r"error\[E05\d\d\]", err):
            problems.append(f"{what}: exit code {code}: {out}{err}")
    report(f"gguf: {name}: {len(files)} ways to be wrong are refused", problems if len(files) >= FEWEST else [*problems, "too few"])


with tempfile.TemporaryDirectory() as tmp:
    with open(os.path.join(here, "..", "..", "io", "ggml.def"), encoding="utf-8") as f:
        known = set(re.findall(r"^(?:BLOCK|NIBBLES)\((\w+)", f.read(), re.M))
    report("gguf: every type of blocks is tried", [] if known == set(BLOCKS) else [f"{known ^ set(BLOCKS)}"])
    for name in BLOCKS:
        check_blocks(tmp, name)
with tempfile.TemporaryDirectory() as tmp:
    path = os.path.join(tmp, "model.gguf")
    for name, (dims, kind, raw, want, words) in GGUF.items():
        gguf(path, ("a.weight", dims, kind, raw))
        code, out, err = run(path)
        report("gguf: " + name, [] if code == want and re.search(words, out + err, re.S) else [f"exit code {code}", out, err])
    gguf(path, ("a.weight", [32, 1], 8, bytes(34)))
    with open(os.path.join(tmp, "config.json"), "w", encoding="utf-8") as f:
        f.write('{"quantization_config": {"quant_method": "gptq", "bits": 4}}')
    code, out, err = run(tmp)
    report("gguf: says itself what it is", [] if code == 0 and "Q8_0, said by the file" in out else [out, err])
    for name, raw, want, words in (("", b"\0\0\x80\x3e", 0, "e2m1 group 16 scale e4m3 outer"), (" of NaN", NAN32, 1, "E0517.*not a scale"),
                                   (" of 0", bytes(4), 1, "E0517.*is 0, not a scale"), (" for each row", bytes(8), 0, "refused: its second")):
        gguf(path, ("a.weight", [64, 1], 40, bytes(36)), ("a.scale", [len(raw) // 4], 0, raw))
        code, out, err = run(path)
        report("gguf: a second scale" + name, [] if code == want and re.search(words, out + err, re.S) else [f"exit code {code}", out, err])
    for what, words, *more in (("a head's rows", "ggml rotates heads", ("blk.0.attn_k.weight", [32, 1], 8, bytes(34))), ("a name of its own", "table  \\[1, 32\\]", ("table", [32, 1], 8, bytes(34))),
                               ("an activation's scale", "the activation stays as it is", ("a.weight", [64, 1], 40, bytes(36)), ("a.input_scale", [1], 0, ONE)),
                               ("a second scale of f16", "refused: its second", ("a.weight", [64, 1], 40, bytes(36)), ("a.scale", [1], 1, b"\0\x3c"))):
        gguf(path, *more)
        code, out, err = run(path)
        report("gguf: " + what, [] if code == 0 and re.search(words, out) else [out, err])
    gguf(path, ("a.weight", [256, 1], 21, bytes(110)))
    text = os.path.join(tmp, "t.sinter")
    with open(text, "w", encoding="utf-8") as f:
        f.write('version 1\nweights "model.gguf"\ndim B in [1]\nmodel m (x: f32[B, 256]) -> (y: f32[B, 1]) {\n'
                '    param a: f32[1, 256] from "a.weight"\n    y = linear(x, a)\n}\n')
    done = subprocess.run([sinter, "check", text], capture_output=True, text=True, timeout=60)
    report("gguf: a type that is not read is not bound",
           [] if done.returncode == 1 and "type IQ3_S is not read" in done.stderr else [done.stdout, done.stderr])


# Files -------------------------------------------------------------------------------------------

with tempfile.TemporaryDirectory() as tmp:
    setting, tensors = read_folder("gptq-4-sym")
    write_folder(tmp, '{"quantization_config": {"bits": 4', tensors)
    code, out, err = run(tmp)
    report("a configuration that is cut", [] if code == 1 and "E0517" in err else [err])
    write_folder(tmp, "{" * 100000, tensors)
    code, out, err = run(tmp)
    report("a configuration of brackets", [] if code == 1 and "E0517" in err else [err])
    write_folder(tmp, setting, tensors)
    done = subprocess.run([os.path.abspath(sinter), "import", "model.safetensors"], cwd=tmp, capture_output=True, text=True, timeout=60, check=False)
    report("a file by its name alone", [] if done.returncode == 0 and "said by config.json" in done.stdout else [done.stdout, done.stderr])
    os.rename(os.path.join(tmp, "config.json"), os.path.join(tmp, "quantize_config.json"))
    with open(os.path.join(tmp, "quantize_config.json"), "w", encoding="utf-8") as f:
        json.dump(setting["quantization_config"], f)
    code, out, err = run(tmp)
    report("a configuration of GPTQ's own", [] if code == 0 and "said by quantize_config.json" in out else [out, err])
    os.remove(os.path.join(tmp, "quantize_config.json"))
    write_folder(tmp, {"hidden_size": 4}, tensors)
    code, out, err = run(tmp)
    report("names alone say it", [] if code == 0 and "said by the tensors' names" in out else [out, err])
with tempfile.TemporaryDirectory() as tmp:
    code, out, err = run(tmp)
    report("an empty folder", [] if code == 1 and "E0513" in err else [err])
    with open(os.path.join(tmp, "model.safetensors"), "wb") as f:
        f.write(b"\x80\x04\x95" + bytes(100))
    code, out, err = run(tmp)
    report("a pickle", [] if code == 1 and "E0512" in err else [err])

# Siblings, and what explain prints ---------------------------------------------------------------

setting, tensors = read_folder("ct-nvfp4")
fused = {k.replace("0.proj", f"0.{x}_proj"): copy.deepcopy(v) for k, v in tensors.items() for x in ("gate", "up")
         if "0.proj" in k}
for other, words in ((b"", "second scale is that of"), (b"\0\0\x80\x44", "second scale is not that of")):
    with tempfile.TemporaryDirectory() as tmp:
        name = "model.layers.0.up_proj.weight_global_scale"
        fused[name][2] = other or fused[name][2]
        write_folder(tmp, setting, fused)
        code, out, err = run(tmp)
        report("siblings: " + words, [] if code == 0 and words in out else [out, err])
setting, tensors = read_folder("gptq-4-mislabelled")
fused = {k.replace("0.proj", f"{x}.proj"): v for k, v in tensors.items() for x in (0, 1) if "0.proj" in k}
with tempfile.TemporaryDirectory() as tmp:
    write_folder(tmp, setting, fused)
    text = os.path.join(tmp, "t.sinter")
    with open(text, "w", encoding="utf-8") as f:
        f.write('version 1\nweights "."\ndim B in [1]\nmodel m (x: f32[B, 64]) -> (y: f32[B, 32]) {\n'
                '    param a: f16[32, 64] from "model.layers.0.proj.weight"\n    param b: f16[32, 64] from "model.layers.1.proj.weight"\n'
                '    y = linear(x, a) + linear(x, b)\n}\n')
    done = subprocess.run([sinter, "compile", text, "-o", os.path.join(tmp, "m")], capture_output=True, text=True, timeout=60)
    report("a doubt of several layers is a warning", [] if done.returncode == 0 and done.stderr.count("E0559") == 1 and
           '"model.layers.0.proj.weight" and 1 more: checkpoint_format says' in done.stderr else [done.stdout, done.stderr])
text = os.path.join(here, "..", "..", "examples", "import", "gptq.sinter")
done = subprocess.run([sinter, "explain", text], capture_output=True, text=True, timeout=60)
report("explain prints what is stored", [] if "stored  model.layers.0.proj.weight  i4 sym group 32 scale f16" in done.stdout
       else [done.stdout, done.stderr])

# Against the original ----------------------------------------------------------------------------

with tempfile.TemporaryDirectory() as tmp:
    _, tensors = read_folder("gptq-4-sym")
    want = {k + ".weight": v for k, v in load(os.path.join(here, "gptq-4-sym", "expected.safetensors")).items()}
    original, wrong = os.path.join(tmp, "original.safetensors"), os.path.join(tmp, "wrong")
    save(original, want)
    code, out, err = run(os.path.join(here, "gptq-4-sym"), "--against", original)
    sqnr = [float(x) for x in re.findall(r"SQNR ([0-9.]+) dB", out)]
    report("against the original", [] if code == 0 and len(sqnr) == 2 and min(sqnr) > 60 else [out, err])
    name = tensor(tensors, ".qweight")
    tensors[name][2] = bytes(b >> 4 | (b & 15) << 4 for b in tensors[name][2])  # nibbles the other way round
    setting, _ = read_folder("gptq-4-sym")
    write_folder(wrong, setting, tensors)
    code, out, err = run(wrong, "--against", original)
    report("a misreading is a number", [] if code == 3 and "MISREAD" in out else [f"exit code {code}", out, err])

finish()
