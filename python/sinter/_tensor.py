"""Arrays of any library in, tensors of ours out, without copies.

Arrays come in by ``__array_interface__`` (numpy, whatever its version) or ``__dlpack__``; both become
a DLPack structure that the library checks. Tensors of ours are the library's memory: they go out by
``__dlpack__``, with versions and without, and by ``__array_interface__``.
"""
from __future__ import annotations

import ctypes
import sys
from ctypes import POINTER, byref, c_char_p, c_int64, c_void_p, cast
from typing import Any, Protocol, runtime_checkable

from ._errors import ArgumentError
from ._library import (DELETER, DLManagedTensorVersioned, HERE, LEGACY, MANAGED, READ_ONLY,
                       SinterTensor, call)

__all__ = ["SupportsDLPack", "Tensor"]

CPU, CUDA, CUDA_MANAGED = 1, 2, 13
ON_GPU = (CUDA, CUDA_MANAGED)
CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}  # of __array_interface__, as DLPack counts
BFLOAT = 4
NAMES = {(2, 32): "float32", (2, 16): "float16", (BFLOAT, 16): "bfloat16", (0, 32): "int32"}
TYPESTR = {"float32": "<f4", "float16": "<f2", "int32": "<i4"}
VERSION = (1, 1)


@runtime_checkable
class SupportsDLPack(Protocol):
    """What numpy, PyTorch, JAX, CuPy and others call an array that others may look into."""

    def __dlpack__(self, *, stream: Any = ...) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...


# Capsules ----------------------------------------------------------------------------------------

_api = ctypes.PyDLL(None)
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = [c_void_p, c_char_p, c_void_p]
_api.PyCapsule_IsValid.argtypes = [ctypes.py_object, c_char_p]
_api.PyCapsule_GetPointer.restype = c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, c_char_p]

VERSIONED, UNVERSIONED = b"dltensor_versioned", b"dltensor"
# a capsule keeps the address of its name, not the name
_names = {name: ctypes.create_string_buffer(name) for name in (VERSIONED, UNVERSIONED)}
_end = cast(ctypes.PyDLL(str(HERE / "capsule.so")).sinter_capsule_end, c_void_p)


def _capsule(pointer: Any, name: bytes) -> Any:
    return _api.PyCapsule_New(cast(pointer, c_void_p), cast(_names[name], c_char_p), _end)


def _open_capsule(capsule: Any) -> tuple[Any, bool]:
    """The structure in a producer's capsule, and whether it is versioned. It stays the capsule's."""
    for name, kind in ((VERSIONED, MANAGED), (UNVERSIONED, LEGACY)):
        if _api.PyCapsule_IsValid(capsule, name):
            return cast(_api.PyCapsule_GetPointer(capsule, name), kind), kind is MANAGED
    raise ArgumentError("__dlpack__ gave no capsule of DLPack, or one that was used already")


# In ----------------------------------------------------------------------------------------------


class Borrowed:
    """An array of somebody else's while it is used: a DLPack structure, and what keeps it alive."""

    __slots__ = ("pointer", "versioned", "device", "keep")

    def __init__(self, pointer: Any, versioned: bool, device: tuple[int, int], keep: Any):
        self.pointer, self.versioned, self.device, self.keep = pointer, versioned, device, keep

    @property
    def dl(self) -> Any:
        return self.pointer.contents.dl_tensor

    def import_for(self, session: Any, is_output: bool, name: bytes, into: SinterTensor) -> None:
        function = "sinter_dlpack_import" if self.versioned else "sinter_dlpack_import_legacy"
        call(function, session, int(is_output), name, self.pointer, byref(into))


def borrow(array: Any, name: str, stream: int | None = None) -> Borrowed:
    """`stream`: the CUDA stream on which it will be used, which its producer makes wait."""
    if isinstance(array, Tensor):
        return Borrowed(array._pointer, True, array.__dlpack_device__(), array)
    interface = getattr(array, "__array_interface__", None)
    if isinstance(interface, dict):
        return _from_interface(array, interface, name)
    if not isinstance(array, SupportsDLPack):
        raise TypeError(f"{name} is of type {type(array).__name__}, which neither has "
                        "__array_interface__ nor __dlpack__; give an array of numpy, PyTorch or the "
                        "like")
    return _from_dlpack(array, name, stream)


