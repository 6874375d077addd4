#!/usr/bin/env python3
"""make.py: small ONNX models with inputs and what ONNX Runtime computes of them. Quantised ones are
made by ONNX Runtime's own quantiser. Needs onnx, onnxruntime, numpy and safetensors; offline.

Each model NAME.onnx has its inputs in NAME-x.safetensors and its outputs in NAME-want.safetensors,
of a session as it is by default (with all of its fusions), on the CPU; of some, where these round
differently from what ONNX says, with fusions disabled. Integers are kept as f32.
"""
import pathlib
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T, helper as h, numpy_helper as nh
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent
rng = np.random.default_rng(12)
ort.set_default_logger_severity(3)


def weight(*shape, scale=0.3):
    return (rng.normal(size=shape) * scale).astype(np.float32)


def const(name, value):
    return nh.from_array(np.asarray(value), name)


def port(name, shape, kind=T.FLOAT):
    return h.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs, outputs, constants, opset=17, extra=()):
    graph = h.make_graph(nodes, "net", inputs, outputs, constants)
    ret = h.make_model(graph, opset_imports=[h.make_opsetid("", opset), *extra], producer_name="sinter tests")
    ret.ir_version = 8 if opset < 21 else 10
    return ret


def run(m, feed, plain=False):
    options = ort.SessionOptions()
    if plain:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feed)))


def as_stored(values):
    return {k: np.ascontiguousarray(v if v.dtype == np.float16 else v.astype(np.float32)) for k, v in values.items()}


def save(name, m, feed, external=False, plain=False):
    want = run(m, feed, plain)
    integers = any(value.dtype.kind in "iu" for value in want.values())
    other = run(m, feed, not plain) if integers else want
    for key, value in want.items():
        if value.dtype.kind in "iu" and not np.array_equal(value, other[key]):
            print(f"{name}: {key}: {(value != other[key]).sum()} of {value.size} integers depend on ONNX Runtime's fusions")
    path = HERE / (name + ".onnx")
    if external:
        onnx.save_model(m, path, save_as_external_data=True, all_tensors_to_one_file=True, location=name + ".data", size_threshold=0)
    else:
        onnx.save_model(m, path)
    save_file(as_stored(feed), HERE / (name + "-x.safetensors"))
    save_file(as_stored(want), HERE / (name + "-want.safetensors"))


class Reader(CalibrationDataReader):
    def __init__(self, feeds):
        self.feeds = iter(feeds)

    def get_next(self):
        return next(self.feeds, None)


def quantised(m, feeds, **options):
    with tempfile.TemporaryDirectory() as tmp:
        a, b = pathlib.Path(tmp) / "a.onnx", pathlib.Path(tmp) / "b.onnx"
        onnx.save_model(m, a)
        quantize_static(a, b, Reader(feeds), **options)
        return onnx.load(b)


def x_of(*shape):
    return rng.normal(size=shape).astype(np.float32)


# Floats


def mlp(opset=17):
    return model(
        [h.make_node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["h1"], "fc1", transB=1),
         h.make_node("Relu", ["h1"], ["a1"]),
         h.make_node("Gemm", ["a1", "fc2.weight", "fc2.bias"], ["y"], "fc2")],
        [port("x", ["batch", 17])], [port("y", ["batch", 10])],
        [const("fc1.weight", weight(33, 17)), const("fc1.bias", weight(33)),
         const("fc2.weight", weight(33, 10)), const("fc2.bias", weight(10))], opset)


