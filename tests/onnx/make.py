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
    other = run(m, feed, not plain)
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


def main():
    floats()
    save("block", block(), {"x": x_of(6, 16)})
    quantised_models()
    dynamic()
    stored()
    half()


if __name__ == "__main__":
    main()
    sys.exit(0)
