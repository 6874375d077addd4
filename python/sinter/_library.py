"""libsinter through ctypes: sinter.h and sinter_dlpack.h, declaration by declaration.

Calls release the interpreter's lock while they run. Nothing here calls back into Python: memory that
leaves is freed by the library's own deleters.
"""
from __future__ import annotations

import ctypes
import os
import pathlib
import shutil
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32
from ctypes import c_uint64, c_void_p

from ._errors import STATUS, Error, UnsupportedError

MAX_RANK = 6
HERE = pathlib.Path(__file__).resolve().parent

DTYPES = {1: "float32", 2: "float16", 3: "bfloat16", 4: "int32"}


class SinterError(ctypes.Structure):
    _fields_ = [("status", c_int), ("text", ctypes.c_char * 512)]


class Port(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_int), ("rank", c_int),
                ("dim", c_int64 * MAX_RANK)]


class SinterTensor(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_int), ("rank", c_int),
                ("dim", c_int64 * MAX_RANK), ("data", c_void_p)]


class SessionOptions(ctypes.Structure):
    _fields_ = [("device", c_char_p), ("threads", c_int), ("prepare", c_int)]


class DLDevice(ctypes.Structure):
    _fields_ = [("device_type", c_int32), ("device_id", c_int32)]


class DLDataType(ctypes.Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device", DLDevice), ("ndim", c_int32),
                ("dtype", DLDataType), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


class DLManagedTensor(ctypes.Structure):
    _fields_ = [("dl_tensor", DLTensor), ("manager_ctx", c_void_p), ("deleter", c_void_p)]


class DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("manager_ctx", c_void_p),
                ("deleter", c_void_p), ("flags", c_uint64), ("dl_tensor", DLTensor)]


DELETER = ctypes.CFUNCTYPE(None, c_void_p)
READ_ONLY = 1

ERR = POINTER(SinterError)
MANAGED = POINTER(DLManagedTensorVersioned)
LEGACY = POINTER(DLManagedTensor)
TENSORS = POINTER(SinterTensor)
SIZES = POINTER(c_int64)

FUNCTIONS = {
    "sinter_version": (c_char_p, []),
    "sinter_open": (c_int, [c_char_p, POINTER(c_void_p), ERR]),
    "sinter_close": (None, [c_void_p]),
    "sinter_model_name": (c_char_p, [c_void_p]),
    "sinter_num_inputs": (c_int, [c_void_p]),
    "sinter_num_outputs": (c_int, [c_void_p]),
    "sinter_input": (Port, [c_void_p, c_int]),
    "sinter_output": (Port, [c_void_p, c_int]),
    "sinter_num_symbols": (c_int, [c_void_p]),
    "sinter_symbol": (c_char_p, [c_void_p, c_int]),
    "sinter_num_buckets": (c_int, [c_void_p]),
    "sinter_bucket_size": (c_int64, [c_void_p, c_int, c_int]),
    "sinter_weight_bytes": (c_uint64, [c_void_p]),
    "sinter_port_text": (c_char_p, [c_void_p, c_int, c_int, c_char_p, ctypes.c_size_t]),
    "sinter_session_create": (c_int, [c_void_p, POINTER(SessionOptions), POINTER(c_void_p), ERR]),
    "sinter_session_destroy": (None, [c_void_p]),
    "sinter_session_device": (c_char_p, [c_void_p]),
    "sinter_session_bytes": (c_uint64, [c_void_p]),
    "sinter_output_shapes": (c_int, [c_void_p, TENSORS, c_int, TENSORS, c_int, ERR]),
    "sinter_run": (c_int, [c_void_p, TENSORS, c_int, TENSORS, c_int, ERR]),
    "sinter_run_async": (c_int, [c_void_p, TENSORS, c_int, TENSORS, c_int, c_void_p, ERR]),
    "sinter_wait": (c_int, [c_void_p, ERR]),
    "sinter_dlpack_import": (c_int, [c_void_p, c_int, c_char_p, MANAGED, TENSORS, ERR]),
    "sinter_dlpack_import_legacy": (c_int, [c_void_p, c_int, c_char_p, LEGACY, TENSORS, ERR]),
    "sinter_dlpack_create": (c_int, [c_void_p, TENSORS, POINTER(MANAGED), ERR]),
    "sinter_dlpack_port": (c_int, [c_void_p, c_int, c_int, SIZES, POINTER(MANAGED), ERR]),
    "sinter_dlpack_share": (c_int, [MANAGED, POINTER(MANAGED), ERR]),
    "sinter_dlpack_share_legacy": (c_int, [MANAGED, POINTER(LEGACY), ERR]),
}


def _load() -> ctypes.CDLL:
    """$SINTER_LIBRARY, the wheel's own, or the one that the system has."""
    own = HERE / "libsinter.so"
    named = os.environ.get("SINTER_LIBRARY")
    path = named or (str(own) if own.exists() else "libsinter.so.0")
    try:
        library = ctypes.CDLL(path)
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise ImportError(f"libsinter cannot be used: {error}; install sinter, or name the library "
                          "in SINTER_LIBRARY") from error
    return library


lib = _load()


def call(name: str, *arguments: object) -> None:
    """A function that returns a status and takes a SinterError last; other statuses raise."""
    err = SinterError()
    status = getattr(lib, name)(*arguments, byref(err))
    if status:
        raise STATUS.get(status, Error)(err.text.decode(errors="replace"))


def command() -> str:
    """The path of the `sinter` command: $SINTER_COMMAND, the wheel's own, or the one on the path."""
    own = HERE / "command"
    path = os.environ.get("SINTER_COMMAND") or (str(own) if own.exists() else shutil.which("sinter"))
    if not path:
        raise UnsupportedError("the command sinter is not on the path; install it, or name it in "
                               "SINTER_COMMAND")
    return path