def floats():
    save("mlp", mlp(), {"x": x_of(5, 17)})
    save("mlp-11", mlp(11), {"x": x_of(3, 17)})
    save("mlp-external", mlp(21), {"x": x_of(2, 17)}, external=True)
    n = h.make_node
    save("activations", model(
        [n("Sigmoid", ["x"], ["s"]), n("Mul", ["x", "s"], ["silu"]), n("Tanh", ["silu"], ["t"]),
         n("LeakyRelu", ["t"], ["l"], alpha=0.1), n("Clip", ["x", "lo", "hi"], ["c"]), n("HardSwish", ["x"], ["hs"]),
         n("HardSigmoid", ["x"], ["hg"], alpha=0.25), n("PRelu", ["x", "slope"], ["p"]), n("Neg", ["x"], ["m"]),
         n("Abs", ["x"], ["ab"]), n("Mul", ["x", "three"], ["x3"]), n("Round", ["x3"], ["r"]),
         n("Div", ["x", "root"], ["e0"]), n("Erf", ["e0"], ["e1"]), n("Add", ["e1", "one"], ["e2"]),
         n("Mul", ["x", "e2"], ["e3"]), n("Mul", ["e3", "half"], ["g1"]),
         n("Mul", ["x", "inv"], ["f0"]), n("Erf", ["f0"], ["f1"]), n("Add", ["one", "f1"], ["f2"]),
         n("Mul", ["x", "half"], ["f3"]), n("Mul", ["f3", "f2"], ["g2"]),
         n("Gelu", ["x"], ["g3"]), n("Gelu", ["x"], ["g4"], approximate="tanh"),
         n("Sum", ["l", "c", "hs", "hg", "p"], ["y"]), n("Max", ["m", "ab", "r"], ["z"]), n("Min", ["g1", "g2", "g3", "g4"], ["g"])],
        [port("x", ["B", 19])], [port("y", ["B", 19]), port("z", ["B", 19]), port("g", ["B", 19])],
        [const("lo", np.float32(-0.5)), const("hi", np.float32(0.75)), const("slope", weight(19)),
         const("root", np.float32(2 ** 0.5)), const("inv", np.float32(0.5 ** 0.5)), const("one", np.float32(1)),
         const("half", np.float32(0.5)), const("three", np.float32(3))], 20), {"x": x_of(4, 19)})


def block():
    """One head of attention over 6 rows, with norms, moves and a gated layer."""
    n = h.make_node
    return model(
        [n("LayerNormalization", ["x", "ln.w", "ln.b"], ["n"], epsilon=1e-6),
         n("MatMul", ["n", "qkv.weight"], ["qkv0"]), n("Add", ["qkv0", "qkv.bias"], ["qkv1"]),
         n("Split", ["qkv1", "parts"], ["q", "k", "v"], axis=-1), n("Transpose", ["k"], ["kt"], perm=[1, 0]),
         n("MatMul", ["q", "kt"], ["s0"]), n("Mul", ["s0", "quarter"], ["s1"]), n("Softmax", ["s1"], ["s2"], axis=-1),
         n("MatMul", ["s2", "v"], ["o0"]), n("Gemm", ["o0", "out.weight", "out.bias"], ["o1"], transB=1, alpha=0.5, beta=2.0),
         n("Add", ["x", "o1"], ["r"]), n("LayerNormalization", ["r", "ln2.w"], ["n2"], axis=-1),
         n("Slice", ["n2", "from", "to", "axes"], ["cut"]), n("Concat", ["cut", "n2"], ["wide"], axis=1),
         n("Shape", ["wide"], ["shape"]), n("Gather", ["shape", "zero"], ["rows"]), n("Unsqueeze", ["rows", "axis0"], ["rows1"]),
         n("Concat", ["rows1", "rest"], ["to4"], axis=0), n("Reshape", ["wide", "to4"], ["four"]),
         n("Flatten", ["four"], ["flat"]), n("Unsqueeze", ["flat", "axis0"], ["u"]), n("Squeeze", ["u", "axis0"], ["sq"]),
         n("Identity", ["sq"], ["id"]), n("Sub", ["id", "flat"], ["none"]), n("Add", ["none", "flat"], ["same"]),
         n("MatMul", ["same", "down.weight"], ["d"]), n("Cast", ["d"], ["y"], to=T.FLOAT)],
        [port("x", [6, 16])], [port("y", [6, 7])],
        [const("ln.w", weight(16) + 1), const("ln.b", weight(16)), const("ln2.w", weight(16) + 1),
         const("qkv.weight", weight(16, 48)), const("qkv.bias", weight(48)), const("parts", np.array([16, 16, 16])),
         const("quarter", np.float32([0.25])), const("out.weight", weight(16, 16)), const("out.bias", weight(16)),
         const("from", np.array([2])), const("to", np.array([-6])), const("axes", np.array([1])), const("zero", np.int64(0)),
         const("axis0", np.array([0])), const("rest", np.array([2, -1])), const("down.weight", weight(24, 7))])


# Quantised


def deep():
    """Layers of odd sizes, with biases apart and inside."""
    n = h.make_node
    return model(
        [n("MatMul", ["x", "a.weight"], ["a0"]), n("Add", ["a0", "a.bias"], ["a1"]), n("Relu", ["a1"], ["a2"]),
         n("Gemm", ["a2", "b.weight", "b.bias"], ["b1"], transB=1), n("Relu", ["b1"], ["b2"]),
         n("MatMul", ["b2", "c.weight"], ["y"])],
        [port("x", ["B", 45])], [port("y", ["B", 13])],
        [const("a.weight", weight(45, 31)), const("a.bias", weight(31)), const("b.weight", weight(27, 31)),
         const("b.bias", weight(27)), const("c.weight", weight(27, 13))])


