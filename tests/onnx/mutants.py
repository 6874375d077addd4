#!/usr/bin/env python3
"""mutants.py REPLAY FOLDER [EVERY | --all]: ONNX files that contradict themselves.

Models of FOLDER (with --all every one, by more values; with EVERY one mutant in so many) are taken apart as protocol
buffers are, whatever their fields mean, and changed in one field at a time: missing, twice, of another kind, number or
value. REPLAY imports each as the fuzz target does: it is refused or becomes a text, and nothing may crash. TAP.
"""
import itertools
import os
import subprocess
import sys
import tempfile

ALL = "--all" in sys.argv
NAMES = ["activations", "dynamic", "half", "integers-s8u8", "mlp-external", "qdq-u8s8", "qop-u8s8-channel", "weights"]
NUMBERS = [0, 1, 7, 16, 1 << 31, (1 << 64) - 1] + [2, 3, 5, 10, 11, 17, 18, 19, 63, (1 << 63) - 1] * ALL
TEXTS = [b"", b"\0", b"x", b"-1"] + [b"\xff", b"\x08\x01", b"\x80" * 11, b"../x", b"data", b"ai.onnx"] * ALL
OPS = ["Clip", "Concat", "Constant", "Erf", "Flatten", "Gather", "Gelu", "Gemm", "HardSigmoid", "HardSwish",
       "LayerNormalization", "LeakyRelu", "MatMul", "MatMulInteger", "PRelu", "QLinearMatMul", "QGemm", "Reshape",
       "Shape", "Slice", "Softmax", "Split", "Squeeze", "Sum", "Transpose", "Unsqueeze", "DequantizeLinear",
       "QuantizeLinear", "DynamicQuantizeLinear", "Cast"]
MOST = 40000  # bytes of a model


def put(number):
    out = b""
    while number > 0x7f:
        out += bytes([number & 0x7f | 0x80])
        number >>= 7
    return out + bytes([number])


def take(data, at):
    """A number in pieces of seven bits, and where it ends; (None, at) where there is none."""
    number = 0
    for i in range(10):
        if at + i >= len(data):
            return None, at
        number |= (data[at + i] & 0x7f) << 7 * i
        if data[at + i] < 0x80:
            return number, at + i + 1
    return None, at


def fields(data):
    """[(number, kind, value)] of a message, or None where it is none."""
    out, at = [], 0
    while at < len(data):
        tag, at = take(data, at)
        if tag is None or tag >> 3 == 0:
            return None
        kind = tag & 7
        if kind == 0:
            value, at = take(data, at)
        elif kind == 2:
            size, at = take(data, at)
            value = None if size is None or at + size > len(data) else data[at:at + size]
            at += size or 0
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            value = data[at:at + size] if at + size <= len(data) else None
            at += size
        else:
            return None
        if value is None:
            return None
        out.append((tag >> 3, kind, value))
    return out


def encoded(message):
    out = b""
    for number, kind, value in message:
        out += put(number << 3 | kind)
        out += put(value) if kind == 0 else put(len(value)) + value if kind == 2 else value
    return out


def changed(message, depth, more):
    """The message with one field of it, or of one inside, changed; more: or with a field that it lacks."""
    for number in range(1, 26) if more else ():
        for field in ((0, 1), (0, 7), (2, b"\0\0\x80\x3f"), (2, b"\1"), (2, b"\x0a\1x\x12\1y"), (5, b"\0\0\x80\x3f"),
                      (1, b"\0\0\0\0\0\0\xf0\x3f")):
            yield encoded(message + [(number, *field)])
    for i, (number, kind, value) in enumerate(message):
        def replaced(*new, at=i):
            return encoded(message[:at] + list(new) + message[at + 1:])
        yield replaced()
        yield replaced((number, kind, value), (number, kind, value))
        yield replaced((number, 0 if kind == 2 else 2, 1 if kind == 2 else b"\x01"))
        yield replaced((number, 5, b"\0\0\x80\x3f"))
        yield replaced((number % 20 + 1, kind, value))
        if kind == 0:
            for other in NUMBERS:
                yield replaced((number, 0, other))
        elif kind == 2:
            inner = fields(value) if depth < 8 and len(value) > 1 else None
            for other in TEXTS if inner is None or len(value) < 9 else TEXTS[:2]:
                yield replaced((number, 2, other))
            yield replaced((number, 2, value[:-1]))
            if number == 4 and value.isalpha() and value[:1].isupper():  # the operation of a node
                for op in OPS:
                    yield replaced((number, 2, op.encode()))
            for other in changed(inner, depth + 1, more) if inner else ():
                yield replaced((number, 2, other))


def main():
    replay, root = sys.argv[1:3]
    every = int(sys.argv[3]) if len(sys.argv) > 3 and not ALL else 1
    models = [os.path.join(root, name) for name in sorted(os.listdir(root)) if name.endswith(".onnx")]
    models = [model for model in models if os.path.getsize(model) < MOST and
              (ALL or os.path.basename(model)[:-5] in NAMES)]
    seen = set()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # files there cost little
    with tempfile.TemporaryDirectory(dir=memory) as tmp:
        os.mkdir(os.path.join(tmp, "onnx"))
        for model in models:
            with open(model, "rb") as file:
                message = fields(file.read())
            for data in itertools.islice(changed(message, 0, len(encoded(message)) < 1000), 0, None, every):
                if hash(data) not in seen:
                    with open(os.path.join(tmp, "onnx", str(len(seen))), "wb") as file:
                        file.write(data)
                    seen.add(hash(data))
        done = subprocess.run([replay, tmp, "onnx"], stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="")
    return done.returncode or len(models) < 3


sys.exit(main())
