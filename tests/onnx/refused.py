"""refused.py: models that are malformed, and those that the language cannot say, each with a pattern of its message.

They are messages of protocol buffers, written here, so that they may be anything."""
import struct

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
    ("a list of integers that ends early", model(graph([node("Transpose", ["x"], ["y"], "n", None, field(1, "perm") + field(8, b"\xff"))])),
     "ends inside of a number"),
    ("a million nodes", model(graph([b""] * ((1 << 20) + 1))), "more than 1048576 nodes"),
    ("an input of seven dimensions", model(graph([RELU], ins=[port("x", [1] * 7)])), "more than 6 dimensions"),
    ("an output whose name is no UTF-8", model(graph([RELU], outs=[port(b"\xff", [4])])), "no UTF-8"),
    ("a name of 4096 bytes", model(graph([node("Relu", ["x"], ["y" * 4096])])), "longer than 4095"),
    ("values without a type", model(graph(MATMUL, [field(8, "w") + field(4, 1.0)])), "elements of unknown type 0"),
    ("packed values of 16 bytes each", model(graph(MATMUL, [tensor("w", [1], 15, b"-", field(10, bytes(16)))])), "values of a tensor of complex128"),
    ("dimensions that end early", model(graph(MATMUL, [field(1, b"\xff") + field(2, 1) + field(8, "w")])), "ends inside of a number"),
    ("dimensions that no size says", model(graph(MATMUL, [tensor("w", [1 << 20, 1 << 20, 2], 1, b"")])), "size overflows"),
    ("external data by a long name", model(graph(MATMUL, [external("a" * 512)])), "too long or holds NUL"),
    ("external data by a name with NUL", model(graph(MATMUL, [external("a\0b")])), "too long or holds NUL"),
    ("external data by no name", model(graph(MATMUL, [external("")])), "not beside the model"),
    *[(f"external data at {place}", model(graph(MATMUL, [external(place)])), "not beside the model") for place in ("..", "a/..", "a/../b")],
    *[(f"external data at {place}", model(graph(MATMUL, [external(place)])), f"/{place}: No such file") for place in ("..b", "a..b", "a/..b")],
    ("an offset that ends in letters", model(graph(MATMUL, [external("malformed.onnx", ("offset", "12x"))])), "'12x' is no number of bytes"),
    ("a length of 2^64", model(graph(MATMUL, [external("malformed.onnx", ("length", "18446744073709551616"))])), "is no number of bytes"),
    ("a length beyond its file", model(graph(MATMUL, [external("malformed.onnx", ("length", "9000000"))])), "9000000 bytes from 0 on"),
    ("external data that are too few", model(graph(MATMUL, [external("data", ("offset", "4"))])), "64 bytes from 4 on, but 'data' has 64"),
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
    ("an input without a shape", model(graph([RELU], ins=[field(1, "x")])), "no name of its own or no shape"),
    ("an input of doubles", model(graph([RELU], ins=[port("x", [4], 11)])), "is of double"),
    ("too many operands", model(graph([node("Relu", ["x", "x"], ["y"])])), "2 operands"),
    ("shapes that do not multiply", model(graph([node("MatMul", ["x", "w"], ["y"])], [tensor("w", [5, 4])])), "by .5, 4"),
    ("shapes that do not add", model(graph([node("Add", ["x", "w"], ["y"])], [tensor("w", [3])])), "its operands are"),
    ("as many matrices as a session says", model(graph([node("MatMul", ["x", "x"], ["y"])], ins=[port("x", ["B", 4, 4])])),
     "their number must be fixed"),
    ("more matrices than a text should have products", model(graph([node("MatMul", ["x", "x"], ["y"])], ins=[port("x", [33, 32, 1, 1])])),
     "at most 1024"),
    ("more matrices in all than a text should have", model(graph(
        [node("MatMul", ["x", "x"], [f"a{i}"], f"n{i}") for i in range(128)] + [node("MatMul", ["x", "x"], ["y"])], ins=[port("x", [32, 32, 1, 1])])),
     "more than 131072 matrices"),
    ("no matrices", model(graph([node("MatMul", ["k", "w"], ["a"]), node("MatMul", ["x", "a"], ["y"])], [tensor("k", [0, 4, 4]), tensor("w", [1, 4, 4])],
                                ins=[port("x", [2, 4, 4])])), "nothing is multiplied"),
    ("matrices of floats by integers", model(graph([node("MatMul", ["x", "w"], ["y"])], [tensor("w", [2, 4, 5], 7)], ins=[port("x", [2, 4, 4])])),
     "where the language has products"),
    ("matrices by another number of them", model(graph([node("MatMul", ["x", "w"], ["y"])], [tensor("w", [3, 4, 4])], ins=[port("x", [2, 4, 4])])),
     "sizes differ"),
    ("matrices of other sizes", model(graph([node("MatMul", ["x", "w"], ["y"])], [tensor("w", [2, 5, 4])], ins=[port("x", [2, 4, 4])])),
     "sizes differ"),
    ("matrices without columns", model(graph([node("MatMul", ["x", "w"], ["y"])], [tensor("w", [2, 4, 0])], ins=[port("x", [2, 4, 4])])),
     "is empty"),
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

X6 = [port("x", ["B", 6])]
X3 = [port("x", ["A", "B", "C"])]
CODES = [port("x", ["B", 4], 3)]
WIDE = [port("x", [1 << 20, 1 << 20])]
S = node("Shape", ["x"], ["s"])
QX = [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["d"])]
WD = node("DequantizeLinear", ["w", "s", "k"], ["v"], "dw")
DYNAMIC = node("DynamicQuantizeLinear", ["x"], ["q", "t", "u"])
SUMS = [DYNAMIC, node("MatMulInteger", ["q", "w", "u"], ["i"]), node("Cast", ["i"], ["j"], "n", None, attr("to", 1))]
W8 = tensor("w", [4, 4], 3, bytes(range(16)))


def ints(name, *values):
    return tensor(name, [len(values)], 7, struct.pack(f"<{len(values)}q", *values))


def reals(name, dims, *values):
    return tensor(name, dims, 1, struct.pack(f"<{len(values)}f", *values))


def refused(what, op, ins, pattern, *attrs, tensors=(), ports=None, opset=17, outs=("y",), before=(), domain=None):
    nodes = [*before, node(op, ["x", *ins], outs, "n", domain, *attrs)]
    return what, model(graph(nodes, tensors, ports), opset), pattern