def _from_dlpack(array: Any, name: str, stream: int | None) -> Borrowed:
    device = tuple(int(word) for word in array.__dlpack_device__())
    words: dict[str, Any] = {}
    if device[0] in ON_GPU:
        words["stream"] = stream or 1  # 1: the legacy default stream, which CUDA also calls 0
    try:
        try:
            capsule = array.__dlpack__(max_version=VERSION, **words)
        except TypeError:  # from before versions
            capsule = array.__dlpack__(**words)
    except (BufferError, RuntimeError, ValueError) as error:
        raise ArgumentError(f"{name} cannot be looked into: {error}") from error
    pointer, versioned = _open_capsule(capsule)
    return Borrowed(pointer, versioned, (device[0], device[1]), (capsule, array))


def _from_interface(array: Any, interface: dict[str, Any], name: str) -> Borrowed:
    shape, typestr = tuple(interface["shape"]), interface["typestr"]
    address, read_only = interface["data"] or (0, False)
    size = int(typestr[2:])
    code = CODES.get(typestr[1])
    if str(getattr(array, "dtype", "")) == "bfloat16":
        code = BFLOAT
    if code is None or (typestr[0] == ">" and size > 1):
        raise ArgumentError(f"{name} has elements of type {getattr(array, 'dtype', typestr)}; ports "
                            "take float32, float16, bfloat16 and int32, so convert it first")
    dims = (c_int64 * len(shape))(*shape)
    steps = interface.get("strides")
    strides = (c_int64 * len(shape))(*(_stride(step, size, name) for step in steps)) if steps else None
    managed = DLManagedTensorVersioned(major=1, minor=0, flags=READ_ONLY if read_only else 0)
    t = managed.dl_tensor
    t.data, t.ndim, t.shape = address, len(shape), cast(dims, POINTER(c_int64))
    t.strides = cast(strides, POINTER(c_int64)) if strides else None
    t.device.device_type = CPU
    t.dtype.code, t.dtype.bits, t.dtype.lanes = code, size * 8, 1
    return Borrowed(ctypes.pointer(managed), True, (CPU, 0), (managed, dims, strides, array))


def _stride(step: int, size: int, name: str) -> int:
    if step % size:
        raise ArgumentError(f"{name} is a part of records; copy it first (numpy: ascontiguousarray)")
    return step // size


# Out ---------------------------------------------------------------------------------------------


