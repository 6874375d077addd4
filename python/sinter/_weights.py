"""Arrays as the files that the compiler reads, in memory: nothing of the user's is written to disk."""
from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
from typing import Any, Mapping

from ._errors import ArgumentError
from ._tensor import CPU, Borrowed, borrow

# DLPack's code and bits to the name that safetensors has for it
DTYPES = {(2, 64): "F64", (2, 32): "F32", (2, 16): "F16", (4, 16): "BF16", (0, 64): "I64",
          (0, 32): "I32", (0, 16): "I16", (0, 8): "I8", (1, 64): "U64", (1, 32): "U32",
          (1, 16): "U16", (1, 8): "U8", (6, 8): "BOOL", (10, 8): "F8_E4M3", (12, 8): "F8_E5M2"}


def _on_host(array: Any, name: str) -> Borrowed:
    """The array as contiguous memory of the processor; copied where its library must do so."""
    if hasattr(array, "detach"):  # a parameter of PyTorch's
        array = array.detach().cpu().contiguous()
    elif hasattr(array, "__array_interface__") and "numpy" in sys.modules:
        array = sys.modules["numpy"].ascontiguousarray(array)
        if not array.dtype.isnative:  # weight files are of one order of bytes
            array = array.astype(array.dtype.newbyteorder("="))
    elif isinstance(array, (list, tuple, int, float)):
        raise TypeError(f"{name} is a {type(array).__name__}; give an array of numpy, PyTorch or the "
                        "like")
    lent = borrow(array, name)
    if lent.device[0] != CPU:
        raise ArgumentError(f"{name} does not lie in the processor's memory; copy it there first")
    return lent


def _row_major(lent: Borrowed) -> bool:
    t, want = lent.dl, 1
    for i in reversed(range(t.ndim)):
        if t.strides and t.shape[i] != 1 and t.strides[i] != want:
            return False
        want *= t.shape[i]
    return True


def safetensors_file(arrays: Mapping[str, Any], label: str) -> int:
    """A file of safetensors that has no name: its descriptor."""
    header: dict[str, Any] = {}
    parts: list[tuple[Borrowed, int]] = []
    at = 0
    for name, array in arrays.items():
        lent = _on_host(array, name)
        t = lent.dl
        dtype = DTYPES.get((t.dtype.code, t.dtype.bits))
        if dtype is None or t.dtype.lanes != 1 or not _row_major(lent):
            raise ArgumentError(f"{name} has elements that no weight file holds, or is not contiguous")
        size = t.dtype.bits // 8
        for i in range(t.ndim):
            size *= t.shape[i]
        header[name] = {"dtype": dtype, "shape": list(t.shape[:t.ndim]),
                        "data_offsets": [at, at + size]}
        parts.append((lent, size))
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64)
    fd = os.memfd_create(f"sinter-{label}", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for lent, size in parts:
                if size:
                    address = lent.dl.data + lent.dl.byte_offset
                    file.write((ctypes.c_char * size).from_address(address))
    except BaseException:
        os.close(fd)
        raise
    return fd


def text_file(text: str, label: str) -> int:
    """A text as a file that has no name: its descriptor."""
    fd = os.memfd_create(f"sinter-{label}", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(text.encode())
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
