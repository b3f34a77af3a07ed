"""The contract of a head, runnable on a head of your own."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..heads import Latent
from ._cases import DTYPES, close, during, extreme_scores, promise, random_scores
from ._modules import LEADING, compiled, finite, gradcheck, hygiene

_HUGE = 1e3


def check_head(
    make: Callable[..., nn.Module], *, in_features: int = 4, num_classes: int = 3
) -> dict[str, int]:
    """Try every promise that the heads of this library make; AssertionError names the first broken one.

    Shapes for any leading axes, rows independent of each other, non-negative scales on heads that say they are
    `noisy`, finite values and gradients for large features in four precisions, gradcheck, one compiled graph with
    the same numbers, a start that depends on its generator alone, no global generator moved, no input changed.

    Arguments:
        make: called as ``make(in_features, num_classes, generator=generator)``, returns the head; a class
            or a `functools.partial` of one.
        in_features, num_classes: sizes to try.

    Returns:
        How many cases each promise was tried on.

    Example:
        >>> from dubito.heads import Diagonal
        >>> check_head(Diagonal)["finite"] > 100
        True
    """

    def build(seed: int) -> nn.Module:
        return make(in_features, num_classes, generator=torch.Generator().manual_seed(seed))

    x = random_scores(6, in_features, dtype=torch.float32)
    counts = {"start": _check_start(build)}
    head = build(0)
    if head(x).scale is not None:
        promise(
            getattr(head, "noisy", False), "a head whose latent has a scale has the attribute noisy = True"
        )
    with during("shapes"):
        counts["shapes"] = _check_shapes(head, x)
    with during("extreme features"):
        counts["finite"] = _check_finite(build, in_features)
    with during("gradcheck"):
        counts["gradcheck"] = gradcheck(head, lambda module, x: _joined(module(x)), x[:2])
    with hygiene("the head", x):
        wanted = _joined(head(x))
    with during("torch.compile"):
        graph = compiled(lambda x: _joined(head(x)))(x)
        promise(close(graph, wanted, 1e-5), "a compiled head gives the same numbers")  # type: ignore[arg-type]
    return {**counts, "hygiene": 1, "compiled": 1}


def _check_start(build: Callable[[int], nn.Module]) -> int:
    with hygiene("building the head"):
        first, second, other = build(0), build(0), build(1)
    pairs = list(zip(first.parameters(), second.parameters()))
    promise(all(torch.equal(a, b) for a, b in pairs), "the same generator gives the same start")
    moved = any(not torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters()))
    promise(moved or not pairs, "the start depends on the generator")
    return max(len(pairs), 1)


def _check_latent(latent: Latent, leading: tuple[int, ...]) -> None:
    promise(isinstance(latent, Latent), f"a head returns a Latent, not {type(latent).__name__}")
    promise(latent.mean.shape[:-1] == leading, f"mean keeps the leading axes {leading}")
    if latent.scale is not None:
        promise(latent.scale.shape == latent.mean.shape, "scale has the shape of mean")
        promise((latent.scale >= 0).all(), "scales are not negative")
    if latent.factors is not None:
        promise(latent.factors.shape[:-1] == latent.mean.shape, "factors are (..., K, R)")
    if latent.root is not None:
        promise(latent.root.shape[:-1] == leading, f"root keeps the leading axes {leading}")


def _check_shapes(head: nn.Module, x: Tensor) -> int:
    rows = [head(row) for row in x]
    for leading in LEADING:
        count = math.prod(leading)
        latent = head(x[:count].reshape(*leading, x.shape[-1]))
        _check_latent(latent, leading)
        for part, *alone in zip(latent, *rows[:count]):
            if part is not None and count:
                wanted = torch.stack(alone).reshape(part.shape)
                promise(close(part, wanted, 1e-5), f"leading axes {leading} give the same as a loop")
    return len(LEADING)


def _check_finite(build: Callable[[int], nn.Module], in_features: int) -> int:
    cases = 0
    for dtype in DTYPES:
        head = build(0).to(dtype)
        for row in extreme_scores(in_features, dtype, _HUGE):
            x = row.clone().requires_grad_()
            joined = _joined(head(x))
            promise(joined.dtype in (torch.float32, torch.float64), f"{dtype} features give float32 at least")
            promise(finite(joined), f"the latent of {row.tolist()} is finite in {dtype}")
            joined.sum().backward()
            promise(finite(x.grad), f"the gradient at {row.tolist()} is finite in {dtype}")
            cases += 1
    return cases


def _joined(latent: Latent) -> Tensor:
    leading = latent.mean.shape[:-1]
    parts = [part.reshape(*leading, -1) for part in latent if part is not None and part.numel()]
    return torch.cat(parts, -1)