def quantised_models():
    kinds = {"u8s8": (QuantType.QUInt8, QuantType.QInt8), "s8s8": (QuantType.QInt8, QuantType.QInt8),
             "u8u8": (QuantType.QUInt8, QuantType.QUInt8)}
    feed = {"x": x_of(64, 45)}
    for name, (act, weights) in kinds.items():
        for form in (QuantFormat.QDQ, QuantFormat.QOperator):
            for channels in (False, True):
                if channels and weights == QuantType.QUInt8:
                    continue
                only = None if form == QuantFormat.QDQ else ["MatMul", "Gemm"]
                m = quantised(deep(), [feed], quant_format=form, activation_type=act, weight_type=weights,
                              per_channel=channels, op_types_to_quantize=only or ["MatMul", "Gemm"])
                word = ("qdq" if form == QuantFormat.QDQ else "qop") + "-" + name + ("-channel" if channels else "")
                save(word, integers_out(m), feed)


def integers_out(m):
    """The same model with every quantised value between layers as a further output."""
    kinds = {"QuantizeLinear": 0, "QLinearMatMul": 0, "QGemm": 0}
    zero = {i.name: i.data_type for i in m.graph.initializer}
    made = [n for n in m.graph.node if n.op_type in kinds and n.output[0] not in {o.name for o in m.graph.output}]
    for i, n in enumerate(made):
        if n.op_type == "QGemm" and len(n.input) < 9:
            continue
        kind = zero[n.input[-1]]
        m.graph.output.append(h.make_tensor_value_info(n.output[0], kind, None))
    return m


def dynamic():
    """ONNX Runtime's dynamic quantisation, and MatMulInteger by hand."""
    with tempfile.TemporaryDirectory() as tmp:
        a, b = pathlib.Path(tmp) / "a.onnx", pathlib.Path(tmp) / "b.onnx"
        onnx.save_model(deep(), a)
        for channels in (False, True):
            quantize_dynamic(a, b, per_channel=channels, weight_type=QuantType.QInt8 if channels else QuantType.QUInt8)
            save("dynamic" + ("-channel" if channels else ""), onnx.load(b), {"x": x_of(7, 45)})
    n = h.make_node
    codes = lambda kind, *shape: rng.integers(0 if kind == np.uint8 else -128, 256 if kind == np.uint8 else 128, shape).astype(kind)
    for name, a, b in (("u8s8", np.uint8, np.int8), ("s8s8", np.int8, np.int8), ("u8u8", np.uint8, np.uint8), ("s8u8", np.int8, np.uint8)):
        kinds = {np.uint8: T.UINT8, np.int8: T.INT8}
        both = name != "s8u8"  # ONNX Runtime has no QLinearMatMul of these
        m = model(
            [n("MatMulInteger", ["x", "w", "zx", "zw"], ["i"]),
             n("QLinearMatMul", ["x", "sx", "zx", "w2", "sw", "zw2", "sy", "zy"], ["q"])][:1 + both],
            [port("x", [5, 37], kinds[a])], [port("i", [5, 11], T.INT32), port("q", [5, 11], kinds[a])][:1 + both],
            [const("w", codes(b, 37, 11)), const("zx", a(77)), const("zw", b(9)), const("w2", codes(b, 37, 11)),
             const("zw2", b(0 if name == "u8s8" else 3) if name != "s8s8" else np.zeros(11, b)),
             const("sx", np.float32(0.0371)), const("sw", np.abs(weight(11)) if name == "s8s8" else np.float32(0.011)),
             const("sy", np.float32(3.17)), const("zy", a(100))])
        save("integers-" + name, m, {"x": codes(a, 5, 37)})


