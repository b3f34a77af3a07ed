"""The CUDA kernels of dubito._fused on a CPU: their source by a C++ compiler, with emulation.h for the machine."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from dubito._fused import tiles
from dubito._fused.kernels import FILES, SIMPLE, Kernels, _source
from dubito._fused.nvrtc import Argument, _argument
from dubito._fused.tiles import Shape

COMPILER = shutil.which("g++") or shutil.which("clang++")
HEADER = Path(__file__).with_name("emulation.h")


def available() -> bool:
    """Whether there is a compiler."""
    return COMPILER is not None


class Emulated(Kernels):
    """`Kernels` without a GPU; `turned` runs the threads of a block in the other order."""

    def __init__(self, shapes: Iterable[Shape], folder: Path, images: int, turned: bool = False) -> None:
        launches = {launch.name for shape in shapes for launch in tiles.launches(shape, images)}
        names = [*SIMPLE, "unpool<64>", "unpool<128>", *sorted(launches)]
        self.ended = torch.zeros(1, dtype=torch.int32)
        library = ctypes.CDLL(str(_library(names, folder)))
        self.kernels = {name: _Kernel(library, place, turned) for place, name in enumerate(names)}


class _Kernel:
    def __init__(self, library: ctypes.CDLL, place: int, turned: bool) -> None:
        self.library, self.place, self.turned = library, place, turned

    def __call__(self, grid: Sequence[int], threads: int, shared: int, *arguments: Argument) -> None:
        values = [_argument(a) for a in arguments]
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
        self.library.start(self.place, (ctypes.c_int * 3)(*grid), threads, shared, pointers, self.turned)


def _library(names: Sequence[str], folder: Path) -> Path:
    cases = "\n".join(
        f"    case {i}: emulation::start(&{name}, shape, threads, shared, given, turned); break;"
        for i, name in enumerate(names)
    )
    end = f"""
extern "C" void start(int which, const int* shape, int threads, int shared, void** given, bool turned) {{
  switch (which) {{
{cases}
  }}
}}
"""
    memory = "extern __shared__ __align__(16) unsigned char memory[];"
    source = _source(FILES[1:]).replace(memory, "unsigned char* memory = shared_memory;")
    text = HEADER.read_text() + source.replace('extern "C" __global__', "__global__") + end
    file = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.cpp"
    built = file.with_suffix(".so")
    if not built.exists():
        file.write_text(text)
        command = [str(COMPILER), "-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-o"]
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".so", delete=False) as being:
            done = subprocess.run(
                [*command, being.name, str(file)], capture_output=True, text=True, check=False
            )
        assert done.returncode == 0, done.stderr[:4000]
        Path(being.name).rename(built)
    return built
