"""The contract of a channel, runnable on a channel of your own."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from .. import links
from ._cases import DTYPES, close, during, extreme_scores, promise, random_scores
from ._modules import LEADING, compiled, finite, gradcheck, hygiene

_HUGE = 1e30


def check_channel(channel: nn.Module, num_classes: int, num_annotators: int | None = None) -> dict[str, int]:
    """Try every promise that the channels of this library make; AssertionError names the first broken one.

    Stochastic matrices ``T[true, observed]``, the product p T in the right orientation to 1e-10 in float64,
    outputs that sum to one, finite values and gradients for logits up to 1e30 in four precisions, rows
    independent of each other for any leading axes, gradcheck, one compiled graph with the same numbers, no
    global generator moved, no input changed. (Row-sparse channels: without gradcheck and graph.)

    Arguments:
        channel: a module with ``matrices()``, called as ``channel(log_p)``, or as
            ``channel(log_p, annotators)`` when `num_annotators` is given.
        num_classes, num_annotators: its sizes.

    Returns:
        How many cases each promise was tried on.

    Example:
        >>> from dubito.channels import AnnotatorConfusion
        >>> check_channel(AnnotatorConfusion(4, 3), 3, 4)["finite"] > 100
        True
    """
    logits = random_scores(6, num_classes, dtype=torch.float32)
    source = torch.Generator().manual_seed(0)
    ids = None if num_annotators is None else torch.randint(num_annotators, (6,), generator=source)
    _check_matrices(channel, num_classes, num_annotators)
    counts = {"matrices": num_annotators or 1}
    with during("p T in float64"):
        counts["product"] = _check_product(channel, logits, ids)
    with during("extreme logits"):
        counts["finite"] = _check_extremes(channel, num_classes, num_annotators)
    with during("shapes"):
        counts["shapes"] = _check_shapes(channel, logits, ids)
    if not getattr(channel, "sparse", False):
        counts |= _check_graph(channel, logits, ids)
    return counts


def _call(channel: nn.Module, log_p: Tensor, ids: Tensor | None) -> Tensor:
    found: Tensor = channel(log_p) if ids is None else channel(log_p, ids)
    return found


def _check_matrices(channel: nn.Module, num_classes: int, num_annotators: int | None) -> None:
    matrices = channel.matrices().detach()  # type: ignore[operator]
    leading = () if num_annotators is None else (num_annotators,)
    promise(matrices.shape == (*leading, num_classes, num_classes), "matrices are (K, K) or (R, K, K)")
    promise((matrices >= 0).all(), "matrices have no negative entry")
    promise(((matrices.sum(-1) - 1).abs() < 1e-5).all(), "rows of matrices sum to one")


def _check_product(channel: nn.Module, logits: Tensor, ids: Tensor | None) -> int:
    exact = copy.deepcopy(channel).double()
    log_p = logits.double().log_softmax(-1)
    with torch.no_grad(), hygiene("the channel", log_p):
        found = _call(exact, log_p, ids)
        matrices = exact.matrices()  # type: ignore[operator]
    wanted = (log_p.exp().unsqueeze(-2) @ (matrices if ids is None else matrices[ids])).squeeze(-2)
    promise(found.shape == wanted.shape, "log q has the shape of log p")
    promise(((found.exp() - wanted).abs() <= 1e-10 * wanted + 1e-30).all(), "q = p T to 1e-10")
    return len(wanted)


def _check_extremes(channel: nn.Module, num_classes: int, num_annotators: int | None) -> int:
    cases = 0
    for dtype in DTYPES:
        x = extreme_scores(num_classes, dtype, _HUGE).requires_grad_()
        ids = None if num_annotators is None else torch.arange(len(x)) % num_annotators
        log_q = _call(channel, links.log_softmax(x), ids)
        promise(log_q.dtype in (torch.float32, torch.float64), f"{dtype} gives float32 at least")
        promise(finite(log_q), f"log q is finite at extreme logits in {dtype}")
        promise((log_q.detach().logsumexp(-1).abs() < 1e-5).all(), f"q sums to one in {dtype}")
        channel.zero_grad()
        log_q.mean().backward()
        for name, grad in [("logits", x.grad), *((n, p.grad) for n, p in channel.named_parameters())]:
            promise(finite(grad), f"the gradient of {name} is finite at extreme logits in {dtype}")
        channel.zero_grad()
        cases += len(x)
    return cases


def _check_shapes(channel: nn.Module, logits: Tensor, ids: Tensor | None) -> int:
    log_p = logits.log_softmax(-1)
    rows = torch.stack([_call(channel, p, None if ids is None else ids[n]) for n, p in enumerate(log_p)])
    for leading in LEADING:
        count, shape = math.prod(leading), (*leading, log_p.shape[-1])
        some = None if ids is None else ids[:count].reshape(leading)
        found = _call(channel, log_p[:count].reshape(shape), some)
        same = close(found, rows[:count].reshape(shape), 1e-5)
        promise(same, f"leading axes {leading} give the same as a loop")
    return len(LEADING)


def _check_graph(channel: nn.Module, logits: Tensor, ids: Tensor | None) -> dict[str, int]:
    few = None if ids is None else ids[:2]
    with during("gradcheck"):
        count = gradcheck(channel, lambda module, x: _call(module, x.log_softmax(-1), few), logits[:2])
    with during("torch.compile"):
        log_p = logits.log_softmax(-1)
        graph = compiled(lambda p, r: _call(channel, p, r))(log_p, ids)
        same = close(graph, _call(channel, log_p, ids), 1e-5)  # type: ignore[arg-type]
        promise(same, "a compiled channel gives the same numbers")
    return {"gradcheck": count, "compiled": 1}
