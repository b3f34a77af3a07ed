"""Compiling and launching CUDA source by way of the libraries that come with torch's CUDA build."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..errors import DubitoError

AT_ONCE = 8  # compilers in parallel; each takes a third of a second for a convolution
Argument = Tensor | int | float | ctypes.Structure | None

_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_SHARED_OF_DEVICE = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN


def available() -> bool:
    """Whether there is a GPU with the instructions that the kernels use, and a compiler for it."""
    if not torch.cuda.is_available() or torch.version.cuda is None:
        return False
    if torch.cuda.get_device_capability() < (8, 0):
        return False
    try:
        _compiler(), _driver()
    except OSError:
        return False
    return True


def shared_memory() -> int:
    """Bytes of shared memory that a block may have on the current device."""
    device, found = ctypes.c_int(), ctypes.c_int()
    _cuda("cuDeviceGet", ctypes.byref(device), torch.cuda.current_device())
    _cuda("cuDeviceGetAttribute", ctypes.byref(found), _SHARED_OF_DEVICE, device)
    return found.value


@cache
def _compiler() -> ctypes.CDLL:
    major = str(torch.version.cuda).split(".")[0]
    return ctypes.CDLL(f"libnvrtc.so.{major}")


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _nvrtc(name: str, *arguments: Any) -> None:
    code = getattr(_compiler(), name)(*arguments)
    if code:
        raise DubitoError("the CUDA compiler failed", where=name, got=f"error {code}")


def _cuda(name: str, *arguments: Any) -> None:
    code = getattr(_driver(), name)(*arguments)
    if code:
        raise DubitoError("the CUDA driver failed", where=name, got=f"error {code}")


def compiled(source: str, names: Sequence[str]) -> dict[str, Kernel]:
    """Kernels by name (of templates, with their arguments), compiled for the current device."""
    torch.cuda.synchronize()  # so that the device's context exists, and is current, before modules are loaded
    architecture = "--gpu-architecture=sm_{}{}".format(*torch.cuda.get_device_capability())
    shares = [share for share in (names[i::AT_ONCE] for i in range(AT_ONCE)) if share]
    with ThreadPoolExecutor(len(shares)) as pool:
        built = pool.map(lambda share: _built(source, share, architecture.encode()), shares)
        found: dict[str, Kernel] = {}
        for binary, mangled in built:
            module = ctypes.c_void_p()
            _cuda("cuModuleLoadData", ctypes.byref(module), binary)
            found |= {name: Kernel(module, text) for name, text in mangled.items()}
    return found


def _built(source: str, names: Sequence[str], architecture: bytes) -> tuple[Any, dict[str, bytes]]:
    """Machine code, and the mangled names of the kernels in it."""
    program, nvrtc = ctypes.c_void_p(), _compiler()
    _nvrtc("nvrtcCreateProgram", ctypes.byref(program), source.encode(), b"dubito.cu", 0, None, None)
    try:
        for name in names:
            _nvrtc("nvrtcAddNameExpression", program, name.encode())
        options = (ctypes.c_char_p * 2)(architecture, b"--std=c++17")
        if nvrtc.nvrtcCompileProgram(program, len(options), options):
            raise DubitoError("the CUDA compiler refused the source", got=_log(program))
        size = ctypes.c_size_t()
        _nvrtc("nvrtcGetCUBINSize", program, ctypes.byref(size))
        binary = ctypes.create_string_buffer(size.value)
        _nvrtc("nvrtcGetCUBIN", program, binary)
        lowered = {}
        for name in names:
            text = ctypes.c_char_p()
            _nvrtc("nvrtcGetLoweredName", program, name.encode(), ctypes.byref(text))
            lowered[name] = bytes(text.value or b"")
    finally:
        _nvrtc("nvrtcDestroyProgram", ctypes.byref(program))
    return binary, lowered


def _log(program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    _nvrtc("nvrtcGetProgramLogSize", program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    _nvrtc("nvrtcGetProgramLog", program, text)
    return text.value.decode()[:2000]


class Kernel:
    """A function of a loaded module."""

    def __init__(self, module: ctypes.c_void_p, name: bytes) -> None:
        self.function, self.context, self.shared = ctypes.c_void_p(), ctypes.c_void_p(), 48 * 1024
        _cuda("cuCtxGetCurrent", ctypes.byref(self.context))
        _cuda("cuModuleGetFunction", ctypes.byref(self.function), module, name)

    def __call__(self, grid: Sequence[int], threads: int, shared: int, *arguments: Argument) -> None:
        """Launch on the current stream; tensors are passed as addresses, None as null, numbers in 32 bits."""
        _cuda("cuCtxSetCurrent", self.context)  # threads of autograd start without one
        if shared > self.shared:
            _cuda("cuFuncSetAttribute", self.function, _SHARED, shared)
            self.shared = shared
        values = [_argument(a) for a in arguments]
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        _cuda("cuLaunchKernel", self.function, *grid, threads, 1, 1, shared, stream, pointers, None)


def _argument(value: Argument) -> Any:
    if value is None:
        return ctypes.c_void_p(0)
    if isinstance(value, ctypes.Structure):
        return value
    if isinstance(value, Tensor):
        return ctypes.c_void_p(value.data_ptr())
    return ctypes.c_int(value) if isinstance(value, int) else ctypes.c_float(value)
