"""sinter: quantised linear layers, compiled to one file that is a program and a loadable model.

>>> import numpy as np, sinter
>>> text = '''
... version 1
... dim B in [1, 16, 128]
... model layer (x: f32[B, 64]) -> (y: f32[B, 10]) {
...     param w: f32[10, 64] from "w"
...     param b: f32[10] from "b"
...     y = relu(linear(x, w, b))
... }
... '''
>>> model = sinter.compile(text, weights={"w": w, "b": b})
>>> y = model(x=x)
>>> model.save("layer")              # ./layer --help
>>> y = sinter.load("layer")(x=x)

Arrays are numpy's, or whatever speaks DLPack (PyTorch, JAX, CuPy): results are of the same library,
on the same device, and nothing is copied on the way to or from a GPU's own memory. What goes wrong is
an :class:`Error` with a code and a place.
"""
from ._compile import compile  # noqa: A004
from ._errors import *  # noqa: F403
from ._errors import __all__ as _errors
from ._library import lib as _lib
from ._model import Model, Port, Session, load
from ._tensor import SupportsDLPack, Tensor

__version__: str = _lib.sinter_version().decode()
__all__ = ["Model", "Port", "Session", "SupportsDLPack", "Tensor", "compile", "load", *_errors]