def stored():
    """Weights that are quantised by themselves: by rows, by blocks, of 4 bits; and a graph that quantises its own."""
    n = h.make_node
    save("weights", model(
        [n("DequantizeLinear", ["a", "as", "az"], ["aw"], axis=0), n("Gemm", ["x", "aw"], ["h"], transB=1),
         n("Sigmoid", ["h"], ["h2"]),
         n("DequantizeLinear", ["b", "bs", "bz"], ["bw"], axis=0, block_size=8), n("MatMul", ["h2", "bw"], ["h3"]),
         n("DequantizeLinear", ["c", "cs"], ["cw"], axis=1, block_size=4), n("Transpose", ["cw"], ["ct"]), n("MatMul", ["h3", "ct"], ["h4"]),
         n("DequantizeLinear", ["d", "ds"], ["dv"]), n("Add", ["h4", "dv"], ["h5"]),
         n("QuantizeLinear", ["e", "es", "ez"], ["eq"], axis=1), n("DequantizeLinear", ["eq", "es", "ez"], ["ew"], axis=1),
         n("QuantizeLinear", ["h5", "hs", "hz"], ["hq"]), n("DequantizeLinear", ["hq", "hs", "hz"], ["hd"]),
         n("MatMul", ["hd", "ew"], ["h6"]), n("Add", ["h6", "h5"], ["sum"]),
         n("QuantizeLinear", ["sum", "ys", "yz"], ["y"])],
        [port("x", ["rows", 19])], [port("y", ["rows", 12], T.UINT8), port("hq", ["rows", 12], T.INT8)],
        [const("a", rng.integers(-128, 128, (24, 19)).astype(np.int8)), const("as", np.abs(weight(24, scale=0.02))),
         const("az", rng.integers(-9, 9, 24).astype(np.int8)),
         h.make_tensor("b", T.UINT4, [24, 16], rng.integers(0, 16, 24 * 16)), const("bs", np.abs(weight(3, 16, scale=0.1))),
         h.make_tensor("bz", T.UINT4, [3, 16], rng.integers(0, 16, 48)),
         h.make_tensor("c", T.INT4, [12, 16], rng.integers(-8, 8, 12 * 16)), const("cs", np.abs(weight(12, 4, scale=0.1))),
         const("d", rng.integers(-99, 99, 12).astype(np.int8)), const("ds", np.float32(0.01)),
         const("e", weight(12, 12)), const("es", np.abs(weight(12, scale=0.01)) + np.float32(0.001)), const("ez", np.zeros(12, np.int8)),
         const("hs", np.float32(0.037)), const("hz", np.int8(-3)), const("ys", np.float32(0.051)), const("yz", np.uint8(120))], 21),
        {"x": x_of(6, 19)}, plain=True)


def half():
    n = h.make_node
    f16 = lambda *shape: weight(*shape).astype(np.float16)
    save("half", model(
        [n("Gemm", ["x", "w", "b"], ["h"], transB=1), n("Relu", ["h"], ["r"]), n("Mul", ["r", "two"], ["m"]),
         n("Cast", ["m"], ["y"], to=T.FLOAT)],
        [port("x", ["B", 8], T.FLOAT16)], [port("y", ["B", 6])],
        [const("w", f16(6, 8)), const("b", f16(6)), const("two", np.float16(1.3))]), {"x": x_of(3, 8).astype(np.float16)}, plain=True)


# Forms that exporters write less often: each output takes another one.


def seed(number):
    global rng
    rng = np.random.default_rng(number)


def i64(*values):
    return np.array(values, np.int64)


class Forms:
    """A model of many outputs, y0 and so on, each the end of a few nodes."""
    def __init__(self, number, /, **constants):
        seed(number)
        self.nodes, self.outs, self.constants = [], [], dict(constants)

    def add(self, op, ins, *outs, **attrs):
        self.nodes.append(h.make_node(op, ins, outs, **attrs))
        return outs[0]

    def out(self, op, ins, num=1, **attrs):
        names = [f"y{len(self.outs) + i}" for i in range(num)]
        self.outs.extend(names)
        self.add(op, ins, *names, **attrs)

    def save(self, name, inputs, feed, opset=17, plain=False, kinds=()):
        outs = [port(o, None, dict(kinds).get(o, T.FLOAT)) for o in self.outs]
        constants = [v if isinstance(v, onnx.TensorProto) else const(k, v) for k, v in self.constants.items()]
        save(name, model(self.nodes, inputs, outs, constants, opset, [h.make_opsetid("com.microsoft", 1)]), feed, plain=plain)


SIZES = {"i0": i64(0), "i1": i64(1), "i2": i64(2), "m1": i64(-1), "far": i64(2 ** 63 - 1), "none": i64()}