class Tensor:
    """Memory of the library's, on the processor or a GPU, that any array library can look into:
    ``numpy.asarray(t)`` or ``numpy.from_dlpack(t)``, ``torch.from_dlpack(t)``, and so on. The memory
    lives as long as anything looks into it."""

    __slots__ = ("_pointer", "__weakref__")
    _pointer: Any

    def __init__(self) -> None:
        raise TypeError("tensors are made by models and sessions")

    @classmethod
    def _make(cls, function: str, *words: Any) -> Tensor:
        self = object.__new__(cls)
        self._pointer = None
        pointer = MANAGED()
        call(function, *words, byref(pointer))
        self._pointer = pointer
        return self

    @classmethod
    def _create(cls, session: Any, like: SinterTensor) -> Tensor:
        return cls._make("sinter_dlpack_create", session, byref(like))

    @classmethod
    def _port(cls, session: Any, is_output: bool, index: int, sizes: list[int]) -> Tensor:
        return cls._make("sinter_dlpack_port", session, int(is_output), index,
                         (c_int64 * (len(sizes) + 1))(*sizes))

    def __del__(self) -> None:
        if self._pointer:
            DELETER(self._pointer.contents.deleter)(ctypes.addressof(self._pointer.contents))
            self._pointer = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of all dimensions."""
        t = self._pointer.contents.dl_tensor
        return tuple(t.shape[i] for i in range(t.ndim))

    @property
    def dtype(self) -> str:
        """``"float32"``, ``"float16"``, ``"bfloat16"`` or ``"int32"``."""
        t = self._pointer.contents.dl_tensor.dtype
        return NAMES[t.code, t.bits]

    @property
    def device(self) -> str:
        """``"cpu"`` or ``"cuda:0"``."""
        kind, number = self.__dlpack_device__()
        return "cpu" if kind == CPU else f"cuda:{number}"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor of no dimensions has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<sinter.Tensor {self.dtype}{list(self.shape)} on {self.device}>"

    def __dlpack_device__(self) -> tuple[int, int]:
        device = self._pointer.contents.dl_tensor.device
        return device.device_type, device.device_id

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """A capsule with DLPack's structure, versioned if the consumer knows versions. The values
        are there already, so `stream` need not wait."""
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the tensor lies on {self.device} and is not copied elsewhere")
        if copy:
            raise BufferError("the tensor is not copied; copy what is made of it")
        if max_version is None or max_version[0] < 1:
            legacy = LEGACY()
            call("sinter_dlpack_share_legacy", self._pointer, byref(legacy))
            return _capsule(legacy, UNVERSIONED)
        shared = MANAGED()
        call("sinter_dlpack_share", self._pointer, byref(shared))
        return _capsule(shared, VERSIONED)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self.device != "cpu" or self.dtype not in TYPESTR:
            raise AttributeError(f"numpy has no arrays of {self.dtype} on {self.device}")
        address = self._pointer.contents.dl_tensor.data
        return {"version": 3, "shape": self.shape, "typestr": TYPESTR[self.dtype],
                "data": (address or 0, False)}


# Results in the caller's library -----------------------------------------------------------------


def library_of(array: Any) -> str:
    """``"numpy"``, ``"torch"``, ..: the library whose array this is."""
    return type(array).__module__.partition(".")[0]


def _numpy_dtype(name: str) -> Any:
    """numpy's, or that of ml_dtypes for bfloat16; None where there is none."""
    if name != "bfloat16":
        return sys.modules["numpy"].dtype(name)
    try:
        import ml_dtypes  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    return sys.modules["numpy"].dtype(ml_dtypes.bfloat16)


def empty_like_library(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """An array of the same library and on the same device as `like`; None: it is for us to make."""
    library = library_of(like)
    if library == "numpy":
        kind = _numpy_dtype(dtype)
        return None if kind is None else sys.modules["numpy"].empty(shape, kind)
    if library == "torch":
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)
    if library == "cupy" and dtype != "bfloat16":
        cupy = sys.modules["cupy"]
        with like.device:
            return cupy.empty(shape, dtype)
    return None


def hand_over(tensor: Tensor, like: Any) -> Any:
    """A tensor of ours as an array of the library of `like`, where that can take it."""
    library = library_of(like)
    module: Any = sys.modules.get(library)
    if library in ("jax", "jaxlib"):
        module = sys.modules.get("jax.numpy")
    if library == "numpy" or module is None or not hasattr(module, "from_dlpack"):
        return tensor  # numpy: of bfloat16, which it lacks
    return module.from_dlpack(tensor)


def gpu_of(array: Any) -> str | None:
    """``"cuda:0"`` where the array lies on a GPU."""
    if not hasattr(array, "__dlpack_device__"):
        return None
    kind, number = array.__dlpack_device__()
    return f"cuda:{int(number)}" if kind in ON_GPU else None


def current_stream(like: Any) -> int:
    """The CUDA stream on which the library of an array works now; 0: the default one."""
    library = library_of(like)
    if library == "torch":
        return int(sys.modules["torch"].cuda.current_stream(like.device).cuda_stream)
    if library == "cupy":
        return int(sys.modules["cupy"].cuda.get_current_stream().ptr)
    return 0


def stream_number(stream: Any) -> int:
    """Of a number, or an object of PyTorch, CuPy or CUDA's own Python."""
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    return int(stream)
