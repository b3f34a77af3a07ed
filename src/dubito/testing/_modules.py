"""What the contracts of heads and channels share."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from ._cases import promise

LEADING = ((), (1,), (0,), (3,), (2, 3), (2, 0, 3))


def finite(x: Tensor | None) -> bool:
    """No NaN and no infinity; a missing tensor has none."""
    if x is None:
        return True
    return bool(torch.isfinite(x.to_dense() if x.is_sparse else x).all())


@contextmanager
def hygiene(what: str, *inputs: Tensor) -> Iterator[None]:
    """The global generators of torch, numpy and Python stay where they are, and the inputs as they are."""
    before = [x.detach().clone() for x in inputs]
    state, numbers, python = torch.get_rng_state(), np.random.get_state(), random.getstate()
    yield
    promise(torch.equal(state, torch.get_rng_state()), f"{what} leaves torch's global generator alone")
    same = all(np.array_equal(a, b) for a, b in zip(numbers, np.random.get_state()))
    promise(same, f"{what} leaves numpy's global generator alone")
    promise(python == random.getstate(), f"{what} leaves Python's global generator alone")
    for x, old in zip(inputs, before):
        promise(torch.equal(x.detach(), old), f"{what} does not change its input")


def gradcheck(module: nn.Module, call: Callable[[nn.Module, Tensor], Tensor], x: Tensor) -> int:
    """Derivatives with respect to the input and every parameter against differences, in float64."""
    bound = _Bound(copy.deepcopy(module).double(), call)
    named = {name: p.detach().clone().requires_grad_() for name, p in bound.named_parameters()}

    def run(x: Tensor, *values: Tensor) -> Tensor:
        found: Tensor = functional_call(bound, dict(zip(named, values)), (x,))
        return found

    inputs = (x.detach().double().clone().requires_grad_(), *named.values())
    torch.autograd.gradcheck(run, inputs)
    return len(inputs)


def compiled(function: Callable[..., object]) -> Callable[..., object]:
    """The function as one graph; a break in it is an error."""
    # torch gives up after a few graphs of one piece of code; every contract starts afresh.
    torch.compiler.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager")


class _Bound(nn.Module):
    """A module called in a given way, as `functional_call` wants it."""

    def __init__(self, inner: nn.Module, call: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.inner, self.call = inner, call

    def forward(self, x: Tensor) -> Tensor:
        return self.call(self.inner, x)