def sizes():
    """Sizes that are computed of B, T and 6, in the ways in which exporters do."""
    f = Forms(13, **SIZES, two=np.int32(2), back=i64(-2, 0), constant=weight(2, 3, 6, 1), fixed=i64(2, 3, 3, 2))

    def to(*parts):
        f.out("Reshape", ["x", f.add("Concat", list(parts), f"to{len(f.outs)}", axis=0)])
    f.add("Shape", ["x"], "s")
    for name, *span in (("b", "i0", "i1"), ("t", "i1", "i2", "i0"), ("bt", "i0", "m1", "i0", "i1"),
                        ("six", "m1", "far", "m1", "i1"), ("nil", "i2", "i0")):
        f.add("Slice", ["s", *span], name)
    for parts in (("t", "b", "m1"), ("bt", "m1", "i2"), ("nil", "m1"), ("b", "m1", "i1"), ("m1", "t"), ("m1", "six")):
        to(*parts)
    for i, span in enumerate(({"start": 1}, {"start": -2, "end": 9}, {"end": 1}, {"end": -1}, {"start": -9, "end": 2}, {"start": 2, "end": 1},
                              {"end": -9}, {"start": 7})):
        to("m1", f.add("Shape", ["x"], f"part{i}", **span))
    f.add("Unsqueeze", [f.add("Gather", ["s", "two"], "g0", axis=-1), "i0"], "g1")
    f.add("Unsqueeze", [f.add("Squeeze", ["b", "i0"], "g2"), "i0"], "g3")
    f.add("Cast", [f.add("Cast", [f.add("Cast", [f.add("Gather", ["s", "back"], "g4")], "g5", to=T.INT32)], "g6", to=T.FLOAT)], "g7", to=T.INT64)
    to("g7", "m1")
    to("g3", "m1", "g1")
    f.add("Constant", [], "one", value_int=1)
    f.add("Constant", [], "ends", value_ints=[0, -1])
    f.add("Constant", [], "numbers", value_floats=weight(6))
    f.add("Constant", [], "number", value_float=0.75)
    f.add("Constant", [], "column", value=const("", weight(1, 6)))
    f.add("Constant", [], "named", value=const("in.model", weight(6)))
    to("ends", f.add("Unsqueeze", [f.add("Gather", ["s", "one"], "g8"), "i0"], "g9"))
    f.out("Add", [f.add("Mul", ["x", "numbers"], "m0"), "number"])
    f.out("Sub", [f.add("Div", ["x", "column"], "m1_"), "named"])
    f.out("Reshape", ["z", f.add("Shape", ["constant"], "of")])
    f.out("Reshape", ["z", "fixed"], allowzero=1)
    f.save("sizes", [port("x", ["B", "T", 6]), port("z", [4, 9])], {"x": x_of(2, 3, 6), "z": x_of(4, 9)})


def moves():
    """Moves of all kinds; as before set 13, too, with attributes; and as from set 18 on."""
    dims = [(0, 2, -1, 3), (-1, 3), (0, 0, 6), (-1,), (0, 0, -1, 2), (0, -1, 6, 1)]
    f = Forms(14, **SIZES, ends=i64(0, -1), low=i64(0, 0), high=i64(9, -1), steps=i64(1, 1), last=i64(-1), under=i64(-99),
              **{f"to{i}": i64(*d) for i, d in enumerate(dims)})
    for i in range(len(dims)):
        f.out("Reshape", ["x", f"to{i}"])
    for axis in (0, 1, 2, 3, -1):
        f.out("Flatten", ["x"], axis=axis)
    f.out("Flatten", [f.add("Transpose", ["x"], "turned", perm=[1, 0, 2])], axis=2)
    f.out("Transpose", ["x"])
    f.add("Unsqueeze", ["x", "ends"], "wide")
    f.out("Squeeze", ["wide"])
    f.out("Squeeze", ["wide", "i0"])
    f.out("Unsqueeze", ["x", "none"])
    f.out("Slice", ["x", "i1", "far", "i2"])
    f.out("Slice", ["z", "low", "high", "", "steps"])
    f.out("Slice", ["z", "low", "high"])
    f.out("Slice", ["x", "under", "m1", "last", "i1"])
    f.out("Slice", ["x", "none", "none", "", ""])
    f.out("Split", ["x"], 2, axis=-1)
    f.out("Concat", ["x", "x", f.outs[-1]], axis=2)
    f.out("Concat", ["z"], axis=0)
    f.save("moves", [port("x", ["B", "T", 6]), port("z", [4, 9])], {"x": x_of(2, 3, 6), "z": x_of(4, 9)})
    f = Forms(15)
    f.out("Squeeze", [f.add("Unsqueeze", ["x"], "wide", axes=[0, -1])], axes=[0])
    f.out("Squeeze", ["wide"])
    f.out("Split", ["x"], 2, axis=1, split=[2, 7])
    f.out("Softmax", ["x"])
    f.save("moves-11", [port("x", [4, 9])], {"x": x_of(4, 9)}, 11)
    f = Forms(16)
    f.out("Split", ["x"], 5, axis=1, num_outputs=5)
    f.save("moves-18", [port("x", ["B", 9])], {"x": x_of(4, 9)}, 18)


