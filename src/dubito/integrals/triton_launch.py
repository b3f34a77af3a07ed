# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"
"""Launching Triton kernels by their compiled handles, and a logarithm. Imported only where Triton is.

Triton's front end inspects every argument at every call, which takes longer than many of these kernels run. Here
only the first call of each kind goes through it; later calls use the compiled handle that it returned.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

# Whether to take the processor's logarithm, by PTX: Triton's own is a polynomial of twenty operations.
PTX = tl.constexpr(torch.version.hip is None and os.environ.get("TRITON_INTERPRET", "0") in ("", "0"))

# Arguments as in the Triton version that this was tested with; hooks for profilers are left out.
_DIRECT = torch.version.hip is None and triton.__version__.startswith("3.6.")


@triton.jit
def log2(x):
    """The logarithm to base 2 by the processor's own instruction, to 2^-22."""
    if PTX:
        return tl.inline_asm_elementwise(
            "lg2.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return tl.log2(x)


@triton.jit
def log(x):
    """The natural logarithm, to 2e-7."""
    return log2(x) * 0.6931471805599453


class Launcher:
    """A kernel whose integers are not specialised and whose compile-time constants come last."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.handles: dict[Any, Any] = {}

    def __call__(
        self,
        programs: int,
        given: tuple[Tensor, ...],
        rest: tuple[Any, ...],
        constants: tuple[Any, ...],
        warps: int,
    ) -> None:
        """Run it over `given` (tensors of a caller), the other arguments and the constants."""
        index = given[0].device.index
        if index is not None and index != torch.cuda.current_device():  # another GPU than the current one
            with torch.cuda.device(index):
                return self(programs, given, rest, constants, warps)
        places = 0
        for x in given:
            places |= x.data_ptr()
        if places & 15:  # compiled for pointers that are multiples of 16
            self.kernel[(programs,)](*given, *rest, *constants, num_warps=warps)
            return
        key = (index, tuple(x.dtype for x in given), constants, warps)
        handle = self.handles.get(key)
        if handle is None:
            self.handles[key] = self.kernel[(programs,)](*given, *rest, *constants, num_warps=warps)
        elif _DIRECT:
            stream = torch._C._cuda_getCurrentRawStream(index)
            meta = handle.packed_metadata
            # As addresses: for tensors, Triton would ask the driver each time whether they are on the device.
            addresses = [x.data_ptr() if isinstance(x, Tensor) else x for x in (*given, *rest)]
            handle.run(
                programs, 1, 1, stream, handle.function, meta, None, None, None, *addresses, *constants
            )
        else:
            handle[(programs, 1, 1)](*given, *rest, *constants)