NAN, INF = float("nan"), float("inf")
SUM = node("Add", ["x", "k"], ["y"])
REFUSED += [
    # inputs that nothing reads, and constants that no text can be compiled with
    ("an input that no node reads", model(graph([RELU], ins=[port("x", ["B", 4]), port("u", ["B", 4])])), "computed from input 'u'"),
    ("an input that no output needs", model(graph([RELU, node("Relu", ["u"], ["z"])], ins=[port("x", ["B", 4]), port("u", [4])])), "from input 'u'"),
    ("an input whose shape alone is read", model(graph([node("Shape", ["u"], ["s"]), node("Reshape", ["x", "s"], ["y"])], ins=[port("x", [2, 4]), port("u", [4, 2])],
                                                       outs=[port("y", [4, 2])])), "computed from input 'u'"),
    ("an output of constants alone", model(graph([node("MatMul", ["k", "w"], ["y"])], [reals("k", [1, 4], 1, 2, 3, 4), W])), "computed from input 'x'|fold them first"),
    *[(f"a constant with {value}", model(graph([SUM], [reals("k", [4], 1, 2, value, 4)])), f"element 2 of the constant 'k' is {value}")
      for value in (NAN, INF, -INF)],
    ("a constant of halves with an infinity", model(graph([SUM], [tensor("k", [4], 10, struct.pack("<4e", 1, INF, 0, 0))],
                                                          [port("x", ["B", 4], 10)], [port("y", ["B", 4], 10)])), "element 1 of the constant 'k' is inf"),
    ("an infinite number", model(graph([SUM], [reals("k", [], INF)])), "element 0 of the constant 'k' is inf"),
    ("a weight with NaN", model(graph(MATMUL, [reals("w", [4, 4], *range(15), NAN)])), "element 15 of the constant 'w' is nan"),
    # what a node may be
    refused("65 operands", "Sum", ["x"] * 64, "65 operands and 1 results"),
    refused("65 results", "Split", [], "1 operands and 65 results", outs=[f"y{i}" for i in range(65)]),
    refused("no results", "Relu", [], "1 operands and 0 results", outs=[]),
    ("two inputs of a name", model(graph([RELU], ins=[port("x", [4]), port("x", [4])])), "input 1 'x' has no name"),
    ("an input without a name", model(graph([RELU], ins=[port("x", [4]), port("", [4])])), "input 1 '' has no name"),
    ("an input that is a constant's namesake by its place", model(graph([RELU], [tensor("", [4])])), "constants are called ''"),
    ("two outputs of a name", model(graph([RELU], outs=[port("y", [4]), port("y", [4])])), "two outputs are called 'y'"),
    ("an output that is a constant", model(graph([RELU], [tensor("k", [4])], outs=[port("k", [4])])), "output 'k' is a constant"),
    ("an output that is a number", model(graph([RELU], [q("k", 1, 1)], outs=[port("k", [])])), "output 'k' is a constant"),
    ("an output that is a list of sizes", model(graph([S], outs=[port("s", [2], 7)])), "'s' is a list of sizes"),
    ("an output of a node that is refused", model(graph([node("Conv", ["x"], ["y"])])), "Conv"),
    # numbers that the language cannot say
    refused("an infinite slope", "LeakyRelu", [], "computes with inf", attr("alpha", INF)),
    refused("a slope of NaN", "HardSigmoid", [], "computes with nan", attr("alpha", NAN)),
    refused("a bound of NaN", "Clip", ["k"], "computes with nan", tensors=[reals("k", [], NAN)]),
    refused("a bound of doubles beyond f32", "Clip", ["k"], "computes with 1e.300", tensors=[tensor("k", [], 11, struct.pack("<d", 1e300))]),
    refused("a bound that is a string", "Clip", ["k"], "'k' is no known number", tensors=[tensor("k", [], 8, b"-", field(6, "a"))]),
    refused("a bound that is complex", "Clip", ["k"], "'k' is no known number", tensors=[tensor("k", [], 15, bytes(16))]),
    refused("a bound that is computed", "Clip", ["x"], "'x' is no known number"),
    refused("an epsilon below 0", "LayerNormalization", ["k"], "an epsilon of -1", attr("epsilon", -1.0), tensors=[tensor("k", [4])]),
    refused("a factor that overflows", "QLinearMatMul", ["s", "k", "w", "s", "k", "e", "k"], "computes with inf", ports=CODES,
        tensors=[q("s", 1e30, 1), q("k", 1, 3), W8, q("e", 1e-30, 1)]),
    # operands
    refused("constants alone", "Relu", [], "constants: fold them first", before=[node("Add", ["k", "k"], ["a"])], tensors=[tensor("k", [4])]),
    refused("an empty constant", "Add", ["k"], "'k' is empty", tensors=[tensor("k", [0])]),
    refused("strings", "Add", ["k"], "'k' is empty|'k' holds strings", tensors=[tensor("k", [4], 8, b"-", field(6, "a"))]),
    refused("integers to floats", "Add", ["k"], "'k' is of int64", tensors=[ints("k", 1, 2, 3, 4)]),
    refused("integers of 16 bits to floats", "Add", ["k"], "'k' is of int16", tensors=[tensor("k", [], 5, b"\1\0")]),
    refused("a number of more dimensions to a sum", "Add", ["k"], "one element in 2 dimensions", tensors=[tensor("k", [1, 1])], ports=[port("x", [4])]),
    refused("a number of more dimensions to a maximum", "Max", ["k"], "one element in 2 dim", tensors=[tensor("k", [1, 1])], ports=[port("x", [4])]),
    refused("a number of more dimensions as a slope", "PRelu", ["k"], "one element in 2 dim", tensors=[tensor("k", [1, 1])], ports=[port("x", [4])]),
    refused("a slope that does not fit", "PRelu", ["k"], "operands are .B, 4. and .3.", tensors=[tensor("k", [3])]),
    refused("a slope that is a list of sizes", "PRelu", ["s"], "'s' is a list of sizes", before=[S]),
    refused("a maximum of shapes that do not fit", "Max", ["k"], "operands are .B, 4. and .3.", tensors=[tensor("k", [3])]),
    ("sizes that differ by a symbol", model(graph(
        [node("Flatten", ["p"], ["a"], "n", None, attr("axis", 2)), node("Flatten", ["r"], ["b"], "n", None, attr("axis", 2)), node("Add", ["a", "b"], ["y"])],
        ins=[port("p", ["A", "B", 4]), port("r", ["A", "C", 4])])), r"operands are \[A\*B, 4\] and \[A\*C, 4\]"),
    # codes are no floats: int8's -128 has no negative, and codes here lack their zero point
    *[refused(f"{op} of codes", op, [], "operand is of int8", ports=CODES) for op in
      ("Abs", "Clip", "HardSigmoid", "HardSwish", "LeakyRelu", "Neg", "Relu", "Sigmoid", "Softmax", "Tanh")],
    refused("Gelu of codes", "Gelu", [], "operand is of int8", ports=CODES, opset=20),
    refused("PRelu of codes", "PRelu", ["k"], "operand is of int8", ports=CODES, tensors=[tensor("k", [4])]),
    refused("a norm of codes", "LayerNormalization", ["k"], "operand is of int8", ports=CODES, tensors=[tensor("k", [4])]),
    refused("another norm of codes", "SimplifiedLayerNormalization", ["k"], "operand is of int8", ports=CODES, tensors=[tensor("k", [4])]),
    refused("codes to floats", "Add", ["x"], "operands are of int8", ports=CODES),
    refused("floats to codes", "Add", ["c"], "operands are of float", ports=[*X6, port("c", [6], 3)]),
    *[refused(f"{op} of sums and floats {'turned' if ins[0] == 'z' else ''}", "Relu", [], "operands are", tensors=[W8], ports=[*CODES, port("z", [4])],
              before=[node("MatMulInteger", ["x", "w"], ["i"]), node(op, ins, ["a"])]) for op in ("Add", "Max") for ins in (["i", "z"], ["z", "i"])],
    refused("numbers to sums of integers", "Relu", [], "'k' is of int32", ports=CODES, tensors=[W8, tensor("k", [], 6, bytes(4))],
        before=[node("MatMulInteger", ["x", "w"], ["i"]), node("Add", ["i", "k"], ["a"])]),
    # rows
    refused("softmax of a number", "Softmax", [], "single number", ports=[port("x", [])]),
    refused("softmax over the last of three axes before set 13", "Softmax", [], "along axis 1 of 3", ports=X3, opset=11),
    refused("softmax of a list of sizes", "Relu", [], "'s' is a list", before=[S, node("Softmax", ["s"], ["a"])]),
    refused("a norm of a number", "LayerNormalization", ["k"], "single number", ports=[port("x", [])], tensors=[tensor("k", [4])]),
    refused("a norm of a list of sizes", "Relu", [], "'s' is a list", before=[S, node("LayerNormalization", ["s", "k"], ["a"])], tensors=[tensor("k", [4])]),
    refused("a norm over two axes", "LayerNormalization", ["k"], "more than the last axis", attr("axis", 0), tensors=[tensor("k", [4])]),
    refused("a norm by one number", "LayerNormalization", ["k"], "'k' is not a constant of 4", tensors=[tensor("k", [1])]),
    refused("a norm of rows of one", "LayerNormalization", ["k"], "'k' is not a constant of 1", tensors=[tensor("k", [1])], ports=[port("x", [4, 1])]),
    refused("a norm by a bias of other length", "LayerNormalization", ["k", "b"], "'b' is not a constant of 4", tensors=[tensor("k", [4]), tensor("b", [3])]),
    refused("a norm by a bias of integers", "LayerNormalization", ["k", "b"], "'b' is of int64", tensors=[tensor("k", [4]), ints("b", 1, 2, 3, 4)]),
    refused("a norm by integers", "LayerNormalization", ["b"], "'b' is of int64", tensors=[ints("b", 1, 2, 3, 4)]),
    *[refused(f"an rms norm {what}", "SimplifiedLayerNormalization", ["k"], pattern, *attrs, tensors=[t], ports=[port("x", dims)])
      for what, pattern, attrs, t, dims in (
          ("of a number", "single number", (), tensor("k", [4]), []), ("over two axes", "more than the last", (attr("axis", 0),), tensor("k", [4]), [2, 4]),
          ("by a number", "'k' is not a constant", (), tensor("k", [1]), [2, 4]), ("by integers", "'k' is of int64", (), ints("k", 1, 2, 3, 4), [2, 4]))],
    refused("an rms norm of a list of sizes", "Relu", [], "'s' is a list", before=[S, node("SimplifiedLayerNormalization", ["s", "k"], ["a"])],
        tensors=[tensor("k", [4])]),
    refused("a gelu of another approximation", "Gelu", [], "neither none nor tanh", attr("approximate", b"erf"), opset=20),
    refused("a gelu of a list of sizes", "Relu", [], "'s' is a list", before=[S, node("Gelu", ["s"], ["a"])], opset=20),
    # lists of sizes
    refused("a shape with a list of names", "Reshape", ["k"], "'k' is not a list of known integers", tensors=[tensor("k", [1], 8, b"-", field(6, "a"))]),
    refused("a shape that is computed", "Reshape", ["x"], "'x' is not a list of known integers"),
    refused("a shape of floats", "Reshape", ["k"], "'k' is not a list of known integers", tensors=[tensor("k", [2])]),
    refused("a shape of seven", "Reshape", ["k"], "7 numbers, more than", tensors=[ints("k", *[1] * 7)]),
    refused("axes of seven", "Squeeze", [], "'axes' has 7 numbers", attr("axes", [0] * 7), opset=11),
    *[refused(f"a size picked {what}", "Reshape", ["g"], pattern, before=[S, node("Gather", ["s", "k"], ["g"], "n", None, *attrs)], tensors=[t])
      for what, pattern, t, attrs in (
          ("beyond the list", "axis 2 of a tensor of 2", ints("k", 2), ()), ("before the list", "axis -3 of a tensor of 2", ints("k", -3), ()),
          ("along axis 1", "axis 1 of a tensor of 1", ints("k", 0), (attr("axis", 1),)),
          ("by a matrix", "a tensor of 2 dimensions", tensor("k", [1, 1], 7), ()), ("by floats", "'k' is not a list of known", tensor("k", [1]), ()))],
    refused("elements picked", "Gather", ["k"], "it picks from a tensor", tensors=[ints("k", 0)]),
    refused("a list of eight sizes", "Reshape", ["c"], "more than 6 sizes", before=[S, node("Concat", ["s", "s", "s", "s"], ["c"])]),
    refused("a list with floats", "Reshape", ["c"], "'k' is not a list of known", before=[S, node("Concat", ["s", "k"], ["c"])], tensors=[tensor("k", [1])]),
    refused("a list of sizes as names", "Reshape", ["c"], "sizes become float16", before=[S, node("Cast", ["s"], ["c"], "n", None, attr("to", 10))]),
    *[refused(f"a list of sizes squeezed {what}", "Reshape", ["c"], pattern, before=[S, node(op, ["s", *axes], ["c"])], tensors=[ints("k", number)])
      for what, pattern, op, number, axes in (
          ("whole", "list of 2 sizes", "Squeeze", 0, ["k"]), ("without axes", "list of 2 sizes", "Squeeze", 0, []),
          ("along axis 1", "list of 2 sizes", "Squeeze", 1, ["k"]))],
    refused("a list of sizes of two dimensions", "Reshape", ["c"], "list of 1 sizes", tensors=[ints("k", 0)],
        before=[node("Shape", ["x"], ["s"], "n", None, attr("end", 1)), node("Unsqueeze", ["s", "k"], ["c"])]),
    *[refused(f"a list of sizes cut {what}", "Reshape", ["c"], pattern, before=[S, node("Slice", ["s", *words], ["c"])],
          tensors=[ints("a", 0), ints("b", 1), ints("d", 2), ints("e", 0, 0), ints("f", 1, 1)])
      for what, pattern, words in (
          ("along axis 1", "axis 1 of", ["a", "b", "b"]), ("in steps of 2", "step of 2", ["a", "b", "a", "d"]), ("twice", "'s' is a list", ["e", "f"]))],
    # reshapes
    refused("a reshape to more than a size says", "Reshape", ["k"], r"\[1099511627776\]|holds more elements", tensors=[ints("k", -1)], ports=WIDE),
    refused("a flattening to more than a size says", "Flatten", [], "holds more elements", attr("axis", 2), ports=WIDE),
    refused("a flattening of three symbols", "Flatten", [], r"\[A, B, C\] holds more", attr("axis", 3), ports=X3),
    refused("a flattening of three symbols from axis 0", "Flatten", [], r"\[A, B, C\] holds more", attr("axis", 0), ports=X3),
    refused("a flattening beyond the axes", "Flatten", [], "axis 3 of 2", attr("axis", 3)),
    refused("a flattening before the axes", "Flatten", [], "axis -1 of 2", attr("axis", -3)),
    refused("a reshape of three symbols", "Reshape", ["k"], "sizes are more than", tensors=[ints("k", 0, 0, 0)], ports=X3),
    refused("a reshape of three symbols to one", "Reshape", ["k"], r"\[A, B, C\] holds more", tensors=[ints("k", -1)], ports=X3),
    refused("an axis added to three symbols", "Unsqueeze", ["k"], r"\[A, B, C\] holds more", tensors=[ints("k", 0)], ports=X3),
    refused("a reshape to a list beyond sizes", "Reshape", ["k"], "more than a size can say", tensors=[ints("k", 1 << 30, 1 << 30)]),
    refused("a reshape to numbers beyond sizes", "Reshape", ["k"], "more than a size can say", tensors=[ints("k", 1 << 62)]),
    refused("a 0 that copies nothing", "Reshape", ["k"], "0 at 2 copies no dimension", tensors=[ints("k", 0, 0, 0)]),
    refused("a 0 that stands for itself", "Reshape", ["k"], "a dimension of 0", attr("allowzero", 1), tensors=[ints("k", 0, 4)]),
    refused("two sizes to find", "Reshape", ["k"], "a dimension of -1", tensors=[ints("k", -1, -1)]),
    refused("a size below -1", "Reshape", ["k"], "a dimension of -2", tensors=[ints("k", 0, -2)]),
    refused("a size that does not divide", "Reshape", ["k"], "what -1 stands for", tensors=[ints("k", -1, 3)]),
    refused("a symbol that does not divide", "Reshape", ["c"], "what -1 stands for", tensors=[ints("k", -1)], ports=[port("z", ["T", 4]), port("x", [8, 4])],
        before=[node("Shape", ["z"], ["s"], "n", None, attr("end", 1)), node("Concat", ["s", "k"], ["c"])]),
    refused("two symbols that do not divide", "Reshape", ["c"], "what -1 stands for", tensors=[ints("k", -1)], ports=[port("z", ["T", "U"]), port("x", ["T", 4])],
        before=[node("Shape", ["z"], ["s"]), node("Concat", ["s", "k"], ["c"])]),
    refused("a constant reshaped", "Relu", [], "reshapes a constant", before=[node("Reshape", ["w", "k"], ["a"])], tensors=[W, ints("k", 2, 8)]),
    refused("strings reshaped", "Relu", [], "is empty|holds strings", before=[node("Reshape", ["w", "k"], ["a"])],
                      tensors=[tensor("w", [4], 8, b"-", field(6, "a")), ints("k", 4)]),
    refused("an axis squeezed that is not 1", "Squeeze", ["k"], "axis 1 of .B, 4. is not 1", tensors=[ints("k", 1)]),
    refused("an axis squeezed that is not there", "Squeeze", ["k"], "axis 2 of a tensor of 2", tensors=[ints("k", 2)]),
    refused("no axes squeezed", "Squeeze", ["k"], "it has no axes", tensors=[ints("k")]),
    refused("no axes added", "Unsqueeze", [], "it has no axes", opset=11),
    refused("an axis added twice", "Unsqueeze", ["k"], "axis 0 twice", tensors=[ints("k", 0, 0)]),
    refused("an axis added beyond", "Unsqueeze", ["k"], "axis 3 of a tensor of 3", tensors=[ints("k", 3)]),
    refused("five axes added to two", "Unsqueeze", ["k"], "7 dimensions, more than 6", tensors=[ints("k", 0, 1, 2, 3, 4)]),
    refused("a reshape to numbers that overflow", "Reshape", ["k"], "more than a size can say", tensors=[ints("k", 1 << 30, 1 << 62)]),
    # moves
    refused("too many axes turned", "Transpose", [], "perm has 3 numbers for 2", attr("perm", [0, 1, 2])),
    refused("an axis turned twice", "Transpose", [], "each axis once", attr("perm", [0, 0])),
    refused("an axis turned that is not there", "Transpose", [], "each axis once", attr("perm", [0, 2])),
    refused("an axis turned before the first", "Transpose", [], "each axis once", attr("perm", [0, -1])),
    refused("a constant of three dimensions turned", "Relu", [], "turns a constant of 3", before=[node("Transpose", ["k"], ["a"])], tensors=[tensor("k", [2, 2, 2])]),
    refused("an empty constant turned", "Relu", [], "'k' is empty", before=[node("Transpose", ["k"], ["a"])], tensors=[tensor("k", [2, 0, 2])]),
    refused("a list of sizes turned", "Reshape", ["a"], "'s' is a list", before=[S, node("Transpose", ["s"], ["a"])]),
    refused("joined ranks", "Concat", ["k"], "does not join", attr("axis", 1), tensors=[tensor("k", [4])]),
    refused("joined constants", "Concat", ["k"], "'k' is constant", attr("axis", 0), tensors=[tensor("k", [1, 4])], ports=[port("x", [2, 4])]),
    refused("joined along an axis that is not there", "Concat", ["x"], "axis 2 of a tensor of 2", attr("axis", 2)),
    refused("joined codes and floats", "Concat", ["z"], "different zero points", attr("axis", 0), ports=[port("x", [4]), port("z", [4], 3)]),
    refused("joined codes of two zero points", "Relu", [], "different zero points", tensors=[*U8, q("k", 4, 2)],
        before=[node("QuantizeLinear", ["x", "s", "z"], ["a"]), node("QuantizeLinear", ["x", "s", "k"], ["b"]), node("Concat", ["a", "b"], ["c"])]),
    *[refused(f"a split {what}", "Split", ["k"], pattern, tensors=[t], outs=["y", "z"], ports=[port("x", [4])]) for what, pattern, t in (
        ("into fewer elements", "parts are 3 of 4", ints("k", 1, 2)), ("into more elements", "part 1 of 4 elements does not fit", ints("k", 1, 4)),
        ("with an empty part", "part 0 of 0 elements", ints("k", 0, 4)), ("into three sizes", "3 sizes for 2 parts", ints("k", 1, 1, 2)),
        ("into floats", "'k' are no known integers", tensor("k", [2])), ("into names", "'k' are no known", tensor("k", [2], 8, b"-", field(6, "a"))))],
    refused("a split by what is computed", "Split", ["x"], "'x' are no known integers", outs=["y", "z"]),
    refused("a split by one size", "Split", [], "1 sizes for 2 parts", attr("split", [4]), outs=["y", "z"], opset=11),
    refused("a split in unequal parts", "Split", [], "4 elements in 3 equal parts", attr("axis", 1), outs=["y", "z", "a"]),
    refused("a split in more parts than elements", "Split", [], "part 2 of 0 elements", attr("axis", 1), outs=["y", "a", "b"], ports=[port("x", [4, 2])], opset=18),
    refused("a split along a symbol", "Split", [], "axis 0 of .B, 4. has no fixed size", outs=["y"]),
    refused("a split along an axis that is not there", "Split", [], "axis 2 of a tensor", attr("axis", 2), outs=["y", "z"]),
    refused("a constant split", "Relu", [], "cuts a constant", before=[node("Split", ["w"], ["a", "b"])], tensors=[W]),
    refused("strings split", "Relu", [], "is empty|holds strings", before=[node("Split", ["w"], ["a", "b"])], tensors=[tensor("w", [4], 8, b"-", field(6, "a"))]),
    *[refused(f"a cut {what}", "Slice", words, pattern, tensors=[ints("a", 1), ints("b", 3), ints("c", 9), ints("d", 0, 1), ints("e", 12), tensor("f", [1]),
                                                          ints("one", 1), ints("two", 2)])
      for what, pattern, words in (
          ("by floats", "'f' is not a list of known", ["f", "b"]), ("with two ends", "lists have 1, 2, 0 and 0", ["a", "d"]),
          ("along two axes", "lists have 1, 1, 2 and 0", ["a", "b", "d"]), ("in two steps", "lists have 1, 1, 1 and 2", ["a", "b", "one", "d"]),
          ("along axis 9", "axis 9 of a tensor", ["a", "b", "c"]), ("beyond the end", "4 .. 4 of axis 1, which has 4", ["c", "e", "one"]),
          ("backwards", "3 .. 1 of axis 1", ["b", "a", "one"]), ("along a symbol", "axis 0 of .B, 4. has no fixed size", ["a", "b"]))],
    refused("a cast of a constant", "Relu", [], "casts a constant", before=[node("Cast", ["k"], ["a"], "n", None, attr("to", 1))], tensors=[tensor("k", [4], 10)]),
    refused("a cast of a constant to f16", "Relu", [], "casts a constant", before=[node("Cast", ["w"], ["a"], "n", None, attr("to", 10))], tensors=[W]),
    refused("a cast of an empty constant", "Relu", [], "'k' is empty", before=[node("Cast", ["k"], ["a"], "n", None, attr("to", 1))], tensors=[tensor("k", [0], 10)]),
    refused("a cast of sums to f16", "Relu", [], "from int32 to float16", ports=CODES, tensors=[W8],
        before=[node("MatMulInteger", ["x", "w"], ["i"]), node("Cast", ["i"], ["a"], "n", None, attr("to", 10))]),
    refused("a cast of a constant of integers", "Relu", [], "from int32 to float", tensors=[tensor("k", [4], 6)],
        before=[node("Cast", ["k"], ["a"], "n", None, attr("to", 1))]),
    # constants
    *[refused(f"a constant {what}", "Add", ["k"], "not a tensor of numbers", before=[node("Constant", [], ["k"], "n", None, *attrs)]) for what, attrs in (
        ("of nothing", ()), ("of a sparse tensor", (field(1, "sparse_value") + field(20, 11),)), ("of a string", (attr("value_string", b"a"),)), ("of two values", (attr("value_int", 1), attr("value_float", 1.0))))],
    *[refused(f"a constant of no {what}", "Add", ["k"], "'k' is empty", before=[node("Constant", [], ["k"], "n", None, field(1, "value_" + what) + field(20, kind))])
      for what, kind in (("floats", 6), ("ints", 7))],
    # products
    refused("a weight of no columns", "MatMul", ["k"], "'k' is empty", tensors=[tensor("k", [4, 0])]),
    refused("a product by a vector", "MatMul", ["k"], "where the language has products", tensors=[tensor("k", [4])]),
    refused("a product of a number", "MatMul", ["w"], "where the language has products", tensors=[W], ports=[port("x", [])]),
    refused("a weight of doubles", "MatMul", ["k"], "'k' is of double", tensors=[tensor("k", [4, 4], 11)]),
    refused("a product of constants", "Relu", [], "both operands are constants", before=[node("MatMul", ["w", "w"], ["a"])], tensors=[W]),
    refused("a product by a list of sizes", "Relu", [], "'s' is a list|products", before=[S, node("MatMul", ["w", "s"], ["a"])], tensors=[W]),
    *[refused(f"a bias {what}", "Gemm", ["w", "k"], pattern, *attrs, tensors=[W, t]) for attrs in ((), (attr("beta", 2.0),)) for what, pattern, t in (
        ("of three", "a bias of .3. for results of .B, 4.", tensor("k", [3])), ("of four rows", "a bias of .4, 4.", tensor("k", [4, 4])),
        ("of three dimensions", "a bias of .1, 1, 4.", tensor("k", [1, 1, 4])))],
    refused("a bias of integers", "Gemm", ["w", "k"], "'k' is of int64", tensors=[W, ints("k", 1, 2, 3, 4)]),
    refused("a bias of integers that is scaled", "Gemm", ["w", "k"], "'k' is of int64", attr("beta", 2.0), tensors=[W, ints("k", 1, 2, 3, 4)]),
    refused("a bias of integers to a computed product", "Gemm", ["x", "k"], "'k' is of int64", attr("transB", 1), ports=[port("x", [4, 4])],
        tensors=[ints("k", 1, 2, 3, 4)]),
    refused("A of a gemm that is a turned constant", "Gemm", ["x"], "transA of a constant", before=[node("Gemm", ["w", "w"], ["g"], "n", None, attr("transA", 1))],
        tensors=[W]),
    refused("A of a gemm that is turned and has three dimensions", "Gemm", ["w"], "its A has 3 dimensions", attr("transA", 1), tensors=[W], ports=X3),
    refused("A of a gemm that is a list", "Relu", [], "its A has 1 dim", before=[S, node("Gemm", ["s", "w"], ["g"], "n", None, attr("transA", 1))], tensors=[W]),
    refused("a gemm of three dimensions", "Gemm", ["w"], "its A has 3 dimensions", tensors=[W], ports=X3),
    ("a product of a list of sizes", model(graph([S, node("MatMul", ["s", "z"], ["y"])], ins=[port("x", [4, 4]), port("z", [2, 4])])), "'s' is a list"),
    refused("an erf of x / 2", "Mul", ["a"], "not part of", tensors=[reals("k", [], 2), reals("o", [], 1)],
            before=[node("Div", ["x", "k"], ["d"]), node("Erf", ["d"], ["e"]), node("Add", ["e", "o"], ["a"])]),
    refused("an erf of sqrt(2) / x", "Mul", ["a"], "not part of", tensors=[reals("k", [], 2 ** 0.5), reals("o", [], 1)],
            before=[node("Div", ["k", "x"], ["d"]), node("Erf", ["d"], ["e"]), node("Add", ["e", "o"], ["a"])]),
    *[refused(f"a gelu whose last factor is {what}", "Relu", [], "not part of", tensors=[reals("r", [], 2 ** 0.5), reals("o", [], 1), reals("h", [], 0.5)],
              before=[*more, node("Div", ["x", "r"], ["d"]), node("Erf", ["d"], ["e"]), node("Add", ["e", "o"], ["a"]), node("Mul", ["a", "h"], ["m"]), *last])
      for what, more, last in (
          ("another value", [node("Relu", ["x"], ["z"])], [node("Mul", ["m", "z"], ["g"])]), ("a sum", [], [node("Add", ["m", "x"], ["g"])]), ("missing", [], []))],
    refused("a gelu whose quotient is made twice", "Mul", ["m"], "not part of", tensors=[reals("r", [], 2 ** 0.5), reals("o", [], 1), reals("h", [], 0.5)],
            before=[node("Relu", ["x"], ["d"]), node("Erf", ["d"], ["e"]), node("Add", ["e", "o"], ["a"]), node("Mul", ["a", "h"], ["m0"]),
                    node("Mul", ["m0", "nothing"], ["m"]), node("Div", ["nothing", "r"], ["d"])]),
    # codes
    *[refused(f"a weight {what}", "MatMul", ["v"], pattern, tensors=[t, s, *zero],
          before=[node("DequantizeLinear", ["w", "s", *(["k"] if zero else [])], ["v"], "d", None, *attrs)], opset=21)
      for what, pattern, t, s, zero, attrs in (
          ("of int32", "is of int32", tensor("w", [4, 4], 6), q("s", 1, 1), (), ()),
          ("of int16", "is of int16", tensor("w", [4, 4], 5, bytes(32)), q("s", 1, 1), (), ()),
          ("of three dimensions", "where the language has", tensor("w", [1, 4, 4], 3), q("s", 1, 1), (), ()),
          ("of no columns", "'v' is empty", tensor("w", [4, 0], 3), q("s", 1, 1), (), ()),
          ("with scales along K", "scales along K", W8, reals("s", [4], 1, 1, 1, 1), (), (attr("axis", 0),)),
          ("with blocks across rows", "blocks across rows", W8, reals("s", [4, 2], *[1] * 8), (), (attr("axis", 1), attr("block_size", 2))),
          ("with three scales", "3 scales and 0 zero points, where 4", W8, reals("s", [3], 1, 1, 1), (), ()),
          ("with three zero points", "1 scales and 3 zero points, where 4", W8, q("s", 1, 1), (tensor("k", [3], 3),), ()),
          ("with scales along axis 2", "axis 2 of a tensor", W8, reals("s", [4], 1, 1, 1, 1), (), (attr("axis", 2),)),
          ("with an infinite scale", "a scale of inf", W8, reals("s", [], INF), (), ()), ("with a scale of NaN", "a scale of -?nan", W8, reals("s", [], NAN), (), ()),
          ("with a scale below 0", "a scale of -1", W8, reals("s", [], -1), (), ()),
          ("with blocks of -1", "blocks of -1", W8, reals("s", [2, 4], *[1] * 8), (), (attr("block_size", -1),)),
          ("with integer scales", "scales of int64", W8, ints("s", 1), (), ()), ("of floats", "codes of float", W, q("s", 1, 1), (), ()),
          ("without elements and with blocks", "where 0 are needed", tensor("w", [4, 0], 3), reals("s", [2], 1, 1), (), (attr("axis", 1), attr("block_size", 2))),
          ("without elements and with scales", "where 0 are needed", tensor("w", [4, 0], 3), reals("s", [2], 1, 1), (), (attr("axis", 1),)))],
    refused("codes that were turned before", "MatMul", ["v"], "transposed before", before=[node("Transpose", ["w"], ["t"]), node("DequantizeLinear", ["t", "s"], ["v"])],
        tensors=[W8, q("s", 1, 1)]),
    refused("codes read by a scale for each channel", "Relu", [], "scale for each channel", before=[*QX, node("DequantizeLinear", ["q", "v"], ["a"])],
        tensors=[*U8, reals("v", [4], 1, 1, 1, 1)]),
    refused("codes read by a zero point for each channel", "Relu", [], "scale for each channel", before=[*QX, node("DequantizeLinear", ["q", "s", "v"], ["a"])],
        tensors=[*U8, tensor("v", [4], 2)]),
    *[refused(f"codes read by a scale of {value}", "Relu", [], "a scale of", before=[*QX, node("DequantizeLinear", ["q", "v"], ["a"])],
          tensors=[*U8, reals("v", [], value)]) for value in (INF, 0, -1, NAN)],
    refused("floats read as codes", "DequantizeLinear", ["s"], "'x' is of float, no quantised", tensors=U8),
    refused("a list of sizes read as codes", "Relu", [], "'s' is a list", before=[S, node("DequantizeLinear", ["s", "e"], ["a"])], tensors=[q("e", 1, 1)]),
    *[refused(f"values quantised {what}", "QuantizeLinear", ["v", *(["k"] if zero else [])], pattern, *attrs, tensors=[s, *zero], opset=21) for what, pattern, s, zero, attrs in (
        ("by a scale for each channel", "scale for each channel", reals("v", [4], 1, 1, 1, 1), (), ()),
        ("by a zero point for each channel", "scale for each channel", reals("v", [], 1), (tensor("k", [4], 2),), ()),
        ("by an infinite scale", "a scale of inf", reals("v", [], INF), (), ()), ("by integers", "computed", ints("v", 1), (), ()),
        ("to int4", "codes of int4", reals("v", [], 1), (), (attr("output_dtype", 22),)),
        ("to float8", "codes of float8e4m3fn", reals("v", [], 1), (), (attr("output_dtype", 17),)))],
    refused("codes quantised again", "Relu", [], "'q' is of uint8", before=[*QX, node("QuantizeLinear", ["q", "s", "z"], ["a"])], tensors=U8),
    refused("sums quantised", "Relu", [], "'i' is of int32", before=[node("MatMulInteger", ["x", "w"], ["i"]), node("QuantizeLinear", ["i", "s", "z"], ["a"])],
        tensors=[*U8, W8], ports=CODES),
    refused("a list of sizes quantised", "Relu", [], "'l' is a list", before=[node("Shape", ["x"], ["l"]), node("QuantizeLinear", ["l", "s", "z"], ["a"])], tensors=U8),
    refused("a dequantised constant quantised", "MatMul", ["b"], "is of float", before=[node("DequantizeLinear", ["w", "s"], ["a"]), node("QuantizeLinear", ["a", "s"], ["b"])],
        tensors=[*U8, W8]),
    *[refused(f"a constant quantised {what}", "MatMul", ["v"], pattern, tensors=[t, s, q("k", 0, 3)], before=[*turn, node("QuantizeLinear", [word, "s", *zero], ["a"], "n", None, *attrs),
                                                                                                   node("DequantizeLinear", ["a", "s"], ["v"])], opset=21)
      for what, pattern, t, s, zero, attrs, word, turn in (
          ("that holds NaN", "holds NaN", reals("w", [4, 4], *[NAN] * 16), q("s", 1, 1), ["k"], (), "w", ()),
          ("to int4", "float becomes int4", W, q("s", 1, 1), [], (attr("output_dtype", 22),), "w", ()),
          ("of integers", "int64 becomes int8", tensor("w", [4, 4], 7), q("s", 1, 1), ["k"], (), "w", ()),
          ("that was turned", "float becomes int8", W, q("s", 1, 1), ["k"], (), "t", (node("Transpose", ["w"], ["t"]),)),
          ("by a scale of 0", "a scale of 0", W, q("s", 0, 1), ["k"], (), "w", ()), ("in blocks of -1", "blocks of -1", W, q("s", 1, 1), ["k"], (attr("block_size", -1),), "w", ()),
          ("along axis 2", "axis 2 of a tensor", W, reals("s", [4], 1, 1, 1, 1), ["k"], (attr("axis", 2),), "w", ()))],
    refused("products of 16 bits", "Relu", [], "products of uint16 are not read", tensors=[q("s", 1, 1), tensor("z", [], 4, b"\0\0"), W8],
        before=[*QX, node("DequantizeLinear", ["w", "s"], ["v"]), node("MatMul", ["d", "v"], ["a"])], opset=21),
    refused("a bias of integers to codes", "Relu", [], "'b' is of int64", tensors=[*U8, W8, ints("b", 1, 2, 3, 4)],
        before=[*QX, node("DequantizeLinear", ["w", "s"], ["v"]), node("Gemm", ["d", "v", "b"], ["a"])]),
    # integers
    refused("zero points of a matrix", "MatMulInteger", ["w", "", "k"], "zero points of 2 dimensions", tensors=[W8, tensor("k", [1, 4], 3)], ports=CODES),
    refused("zero points for each row", "MatMulInteger", ["w", "k"], "scale for each channel", tensors=[W8, tensor("k", [4], 3)], ports=CODES),
    refused("a computed weight of integers", "MatMulInteger", ["x"], "products|where", ports=[port("x", ["B", 4], 3)]),
    refused("scales of a matrix", "QLinearMatMul", ["s", "k", "w", "v", "k", "s", "k"], "scales of 2 dimensions", ports=CODES,
        tensors=[q("s", 1, 1), q("k", 0, 3), W8, reals("v", [1, 4], 1, 1, 1, 1)]),
    *[refused(f"a QGemm {what}", "QGemm", words, pattern, *attrs, domain="com.microsoft", ports=[port("x", [4, 4], 3)],
          tensors=[q("s", 1, 1), q("k", 0, 3), W8, tensor("i", [4], 6), tensor("f", [4]), tensor("i3", [3], 6)])
      for what, pattern, words, attrs in (
          ("times 0.5", "alpha 0.5", ["s", "k", "w", "s", "k"], (attr("alpha", 0.5),)), ("of a turned A", "a transposed A", ["s", "k", "w", "s", "k"], (attr("transA", 1),)),
          ("by what is computed", "or its B is not", ["s", "k", "x", "s", "k"], ()), ("with a bias of floats", "no constant of int32", ["s", "k", "w", "s", "k", "f"], ()),
          ("with a computed bias", "no constant of int32", ["s", "k", "w", "s", "k", "x"], ()), ("with a bias of three", "a bias of .3.", ["s", "k", "w", "s", "k", "i3"], ()),
          ("with a scale and no zero point", "a scale and no zero point", ["s", "k", "w", "s", "k", "i", "s"], ()))],
    refused("a QGemm of a constant", "Relu", [], "its A is a constant", tensors=[q("s", 1, 1), q("k", 0, 3), W8],
        before=[node("QGemm", ["w", "s", "k", "w", "s", "k"], ["a"], "n", "com.microsoft")]),
    # values of DynamicQuantizeLinear
    *[refused(f"dynamic codes {what}", "Relu", [], pattern, before=nodes, tensors=[W8, *more], ports=ports) for what, pattern, nodes, more, ports in (
        ("without their zero point", "not of one Dynamic", [DYNAMIC, node("MatMulInteger", ["q", "w"], ["i"])], (), None),
        ("with a zero point of others", "not of one Dynamic", [DYNAMIC, node("Relu", ["x"], ["r"]), node("DynamicQuantizeLinear", ["r"], ["q2", "t2", "u2"]),
                                                               node("MatMulInteger", ["q", "w", "u2"], ["i"])], (), None),
        ("whose scale is multiplied", "not of one Dynamic", [DYNAMIC, node("MatMulInteger", ["t", "w", "u"], ["i"])], (), None),
        ("with a constant zero point", "not of one Dynamic", [DYNAMIC, node("MatMulInteger", ["q", "w", "z"], ["i"])], (q("z", 0, 2),), None),
        ("by another K", "or no constant weight", SUMS, (), [port("x", ["B", 5])]), ("of a number", "or no constant weight", SUMS, (), [port("x", [])]),
        ("by what is computed", "'w2' is of|or no constant", [DYNAMIC, node("MatMulInteger", ["q", "c", "u"], ["i"])], (), [port("x", [4, 4]), port("c", [4, 4], 3)]),
        ("by three dimensions", "or no constant weight", [DYNAMIC, node("MatMulInteger", ["q", "w3", "u"], ["i"])], (tensor("w3", [1, 4, 4], 3),), None),
        ("by no columns", "or no constant weight", [DYNAMIC, node("MatMulInteger", ["q", "w0", "u"], ["i"])], (tensor("w0", [4, 0], 3),), None),
        ("of a constant", "or a constant", [node("DynamicQuantizeLinear", ["k"], ["q", "t", "u"])], (tensor("k", [4]),), None),
        ("of a list of sizes", "'s' is a list", [S, node("DynamicQuantizeLinear", ["s"], ["q", "t", "u"])], (), None),
        ("of codes", "'x' is of int8", [DYNAMIC], (), CODES),
        ("times the scale of others", "not sums and their scale", [*SUMS, node("Relu", ["x"], ["r"]), node("DynamicQuantizeLinear", ["r"], ["q2", "t2", "u2"]),
                                                                   node("Mul", ["j", "t2"], ["m"])], (), None),
        ("times themselves", "not sums and their scale", [*SUMS, node("Mul", ["j", "j"], ["m"])], (), None),
        ("whose scale is squared", "not sums and their scale", [DYNAMIC, node("Mul", ["t", "t"], ["m"])], (), None),
        ("times a constant", "not sums and their scale", [*SUMS, node("Mul", ["j", "k"], ["m"])], (q("k", 1, 1),), None),
        ("whose scale is multiplied by a matrix", "no constant of one dim", [*SUMS, node("Mul", ["t", "k"], ["m"])], (tensor("k", [1, 4]),), None),
        ("whose scale is multiplied by nothing", "no constant of one dim", [*SUMS, node("Mul", ["t", "k"], ["m"])], (tensor("k", [0]),), None),
        ("whose scale is multiplied by integers", "no constant of one dim", [*SUMS, node("Mul", ["k", "t"], ["m"])], (ints("k", 1),), None),
        ("whose scale is multiplied by what is computed", "no constant of one dim", [*SUMS, node("Mul", ["t", "x"], ["m"])], (), None),
        ("whose scale is multiplied by two vectors", "vectors twice", [*SUMS, node("Mul", ["t", "k"], ["m"]), node("Mul", ["m", "k"], ["o"])],
         (reals("k", [4], 1, 1, 1, 1),), None),
        ("with scales for other columns", "3 scales for sums of .B, 4.", [*SUMS, node("Mul", ["t", "k"], ["m"]), node("Mul", ["j", "m"], ["o"])], (reals("k", [3], 1, 1, 1),), None),
        ("that a gemm turns", "comes of DynamicQuantizeLinear", [DYNAMIC, node("Gemm", ["q", "w"], ["m"], "n", None, attr("transA", 1))], (), None),
        ("that a relu takes", "comes of DynamicQuantizeLinear", [*SUMS, node("Relu", ["j"], ["m"])], (), None))],
]
refused_rank = refused("a QGemm of three dimensions", "QGemm", ["s", "k", "w", "s", "k"], "its A has 3 dimensions", domain="com.microsoft",
                       ports=[port("x", [2, 4, 4], 3)], tensors=[q("s", 1, 1), q("k", 0, 3), W8])
