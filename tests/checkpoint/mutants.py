#!/usr/bin/env python3
"""mutants.py REPLAY FOLDER [EVERY]: checkpoints that contradict themselves.

Every fixture of FOLDER, cut to its first modules, is changed in one place at a time: a value or key of its
configuration, a tensor's type, shape or bytes, or a tensor is missing. REPLAY reads each as the fuzz target does: what
is accepted must be readable, and nothing may crash. EVERY: one in so many. TAP.
"""
import copy
import itertools
import json
import os
import struct
import subprocess
import sys
import tempfile

BITS = {"F64": 64, "I64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16, "U8": 8, "I8": 8,
        "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4}
NUMBERS = [0, -1, 1, 3, 8, 9, 24, 1 << 40, 2.5, True, "1", None]
WORDS = ["", "x", "int", "float", "group", "channel", "tensor", "token", "block", "tensor_group", "gemm", "gemv",
         "gptq_v2", "nf4", "re:.*", "re:(", "re:\\d+\\.(?:a|b)[", "re:.*\\", "Linear", 1, None, []]
OTHERS = [None, True, False, 4, "x", [], {}, [0], [1, 1], [8, 0], ["x"], [{}]]
CONFIGS = [b"", b"[]", b"{", b"{} x", b'{"a": 1, "a": 2}', b'{"a": "\\ud800"}', b'{"a": ' + b"[" * 70]
PARTS = [".input_scale", ".pre_quant_scale", ".weight_g_idx", ".g_idx", ".weight_zero_point", ".weight_global_scale",
         ".weight_scale", ".bias"]  # that some formats have
FILLS = [b"\0", b"\x7f", b"\x80", b"\xff", b"\0\0\x80\x7f", b"\1\0\0\0"]  # NaN, infinities, denormal numbers
MOST = 12000  # bytes of the tensors that are kept


def read(path):
    """Tensors of a safetensors file by name, and its metadata."""
    with open(path, "rb") as file:
        raw = file.read()
    size, = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + size])
    metadata = header.pop("__metadata__", {})
    data = raw[8 + size:]
    tensors = {name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
               for name, entry in header.items()}
    return tensors, metadata


def first_modules(tensors):
    """As many whole modules as MOST has room for, and one at least."""
    kept, size = {}, 0
    for module in dict.fromkeys(name.rsplit(".", 1)[0] for name in tensors):
        mine = {name: t for name, t in tensors.items() if name.rsplit(".", 1)[0] == module}
        size += sum(len(data) for _, _, data in mine.values())
        if kept and size > MOST:
            break
        kept.update(mine)
    return kept


def paths(value, path=()):
    """Where the values of a document of JSON stand, from the whole of it down."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from paths(inner, path + (key,))


def documents(document):
    """The document with one value other or missing."""
    for path in list(paths(document))[1:]:
        old = document
        for key in path:
            old = old[key]
        number = isinstance(old, (int, float)) and not isinstance(old, bool)
        for new in [KeyError] + (NUMBERS if number else WORDS if isinstance(old, str) else OTHERS):
            changed = copy.deepcopy(document)
            at = changed
            for key in path[:-1]:
                at = at[key]
            if new is KeyError:
                del at[path[-1]]
            else:
                at[path[-1]] = new
            yield changed


def sized(dtype, shape, data):
    """The tensor with as many bytes as its type and shape need."""
    bits = BITS[dtype]
    for dim in shape:
        bits *= dim
    size = (bits + 7) // 8
    return dtype, shape, (data + bytes(max(0, size - len(data))))[:size]


def shapes(shape):
    yield shape[::-1]
    yield shape + [1]
    yield [1] + shape
    yield shape[1:]
    yield shape[:-1]
    yield []
    for i, dim in enumerate(shape):
        for new in (0, 1, dim - 1, dim + 1, dim // 2, 2 * dim):
            yield shape[:i] + [max(new, 0)] + shape[i + 1:]


def changed_tensors(tensors):
    """The tensors with one missing, or of another type, shape or bytes."""
    for name, (dtype, shape, data) in tensors.items():
        yield {other: t for other, t in tensors.items() if other != name}
        new = [sized(other, shape, data) for other in BITS if other != dtype]
        new += [sized(dtype, other, data) for other in shapes(shape) if other != shape]
        new += [(dtype, shape, (fill * len(data))[:len(data)]) for fill in FILLS]
        new += [(dtype, shape, data[:-1] + b"\x7f")]
        if data[:1] == b"{":  # bitsandbytes keeps what it knows as the bytes of a text
            for other in documents(json.loads(data)):
                text = json.dumps(other).encode()
                new.append(("U8", [len(text)], text))
        for tensor in new:
            yield {**tensors, name: tensor}


def more_tensors(tensors):
    """The tensors with one more of some other format."""
    module = list(tensors)[-1].rsplit(".", 1)[0]
    for part in PARTS:
        for dtype, shape in (("F32", []), ("F32", [1]), ("BF16", [1]), ("I32", [96]), ("I32", [1]), ("U8", [2, 3])):
            for fill in (b"\0\0\0\0", b"\0\0\x80\x3f", b"\0\0\x80\x7f", b"\xff"):
                size = len(sized(dtype, shape, b"")[2])
                yield {**tensors, module + part: (dtype, shape, (fill * size)[:size])}
        for group in (32, 96):
            order = b"".join(struct.pack("<i", (95 - k) // group) for k in range(96))
            yield {**tensors, module + part: ("I32", [96], order)}


def encoded(config, tensors, metadata):
    header, at, data = {}, 0, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        data += raw
    return json.dumps(config).encode() + b"\0" + json.dumps(header).encode() + b"\0" + data


def mutants(folder):
    config = {}
    if os.path.exists(os.path.join(folder, "config.json")):
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
    tensors, metadata = read(os.path.join(folder, "model.safetensors"))
    tensors = first_modules(tensors)
    for other in documents(config):
        yield encoded(other, tensors, metadata)
    for text in CONFIGS:
        yield text + b"\0" + encoded(config, tensors, metadata).split(b"\0", 1)[1]
    for other in [*changed_tensors(tensors), *more_tensors(tensors)]:
        yield encoded(config, other, metadata)
    for key, text in metadata.items():
        try:
            document = json.loads(text)
        except ValueError:
            document = text
        for other in documents({key: document}):
            if isinstance(document, str):
                yield encoded(config, tensors, {**metadata, **{k: str(v) for k, v in other.items()}})
            else:
                yield encoded(config, tensors, {**metadata, key: json.dumps(other.get(key))})


def main():
    replay, root = sys.argv[1:3]
    every = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    folders = [os.path.join(root, name) for name in sorted(os.listdir(root))
               if os.path.exists(os.path.join(root, name, "model.safetensors"))]
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # files there cost little
    with tempfile.TemporaryDirectory(dir=memory) as tmp:
        os.mkdir(os.path.join(tmp, "checkpoint"))
        num = 0
        for folder in folders:
            for data in itertools.islice(mutants(folder), 0, None, every):
                with open(os.path.join(tmp, "checkpoint", f"{os.path.basename(folder)}-{num}"), "wb") as file:
                    file.write(data)
                num += 1
        done = subprocess.run([replay, tmp, "checkpoint"], stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "TMPDIR": tmp}, check=False)
    print(done.stdout, end="")
    return done.returncode or len(folders) < 40


sys.exit(main())
