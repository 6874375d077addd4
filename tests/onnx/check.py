#!/usr/bin/env python3
"""check.py SINTER FOLDER [--update]: the texts that `sinter import` makes of the models in FOLDER (make.py wrote
them) are the ones that lie there, and give what ONNX Runtime gave: integers to the bit. What cannot be said is
refused by the node's name; malformed files by the byte. TAP."""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

SINTER, HERE = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
number, failed = 0, 0


def report(what, problem):
    global number, failed
    number += 1
    failed += bool(problem)
    for line in str(problem or "").splitlines():
        print("#", line)
    print(f"{'not ' if problem else ''}ok {number} - {what}")


def call(*words):
    return subprocess.run([SINTER, *map(str, words)], text=True, capture_output=True, timeout=120, check=False)


def load(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + size])
    head.pop("__metadata__", None)
    ret = {}
    for name, entry in head.items():
        raw = data[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]]
        kind = {"F32": "f", "F16": "e"}[entry["dtype"]]
        ret[name] = struct.unpack(f"<{len(raw) // struct.calcsize(kind)}{kind}", raw)
    return ret


def word_of(name, have):
    """The text's word of a graph's output."""
    plain = "".join(c if c.isalnum() else "_" for c in name[-40:])
    while "__" in plain:
        plain = plain.replace("__", "_")
    plain = plain.strip("_")
    return next((w for w in have if w == plain or w == "v" + plain or w.startswith(plain + "_")), None)


def compare(name, got, want):
    """Integers: outputs all of whose values are whole. Floats: 1e-5 of the largest; of f16 a unit of its last
    place, since ONNX Runtime computes that in f32 and leaves roundings out."""
    problem, part = "", 1e-3 if name == "half" else 1e-5
    for key, values in want.items():
        word = word_of(key, got)
        if word is None:
            problem += f"no output for {key} in {list(got)}\n"
            continue
        have, whole = got[word], all(v == int(v) for v in values)
        most = max(map(abs, values)) or 1
        off = [abs(a - b) for a, b in zip(have, values)]
        if len(have) != len(values) or not all(d <= (0 if whole else part * most) for d in off):
            bad = sum(d > (0 if whole else part * most) for d in off)
            problem += f"{key}: {bad} of {len(values)} differ, by {max(off)} at most; largest {most}\n"
    return problem


def one(name, tmp):
    done = call("import", HERE / (name + ".onnx"))
    golden = HERE / (name + ".sinter")
    if "--update" in sys.argv:
        golden.write_text(done.stdout)
    same = golden.exists() and golden.read_text() == done.stdout
    report(f"{name}: the text", "" if same and not done.returncode and not done.stderr else done.stderr + done.stdout)
    folder, out = tmp / name, tmp / (name + ".safetensors")
    done = call("import", HERE / (name + ".onnx"), "-o", folder)
    if done.returncode == 0:
        done = call("run", folder / "model.sinter", "--input", HERE / (name + "-x.safetensors"), "--output", out)
    ok = done.returncode == 0 and not done.stderr
    report(f"{name}: ONNX Runtime's results",
           compare(name, load(out), load(HERE / (name + "-want.safetensors"))) if ok else done.stdout + done.stderr)


# Malformed and refused models: messages of protocol buffers, written here.

def varint(n):
    n &= (1 << 64) - 1
    ret = b""
    while n > 127:
        ret += bytes([n & 127 | 128])
        n >>= 7
    return ret + bytes([n])


def field(num, value):
    if isinstance(value, int):
        return varint(num << 3) + varint(value)
    if isinstance(value, float):
        return varint(num << 3 | 5) + struct.pack("<f", value)
    value = value.encode() if isinstance(value, str) else value
    return varint(num << 3 | 2) + varint(len(value)) + value