def products():
    """Gemm in all of its forms, and what norms and bounds may be."""
    f = Forms(17, w=weight(6, 5), w2=weight(5, 6), row=weight(1, 5), five=weight(5), one=weight(1), number=np.float32(0.3), all=weight(4, 5),
              column=weight(4, 1), square=weight(4), low=np.float32(-np.inf), high=np.float32(np.inf),
              least=np.float32(-3.4028235e38), most=np.float32(3.4028235e38), norm=weight(6) + 1,
              root=np.float32(2 ** 0.5), unit=np.float32(1), half=np.float32(0.5))
    for c, attrs in (("five", {}), ("row", {}), ("one", {}), ("number", {}), ("all", {}), ("column", {}), ("", {}), ("", {"alpha": 0.5}),
                     ("five", {"alpha": 0.5}), ("all", {"beta": 2.0}), ("number", {"alpha": -1.5, "beta": 0.25}), ("column", {"alpha": 0.0})):
        f.out("Gemm", ["x", "w", c] if c else ["x", "w"], **attrs)
    f.out("Gemm", ["t", "w2"], transA=1, transB=1)
    f.out("Gemm", ["x", "w", f.add("Relu", [f.outs[0]], "more")], beta=0.5)
    f.out("Gemm", ["x", "w", "more"])
    f.out("Gemm", ["x", "x", "square"], transB=1)
    f.out("MatMul", ["x", f.add("Transpose", ["w2"], "turned")])
    f.out("MatMul", ["x", f.add("Transpose", ["x"], "tx")])
    f.out("Clip", ["x", "low", "high"])
    f.out("Clip", ["x", "least", "most"])
    f.out("Clip", ["x", "", "number"])
    f.out("PRelu", ["x", "one"])
    f.out("Max", ["x"])
    f.out("Sum", ["norm", "x", "one"])
    f.out("LayerNormalization", ["x", "norm"], axis=1, epsilon=0.5)
    f.out("SimplifiedLayerNormalization", ["x", "norm"], axis=-1, epsilon=1e-6)
    f.add("Add", [f.add("Erf", [f.add("Div", ["x", "root"], "e0")], "e1"), "unit"], "e2")
    f.out("Mul", ["x", f.add("Mul", ["e2", "half"], "e3")])
    f.out("Add", ["x", f.add("Cast", ["norm"], "same", to=T.FLOAT)])
    f.save("products", [port("x", [4, 6]), port("t", [6, "B"])], {"x": x_of(4, 6), "t": x_of(6, 3)})


def attention():
    """Products of several matrices: the heads of an attention, and how their leading sizes meet."""
    f = Forms(18, wq=weight(12, 12), wk=weight(12, 12), wv=weight(12, 12), wo=weight(12, 12), heads=i64(0, 3, 4), flat=i64(0, 12),
              heads4=i64(1, -1, 3, 4), flat3=i64(0, 0, 12), root=np.float32(2),
              scale=np.float32(0.5), three=weight(3, 4, 5), single=weight(1, 1, 4, 5), one=weight(1, 4, 5), pair=weight(2, 1, 4, 5))

    def head(x, w, name, shape, *perms):
        f.add("Reshape", [f.add("MatMul", [x, w], name + "0"), shape], name + "1")
        for i, perm in enumerate(perms):
            f.add("Transpose", [name + str(i + 1)], name + (str(i + 2) if i + 1 < len(perms) else ""), perm=perm)
        return name

    q, k, v = (head("x", "w" + n, n, "heads", *perms) for n, perms in (("q", [[1, 0, 2]]), ("k", [[1, 2, 0]]), ("v", [[1, 0, 2]])))
    f.add("Mul", [f.add("MatMul", [q, k], "products"), "scale"], "scores")
    f.add("Transpose", [f.add("MatMul", [f.add("Softmax", ["scores"], "shares", axis=-1), v], "each")], "side", perm=[1, 0, 2])
    f.out("MatMul", [f.add("Reshape", ["side", "flat"], "all"), "wo"])
    f.out("Relu", ["scores"])
    # with a batch of one, a mask, and keys that are turned in two steps
    q, k, v = (head("b", "w" + n, "b" + n, "heads4", *perms)
               for n, perms in (("q", [[0, 2, 1, 3]]), ("k", [[0, 2, 1, 3], [0, 1, 3, 2]]), ("v", [[0, 2, 1, 3]])))
    f.add("Add", [f.add("Div", [f.add("MatMul", [q, k], "bproducts"), "root"], "bscores"), "mask"], "masked")
    f.add("Transpose", [f.add("MatMul", [f.add("Softmax", ["masked"], "bshares", axis=-1), v], "beach")], "bside", perm=[0, 2, 1, 3])
    f.out("Add", ["b", f.add("MatMul", [f.add("Reshape", ["bside", "flat3"], "ball"), "wo"], "bo")])
    f.out("Sub", [f.add("MatMul", [q, k], "again"), f.add("Sigmoid", ["bproducts"], "bs")])
    for left in ("z", "m"):
        f.out("MatMul", [left, "one"])
    f.out("MatMul", ["z", "single"])
    for left in ("m", "h", "r"):
        f.out("MatMul", [left, "three"])
        f.out("MatMul", [left, "pair"])
    f.out("MatMul", ["h", f.add("Transpose", ["h"], "turned", perm=[0, 1, 3, 2])])
    f.out("Relu", [f.add("MatMul", ["r", f.add("Transpose", ["r"], "around", perm=[0, 2, 1])], "more")])
    f.save("attention", [port("x", ["B", 12]), port("b", [1, "S", 12]), port("mask", [1, 1, "S", "S"]), port("z", ["B", 6, 4]), port("m", [6, 4]), port("h", [2, 3, 6, 4]), port("r", [3, 6, 4])],
           {"x": x_of(5, 12), "b": x_of(1, 7, 12), "mask": x_of(1, 1, 7, 7), "z": x_of(5, 6, 4), "m": x_of(6, 4), "h": x_of(2, 3, 6, 4), "r": x_of(3, 6, 4)})