REFUSED.append(refused_rank)
ODD = 'we"i{r\\d}\x01\x7f'
# what a text says of models that are sound
ACCEPTED = [
    ("the good one beside them", GOOD, r"y = relu\(x\)"),
    ("ONNX's own domain by its name", field(1, 8) + field(7, graph([node("Relu", ["x"], ["y"], "n", "ai.onnx")])) +
     field(8, field(1, "ai.onnx") + field(2, 17)), r"y = relu\(x\)"),
    ("a cast to bf16", model(graph([node("Cast", ["x"], ["y"], "n", None, attr("to", 16))])), r"y = cast\(x, bf16\)"),
    ("a bound of f64", model(graph([node("Clip", ["x", "", "k"], ["y"])], [tensor("k", [], 11, b"-", field(10, struct.pack("<d", 0.5)))])), r"y = min\(x, 0.5\)"),
    ("a name with signs", model(graph([node("Add", ["x", ODD], ["y"])], [tensor(ODD, [4])])), r'param we_i_r_d: f32\[4\] from "we_i_r_d___"'),
    ("a name of 50 letters", model(graph([node("Relu", ["x"], ["y" * 50])], outs=[port("y" * 50, [4])])), r"\(" + "y" * 40 + ": f32"),
    ("a name of other letters", model(graph([node("Relu", ["x"], ["n\u00e4me"])], outs=[port("n\u00e4me", [4])])), r"n_me = relu\(x\)"),
    ("names that become alike", model(graph([node("Sum", ["a_b_2", "a_b", "a.b"], ["y"])], ins=[port(n, [4]) for n in ("a_b_2", "a_b", "a.b")])),
     r"\(a_b_2: f32\[4\], a_b: f32\[4\], a_b_3: f32\[4\]\)"),
    ("external data whose length is not said", model(graph(MATMUL, [external("data", ("checksum", "0")) + field(13, field(3, "more"))])), r"y = linear\(x, w\)"),
    ("a softmax of rows before set 13", model(graph([node("Softmax", ["x"], ["y"])]), 11), r"y = softmax\(x\)"),
]