def tensor(name, dims, kind=1, raw=None, *more):
    count = 1
    for d in dims:
        count *= d
    size = {1: 4, 2: 1, 3: 1, 6: 4, 7: 8, 10: 2, 11: 8}.get(kind, 4)
    raw = bytes(count * size) if raw is None else raw
    return b"".join(field(1, d) for d in dims) + field(2, kind) + field(8, name) + (field(9, raw) if raw != b"-" else b"") + b"".join(more)


def port(name, dims, kind=1):
    shape = b"".join(field(1, field(2, d) if isinstance(d, str) else field(1, d)) for d in dims)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, shape)))


def node(op, ins, outs, name="n", domain=None, *attrs):
    return (b"".join(field(1, i) for i in ins) + b"".join(field(2, o) for o in outs) + field(3, name) + field(4, op) +
            b"".join(field(5, a) for a in attrs) + (field(7, domain) if domain else b""))


def attr(name, value):
    if isinstance(value, float):
        return field(1, name) + field(2, value) + field(20, 1)
    if isinstance(value, list):
        return field(1, name) + b"".join(field(8, v) for v in value) + field(20, 7)
    if isinstance(value, bytes):
        return field(1, name) + field(4, value) + field(20, 3)
    return field(1, name) + field(3, value) + field(20, 2)


def graph(nodes, tensors=(), ins=None, outs=None, more=b""):
    ins = [port("x", ["B", 4])] if ins is None else ins
    outs = [port("y", ["B", 4])] if outs is None else outs
    return (b"".join(field(1, n) for n in nodes) + field(2, "g") + b"".join(field(5, t) for t in tensors) +
            b"".join(field(11, i) for i in ins) + b"".join(field(12, o) for o in outs) + more)


def model(g, opset=17, more=b""):
    return field(1, 8) + field(7, g) + field(8, field(1, "") + field(2, opset)) + field(8, field(1, "com.microsoft") + field(2, 1)) + more


RELU = node("Relu", ["x"], ["y"])
GOOD = model(graph([RELU]))
W = tensor("w", [4, 4])
MATMUL = [node("MatMul", ["x", "w"], ["y"])]


def external(location, *entries):
    data = b"".join(field(13, field(1, k) + field(2, v)) for k, v in (("location", location), *entries))
    return tensor("w", [4, 4], 1, b"-", data, field(14, 1))


def q(name, value, kind):
    return tensor(name, [], kind, struct.pack("<f", value) if kind == 1 else struct.pack("<b" if kind == 3 else "<B", int(value)))