def codes():
    """Quantised values that are moved, joined, multiplied with each other, and read with another zero point."""
    whole = lambda low, high, *shape: rng.integers(low, high, shape)
    seed(18)
    f = Forms(18, s=np.float32(0.05), z=np.uint8(120), s2=np.float32(0.02), z2=np.uint8(7), w=whole(-128, 128, 6, 5).astype(np.int8),
              w3=whole(-128, 128, 3, 5).astype(np.int8), ws=np.float32(0.01), wv=np.abs(weight(5, scale=0.01)) + np.float32(0.001),
              wz=np.int8(4), wzv=whole(-9, 9, 5).astype(np.int8), to=i64(0, 2, 3), b32=whole(-999, 999, 5).astype(np.int32),
              b1=whole(-99, 99, 1).astype(np.int32), b8=whole(-99, 99, 5).astype(np.int8), bs=np.float32(np.float32(0.05) * np.float32(0.01)),
              big=whole(16777200, 16777216, 5).astype(np.int32), bf=weight(5), bone=weight(1), i0=i64(0), i1=i64(1),
              wt=whole(-128, 128, 5, 6).astype(np.int8), zz=np.zeros(5, np.int8), zy=np.uint8(128), c32=whole(-99, 99, 1, 5).astype(np.int32),
              six=weight(6, 5), sixq=np.int8(3), k=whole(-99, 99, 6).astype(np.int8))
    f.add("QuantizeLinear", ["x", "s", "z"], "q")
    f.add("DequantizeLinear", ["q", "s", "z"], "d")
    f.add("DequantizeLinear", ["w", "ws", "wz"], "wd")
    f.add("DequantizeLinear", ["w3", "ws"], "w3d")
    f.add("DequantizeLinear", ["w", "wv", "wzv"], "wvd", axis=1)
    f.out("MatMul", [f.add("Reshape", ["d", "to"], "d3"), "w3d"])
    f.out("MatMul", [f.add("DequantizeLinear", [f.add("Reshape", ["q", "to"], "q3"), "s", "z"], "dq3"), "w3d"])
    f.out("MatMul", [f.add("DequantizeLinear", [f.add("Reshape", ["u", "to"], "u3"), "s", "z"], "du3"), "w3d"])
    f.out("DequantizeLinear", [f.add("Transpose", ["u"], "ut"), "s", "z"])
    f.out("DequantizeLinear", [f.add("Concat", ["q", "q"], "qq", axis=1), "s", "z"])
    f.out("DequantizeLinear", [f.add("Slice", ["q", "i0", "i1", "i1"], "qs"), "s", "z"])
    f.out("DequantizeLinear", ["q", "s2", "z2"])
    f.out("DequantizeLinear", [f.add("QuantizeLinear", ["x", "s"], "q0"), "s"])
    f.out("DequantizeLinear", [f.add("QuantizeLinear", ["x", "s", ""], "q1"), "s", ""])
    f.out("MatMul", ["d", f.add("Transpose", ["d"], "dt")])
    f.out("Gemm", ["d", "d"], transB=1)
    f.out("Gemm", ["d", "dt", "bone"])
    f.out("MatMul", ["x", "dt"])
    f.out("MatMul", ["d", f.add("Transpose", ["x"], "xt")])
    f.out("MatMul", ["d", "wvd"])
    f.out("MatMul", ["x", "wvd"])
    f.out("MatMul", ["d", f.add("Identity", ["wd"], "wi")])
    for b, scale in (("b32", "bs"), ("b32", "s"), ("b1", "bs"), ("b8", "bs"), ("big", "bs")):
        f.out("Gemm", ["d", "wd", f.add("DequantizeLinear", [b, scale], f"bias{len(f.outs)}")])
    for b in ("bf", "bone"):
        f.out("Gemm", ["d", "wd", b])
        f.out("Gemm", ["x", "wd", b])
    f.out("MatMul", ["x", f.add("DequantizeLinear", [f.add("QuantizeLinear", ["six", "ws", "sixq"], "sq"), "ws", "sixq"], "sd")])
    f.out("Cast", [f.add("MatMulInteger", ["u", "w", "z", "wzv"], "sums")], to=T.FLOAT)
    f.out("Mul", [f.add("Cast", [f.add("Relu", [f.add("MatMulInteger", ["u", "w"], "sums2")], "rs")], "cs", to=T.FLOAT), "s"])
    f.out("DequantizeLinear", [f.add("QuantizeLinear", [f.add("Relu", [f.add("MatMul", ["d", "wd"], "h0")], "h1"), "s", "z"], "h2"), "s", "z"])
    f.out("Relu", [f.add("MatMul", ["d", "wvd"], "h3")])
    f.out("Gemm", ["d", "wd", f.add("DequantizeLinear", ["c32", "bs"], "bias2")])
    f.out("Reshape", [f.outs[6], "to"])
    f.out("Mul", [f.add("Add", ["x", f.add("DequantizeLinear", ["k", "s"], "kd")], "xk"), "kd"])
    f.add("DequantizeLinear", ["u", "s", "z"], "du")
    f.out("MatMul", [f.add("Transpose", ["du"], "dut"), "du"])
    f.add("DequantizeLinear", ["v", "s", "z"], "dv")
    f.out("MatMul", ["dv", f.add("Transpose", ["dv"], "dvt")])
    gemm = lambda ins, **attrs: f.out("QGemm", ins, domain="com.microsoft", **attrs)
    kinds = [(f"y{len(f.outs) + i}", T.UINT8) for i in (0, 1, 2)]
    gemm(["u", "s", "z", "w", "ws", "wz", "b32", "s2", "zy"])
    gemm(["u", "s", "z", "w", "ws", "wz", "", "s2", "zy"])
    gemm(["u", "s", "z", "wt", "wv", "zz", "c32", "s2", "zy"], transB=1)
    gemm(["u", "s", "z", "w", "ws", "wz", "b32"])
    gemm(["u", "s", "z", "w", "ws", "wz"])
    f.save("codes", [port("x", [4, 6]), port("u", ["B", 6], T.UINT8), port("v", [2, 300], T.UINT8)],
           {"x": x_of(4, 6), "u": whole(0, 256, 3, 6).astype(np.uint8), "v": whole(0, 256, 2, 300).astype(np.uint8)},
           kinds=kinds, plain=True)
    f = Forms(19, s=np.float32(0.05), z=np.uint8(120), w=whole(-128, 128, 6, 5).astype(np.int8), ws=np.abs(weight(3, 5, scale=0.02)) + np.float32(0.001),
              s16=np.float32(0.001), z16=np.int16(-300))
    f.add("DequantizeLinear", [f.add("QuantizeLinear", ["x", "s", "z"], "q"), "s", "z"], "d")
    f.out("MatMul", ["d", f.add("DequantizeLinear", ["w", "ws"], "wd", axis=0, block_size=2)])
    f.out("DequantizeLinear", [f.add("QuantizeLinear", ["x", "s16", "z16"], "q16"), "s16", "z16"])
    f.save("codes-21", [port("x", ["B", 6])], {"x": x_of(4, 6)}, 21, plain=True)


STEPS = [floats, lambda: save("block", block(), {"x": x_of(6, 16)}), quantised_models, dynamic, stored, half,
         sizes, moves, products, attention, codes]


def main():
    """All models; those that functions named in the arguments make: these seed their numbers themselves."""
    for step in STEPS:
        if not sys.argv[1:] or step.__name__ in sys.argv[1:]:
            step()


if __name__ == "__main__":
    main()
    sys.exit(0)
