"""The likelihood of one class with a fixed number of steps and nodes, whatever the values are.

`quadrature` refines the rows whose error is too large, which a CUDA graph cannot capture and `torch.vmap` cannot
map. Here every row gets the same work: a number of steps towards the mode and the ends of its integrand, then
tanh-sinh nodes on both sides of the mode. The error is estimated and reported, but not acted upon.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .border import mapped_first
from .likelihood import Answer, Nodes, integrate
from .rows import Rows, make_rows, rough_log_integrand
from .search import both_sides, bracket, curvature, look, nearer, signs
from .two_classes import two_log_likelihood

NODES = 40  # per side, besides the mode
_TO_MODE, _TO_ENDS = 14, 10
_DROP = 17.0
_ELEMENTS = {"cpu": 1 << 18}  # rows x classes x nodes worked on at a time: what fits into a cache
_MOST_ELEMENTS = 1 << 25  # on a GPU


class FixedLikelihood(torch.autograd.Function):
    """log p of the target (B,) and its error; the gradients come out of the forward pass. Mapped by flattening."""

    @staticmethod
    def forward(mean: Tensor, scale: Tensor, temperature: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        """mean, scale (..., K), temperature (..., 1), target (...)."""
        flat = [x.reshape(-1, x.shape[-1]) for x in (mean, scale, temperature)]
        size = max(1, _ELEMENTS.get(mean.device.type, _MOST_ELEMENTS) // (mean.shape[-1] * 2 * NODES))
        parts = zip(*(x.split(size) for x in (*flat, target.reshape(-1))))
        rule = two_log_likelihood if mean.shape[-1] == 2 else fixed_rule
        answers = [rule(*part) for part in parts]
        answer = Answer(*(torch.cat(column) for column in zip(*answers)))
        rows, shapes = (answer.log_p, answer.error), (mean.shape, scale.shape, temperature.shape)
        slopes = (answer.d_mean, answer.d_scale, answer.d_temperature)
        return *(x.reshape(target.shape) for x in rows), *(d.reshape(s) for d, s in zip(slopes, shapes))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        """Keep the gradients."""
        ctx.save_for_backward(*output[2:])
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """Scale them."""
        d_mean, d_scale, d_temperature = (grad.unsqueeze(-1) * d for d in ctx.saved_tensors)
        return d_mean, d_scale, d_temperature, None

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Any, Any]:
        """Rows are independent, so the mapped axis becomes a leading one."""
        whole = [mapped_first(x, dim, info.batch_size) for x, dim in zip(inputs, dims)]
        return FixedLikelihood.apply(*whole), (0,) * 5  # type: ignore[no-untyped-call]


def fixed_log_likelihood(
    mean: Tensor, scale: Tensor, temperature: Tensor, target: Tensor
) -> tuple[Tensor, Tensor]:
    """log p of the target and its estimated error, (...), for mean, scale (..., K), temperature (..., 1)."""
    log_p, error, *_ = FixedLikelihood.apply(mean, scale, temperature, target)  # type: ignore[no-untyped-call]
    return log_p, error


def fixed_rule(mean: Tensor, scale: Tensor, temperature: Tensor, target: Tensor) -> Answer:
    """The same steps and nodes for all rows; mean, scale (B, K), temperature (B, 1), target (B,)."""
    rows = make_rows(mean, scale.clamp(min=1e-6), temperature, target)
    mode = _mode(rows)
    peak, _, second = rough_log_integrand(rows, mode, branchless=True)
    nodes = _tanh_sinh(_ends(rows, mode, peak, curvature(second)))
    return integrate(rows, mode, nodes, 2, exact=False)


def _mode(rows: Rows) -> Tensor:
    """As `search.find_mode`, in a fixed number of steps."""
    low, high, t = bracket(rows)
    for _ in range(_TO_MODE):
        _, first, second = rough_log_integrand(rows, t, branchless=True)
        low, high, t = nearer(low, high, t, first, second)
    return t


def _ends(rows: Rows, mode: Tensor, peak: Tensor, bend: Tensor) -> Tensor:
    """The distances (B, 2) at which the integrand has dropped by `_DROP` nats or somewhat more."""
    root = math.sqrt(_DROP)
    side = both_sides(rows, bend, root)
    for step in range(_TO_ENDS):
        side, _ = look(rows, mode, peak, side, root, step, branchless=True)
    return torch.where(side.outer.isinf(), side.next, side.outer)


def _tanh_sinh(reach: Tensor) -> Nodes:
    """`NODES` + 1 nodes on each side of the mode, thickening towards both ends of the side."""
    k = torch.linspace(-3.0, 3.0, NODES + 1, dtype=reach.dtype, device=reach.device)
    g = math.pi * k.sinh()
    log_weight = (k.cosh() * (6.0 / NODES * math.pi)).log() + F.logsigmoid(g) + F.logsigmoid(-g)
    offset = (reach * signs(reach)).unsqueeze(1) * torch.sigmoid(g)[:, None]
    weight = reach.log().unsqueeze(1) + log_weight[:, None]
    return Nodes(offset.flatten(1), weight.flatten(1), reach.new_zeros(len(reach), dtype=torch.bool))