MALFORMED = [
    ("nothing", b"", "0 graphs"),
    ("text", b"hello, this is no model", "E0525"),
    ("a length beyond the file", GOOD[:-4], "are left|ends inside"),
    ("a length of 2^62", field(1, 8) + varint(7 << 3 | 2) + varint(1 << 62), "a field of 4611686018427387904 bytes"),
    ("an overlong number", b"\x08" + b"\xff" * 10 + b"\x01", "more than 64 bits"),
    ("a number that does not end", b"\x08\xff\xff", "ends inside of a number"),
    ("a group", GOOD + b"\x0b\x0c", "kind 3"),
    ("a field of number 0", GOOD + b"\x02\x00", "number 0"),
    ("two graphs", GOOD + field(7, graph([RELU])), "2 graphs"),
    ("no set of operations", field(1, 8) + field(7, graph([RELU])), "0 sets"),
    ("a number for a graph", field(7, 3) + field(8, field(2, 17)), "a number in its place"),
    ("a name that is no UTF-8", model(graph([node("Relu", ["x"], [b"\xff\xfe"])])), "no UTF-8"),
    ("a name with NUL", model(graph([node("Relu", ["x"], ["y\0"])])), "holds NUL"),
    ("too few values", model(graph(MATMUL, [tensor("w", [4, 4], 1, bytes(60))])), "has 60 bytes of values, not 64"),
    ("too many values", model(graph(MATMUL, [tensor("w", [4, 4], 1, bytes(68))])), "has 68 bytes of values, not 64"),
    ("a negative dimension", model(graph(MATMUL, [tensor("w", [-4, 4], 1, b"")])), "a dimension of -4"),
    ("sizes that overflow", model(graph(MATMUL, [tensor("w", [1 << 30] * 6, 1, b"")])), "overflows"),
    ("seven dimensions", model(graph(MATMUL, [tensor("w", [1] * 7)])), "more than 6 dimensions"),
    ("an unknown type", model(graph(MATMUL, [tensor("w", [4], 77)])), "unknown type"),
    ("raw and packed values", model(graph(MATMUL, [tensor("w", [1], 1, bytes(4), field(4, 1.0))])), "bytes of values"),
    ("packed floats of 7 bytes", model(graph(MATMUL, [tensor("w", [4, 4], 1, b"-", field(4, bytes(7)))])), "7 bytes of packed"),
    ("external data elsewhere", model(graph(MATMUL, [external("../../etc/passwd")])), "not beside the model"),
    ("external data by an absolute path", model(graph(MATMUL, [external("/etc/passwd")])), "not beside the model"),
    ("external data that are not there", model(graph(MATMUL, [external("none.bin")])), "none.bin"),
    ("external data beyond their file", model(graph(MATMUL, [external("malformed.onnx", ("offset", "9000000"))])), "from 9000000 on"),
    ("external data of another length", model(graph(MATMUL, [external("malformed.onnx", ("length", "12"))])), "12 bytes of external data"),
    ("an offset that is no number", model(graph(MATMUL, [external("malformed.onnx", ("offset", "-1"))])), "is no number of bytes"),
    ("a function", GOOD + field(25, b""), "functions"),
    ("a graph inside of a node", model(graph([node("If", ["x"], ["y"], "n", None, field(1, "then") + field(6, b""))])), "graph inside of a node"),
    ("a sparse tensor", model(graph([RELU], more=field(15, b""))), "sparse"),
]
U8 = [q("s", 0.5, 1), q("z", 3, 2)]
REFUSED = [
    ("an old set", model(graph([RELU]), 9), "are of set 9, and sets 11 to 21"),
    ("a new set", model(graph([RELU]), 99), "are of set 99"),
    ("an operation", model(graph([node("Conv", ["x"], ["y"], "conv1")])), "node 0 'conv1' .Conv of ai.onnx, set 17.: this operation is not read"),
    ("another domain", model(graph([node("Relu", ["x"], ["y"], "n", "org.example")])), "Relu of org.example"),
    ("an operation newer than its set", model(graph([node("Gelu", ["x"], ["y"])])), "read of sets 20 to 21"),
    ("all of them at once", model(graph([node("Conv", ["x"], ["a"]), node("Loop", ["x"], ["y"])])), "Conv.*Loop"),
    ("a value that nothing makes", model(graph([node("Relu", ["q"], ["y"])])), "operand 0, 'q'"),
    ("a value made twice", model(graph([RELU, RELU])), "made twice"),
    ("an output that nothing makes", model(graph([node("Relu", ["x"], ["a"])])), "output 'y'"),
    ("no outputs", model(graph([RELU], outs=[])), "no outputs"),
    ("an input without a shape", model(graph([RELU], ins=[field(1, "x")])), "no name or no shape"),
    ("an input of doubles", model(graph([RELU], ins=[port("x", [4], 11)])), "is of double"),
    ("too many operands", model(graph([node("Relu", ["x", "x"], ["y"])])), "2 operands"),
    ("shapes that do not multiply", model(graph([node("MatMul", ["x", "w"], ["y"])], [tensor("w", [5, 4])])), "by .5, 4"),
    ("shapes that do not add", model(graph([node("Add", ["x", "w"], ["y"])], [tensor("w", [3])])), "its operands are"),
    ("batches of matrices", model(graph([node("MatMul", ["x", "x"], ["y"])], ins=[port("x", [2, 4, 4])])), "where the language has products"),
    ("softmax along another axis", model(graph([node("Softmax", ["x"], ["y"], "n", None, attr("axis", 0))])), "only the last"),
    ("a gelu whose last product has one operand", model(graph(
        [node("Div", ["x", "r"], ["d"]), node("Erf", ["d"], ["e"]), node("Add", ["e", "o"], ["a"]),
         node("Mul", ["a"], ["y"])],
        [tensor("r", [], 1, struct.pack("<f", 2 ** 0.5)), tensor("o", [], 1, struct.pack("<f", 1))])), "not part of"),
    ("a node that reads itself", model(graph([node("Sum", ["x", "y"], ["y"])])), "makes its operand 1, 'y'"),
    ("a sum that leaves an operand out", model(graph([node("Sum", ["x", ""], ["y"])])), "makes its operand 1"),
    ("an erf by itself", model(graph([node("Erf", ["x"], ["y"])])), "not part of"),
    ("a computed scale", model(graph([node("QuantizeLinear", ["x", "x", "z"], ["y"])], U8)), "computed"),
    ("a scale of 0", model(graph([node("QuantizeLinear", ["x", "s", "z"], ["y"])], [q("s", 0, 1), q("z", 3, 2)])), "scale of 0"),
    ("zero points of another type", model(graph([node("QuantizeLinear", ["x", "s", "z"], ["a"]), node("DequantizeLinear", ["a", "s", "k"], ["y"])],
                                             [*U8, q("k", 1, 3)])), "zero points of int8 for codes of uint8"),
    ("a step in a slice", model(graph([node("Slice", ["x", "a", "b", "c", "d"], ["y"])], [tensor(n, [1], 7, struct.pack("<q", v))
                                      for n, v in (("a", 0), ("b", 4), ("c", 1), ("d", 2))])), "a step of 2"),
    ("a cast to integers", model(graph([node("Cast", ["x"], ["y"], "n", None, attr("to", 7))])), "from float to int64"),
    ("dynamic codes by themselves", model(graph([node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])])), "comes of DynamicQuantizeLinear"),
    ("a reshape that does not fit", model(graph([node("Reshape", ["x", "s"], ["y"])], [tensor("s", [2], 7, struct.pack("<qq", 0, 5))])), "does not become"),
]


def refusals(tmp):
    import re
    path = tmp / "malformed.onnx"
    for kind, cases, code in (("malformed", MALFORMED, "E05"), ("refused", REFUSED, "E0526")):
        for what, data, pattern in cases:
            path.write_bytes(data)
            done = call("import", path, "-o", tmp / "none")
            ok = (done.returncode == 1 and not done.stdout and re.search(pattern, done.stderr, re.S) and
                  f"error[{code}" in done.stderr and not (tmp / "none").exists())
            report(f"{kind}: {what}", "" if ok else f"exit {done.returncode}\n{done.stdout}{done.stderr}")
    path.write_bytes(GOOD)
    done = call("import", path)
    report("the good one beside them", "" if done.returncode == 0 and "y = relu(x)" in done.stdout else done.stderr)


def cut(tmp):
    """Every prefix of a model, and every byte of its head changed, is read or refused, but never crashes."""
    data = (HERE / "mlp.onnx").read_bytes()
    path, problem = tmp / "cut.onnx", ""
    for i in range(0, len(data), max(1, len(data) // 40)):
        path.write_bytes(data[:i])
        done = call("import", path)
        if done.returncode not in (0, 1):
            problem += f"{i} bytes: exit {done.returncode}\n"
    for i in range(0, 400, 5):
        path.write_bytes(data[:i] + bytes([data[i] ^ 0x55]) + data[i + 1:])
        done = call("import", path)
        if done.returncode not in (0, 1):
            problem += f"byte {i}: exit {done.returncode} {done.stderr}\n"
    report("cut and changed models", problem)


def main():
    names = sorted(path.stem for path in HERE.glob("*.onnx"))
    with tempfile.TemporaryDirectory() as tmp:
        for name in names:
            one(name, pathlib.Path(tmp))
        refusals(pathlib.Path(tmp))
        cut(pathlib.Path(tmp))
    print(f"1..{number}")
    return failed > 0 or len(names) < 10


sys.exit(main())
