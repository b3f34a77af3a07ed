"""`expected_softmax_nll`: the likelihood of the observed class under a Gaussian latent, exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._numbers import check_choice
from .._tensors import check_indices, expect, full_precision, reduce
from ..errors import DubitoError
from . import fused_mean
from .border import Gaussian, as_latent, every_class, levelled
from .factors import PRODUCT_RANK, factor_log_likelihood
from .fixed import NODES, fixed_log_likelihood
from .fused import QmcLikelihood, fits, ready, scaled_gradients
from .graphs import apart_from_graphs
from .noise import bank_of, check_kind, fresh_seed, power_of_two
from .quadrature import MOST_NODES, default_tolerance, quick_nodes, solve_any
from .report import Report, warn_of
from .sampling import by_mc, by_qmc, likelihood_error
from .two_classes import POINTS, TWO, joined

METHODS = ("auto", "quadrature", "fixed", "qmc", "mc")
_MANY = 1 << 15
# With more factors than this, and no tolerance asked for, "auto" spends about what `samples` draws cost.
_CHEAP_RANK = 2
_DRAWS_PER_POINT = 8  # draws of all noise that cost as much as one point over the factors


class _Likelihood(torch.autograd.Function):
    """log p of the target by quadrature; the forward pass computes the gradients, the backward pass scales them."""

    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, scale: Tensor, temperature: Tensor, target: Tensor, tol: float
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        answer, hard = solve_any(mean, scale, temperature, target, tol)
        ctx.save_for_backward(answer.d_mean, answer.d_scale, answer.d_temperature)
        ctx.dtypes = (mean.dtype, scale.dtype, temperature.dtype)
        # With more than two classes, the kernels mark every row of p = 0 as hard.
        ctx.lost = hard is not None or not mean.is_cuda or mean.shape[-1] == 2
        ctx.mark_non_differentiable(*(x for x in (answer.error, hard) if x is not None))
        return answer.log_p, answer.error, hard

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        # Only an infinite gradient turns the zeros of a lost row into NaN.
        lost = ctx.lost and (grad.is_cuda or not math.isfinite(float(grad.sum())))
        return *scaled_gradients(ctx, grad, lost), None, None


def log_likelihood(latent: Gaussian, target: Tensor, tol: float) -> tuple[Tensor, Tensor, int]:
    """log p of the target, its error, and how many rows took the thorough rule, for independent classes."""
    log_p, error, hard = _Likelihood.apply(*_flat(latent, target), tol)  # type: ignore[no-untyped-call]
    count = 0 if hard is None else int(hard.sum())
    if target.dim() == 1:
        return log_p, error, count
    return log_p.reshape(target.shape), error.reshape(target.shape), count


def _flat(latent: Gaussian, target: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """mean, scale (B, K), temperature (B, 1), target (B,); no view is made of what has this shape already."""
    mean, scale, tau = latent.mean, latent.scale, latent.temperature
    if target.dim() == 1:
        return mean, scale, tau, target
    classes = mean.shape[-1]
    return mean.reshape(-1, classes), scale.reshape(-1, classes), tau.reshape(-1, 1), target.reshape(-1)


@apart_from_graphs
@full_precision
def expected_softmax_nll(
    mean: Tensor,
    scale: Tensor | float,
    target: Tensor,
    *,
    factors: Tensor | None = None,
    temperature: float | Tensor = 1.0,
    method: str = "auto",
    samples: int = 1000,
    generator: torch.Generator | None = None,
    tol: float | None = None,
    noise: str = "normal",
    dim: int = -1,
    ignore_index: int = -100,
    reduction: str = "mean",
    report: Callable[[Report], object] | None = None,
) -> Tensor:
    """Minus the log of the expected tempered softmax of the observed class.

        -log E[ softmax(u / tau)_y ],   u = mean + scale * e + factors @ z,   e and z standard normal

    softmax(u / tau)_y is the probability that y wins among u_k + tau g_k with g_k Gumbel, so without factors

        p_y = integral of f_y(t) prod_{k != y} F_k(t) dt

    with F_k and f_k the distribution function and density of a Gaussian plus a scaled Gumbel. The quadrature places
    its nodes around the mode of the integrand: no samples, no noise in the gradient, accurate even where p is
    1e-30, and at any temperature down to 0, the multinomial probit. Two classes, with or without factors, are one
    Gaussian and exact. With up to three factors, the integral is averaged by a Gauss-Hermite rule over z, which is
    checked against quasi-random points where factors are so large compared with scale and temperature that p is a
    step. With more factors "auto" takes quasi-random points over all noise, which were better at equal cost, and
    method="quadrature" takes them over the factors, around the integral.

    `torch.compile` runs it eagerly, between two graphs, whatever the method; ``fullgraph=True`` is refused.

    Shapes: mean and scale (..., K), factors (..., K, R), target (...), temperature a number or (..., 1).

    Arguments:
        mean, scale: location and standard deviation of each latent logit; scale may be 0.
        target: class indices, or class weights (..., K) for the weighted sum of the classes' terms.
        factors: the low-rank part of the noise, on top of the diagonal part `scale`.
        temperature: tau >= 0; a tensor can be learned.
        method: "quadrature" (exact; with factors, inside a rule over them), "fixed" (the same integral with a fixed
            number of nodes: it can be mapped by `torch.vmap` and captured as a CUDA graph, but refines nothing),
            "qmc" (scrambled Sobol points), "mc" (random draws), or "auto".
        samples: how many draws "mc" and "qmc" take.
        generator: the source of randomness of "mc" and "qmc"; without one every call uses the same draws.
        tol: error of log p to reach (default 1e-7 in float64, 2e-5 in float32; 1e-3 with factors). If it is given
            and "auto" samples, their number is raised until it is met, up to 32,768; if it is not met, a warning
            says so, unless there is a report. If it is not given, "auto" spends about what `samples` draws cost on
            a latent of three factors or more, and the estimated error may exceed the default.
        noise: "normal"; "logistic" or "gumbel" with "mc" and "qmc".
        dim: the class axis. ignore_index, reduction: as in `torch.nn.functional.cross_entropy`.
        report: called with a `Report` (as ``reports.append``): which method was taken, why, and its error.

    Reference:
        collier2020 eq. 3, eq. 4, eq. 6, eq. 7
        englesson2023 eq. 13, eq. 14

    Example:
        >>> mean, scale = torch.tensor([[1.0, 0.0, -0.5]]), torch.tensor([[0.5, 1.0, 2.0]])
        >>> round(float(expected_softmax_nll(mean, scale, torch.tensor([0])).neg().exp()), 5)
        0.52387
    """
    check_choice(method, METHODS, "method")
    check_kind(noise)
    if tol is not None and not tol > 0:
        raise DubitoError("the tolerance must be positive", got=tol)
    ordinary = factors is None and noise == "normal" and method not in ("mc", "fixed")
    bare = reduction == "mean" and report is None and dim in (-1, mean.dim() - 1)
    if ordinary and bare and fused_mean.plain(mean, scale, target, temperature):
        bank = bank_of(mean, samples, fresh_seed(generator), noise) if method == "qmc" else None
        if method != "qmc" or fits(mean.shape[-1]):
            return fused_mean.mean_loss(mean, scale, target, temperature, ignore_index, tol, bank)  # type: ignore[arg-type]
    fused = ordinary and ready(mean)
    latent = as_latent(mean, scale, factors, temperature, dim, keep_half=fused)
    weights = kept = None
    unread = method == "fixed" or fused  # no branch on values, which would wait for the GPU
    if target.is_floating_point():
        weights = target.movedim(dim, -1)
        latent, target = _weighed(latent, weights)
    else:
        check_indices(target, latent.mean, ignore_index)
        kept = target != ignore_index
        if unread:
            target = target * kept
        elif bool(kept.all()):
            kept = None
    warns = method in ("auto", "quadrature") and tol is not None and report is None
    options = _Options(method, samples, fresh_seed(generator), tol, noise, report is not None or warns)
    if kept is None or unread:
        log_p, result = _dispatch(latent, target.long(), options)
    else:
        some = Gaussian(*(None if x is None else x[kept] for x in latent))  # type: ignore[arg-type]
        log_p, result = _dispatch(some, target[kept].long(), options)
        log_p = log_p.new_zeros(target.shape).masked_scatter(kept, log_p)
    if report is not None:
        report(result)
    elif warns and result.method in ("qmc", "factors x quadrature"):
        warn_of(result)
    if weights is not None:
        log_p = expect(log_p, weights.to(log_p.dtype))
    return reduce(-log_p, kept, reduction)


class _Options(NamedTuple):
    method: str
    samples: int
    seed: int
    tol: float | None
    noise: str
    estimate: bool


def _dispatch(latent: Gaussian, target: Tensor, options: _Options) -> tuple[Tensor, Report]:
    """Per-example log p by the chosen method."""
    method, reason = choose(options.method, latent, options.noise)
    if method == "quadrature":
        goal = options.tol if options.tol is not None else default_tolerance(latent.mean.dtype)
        log_p, off, hard = log_likelihood(joined(latent), target, goal)
        points = POINTS if latent.mean.shape[-1] == 2 else quick_nodes(latent.mean.dtype)
        if hard:
            points, reason = MOST_NODES, f"{reason}; {hard} rows by the thorough rule"
        return log_p, Report(method, reason, points, off, goal)
    if method == "fixed":
        log_p, off = fixed_log_likelihood(latent.mean, latent.scale, latent.temperature, target)
        goal = options.tol if options.tol is not None else default_tolerance(latent.mean.dtype)
        return log_p, Report(method, reason, 2 * NODES + 2, off, goal)
    goal = options.tol if options.tol is not None else 1e-3
    if method == "factors x quadrature":
        few = options.method == "auto" and options.tol is None and latent.rank > _CHEAP_RANK
        most = options.samples / _DRAWS_PER_POINT if few else math.inf
        log_p, off, points = factor_log_likelihood(levelled(latent), target, goal, options.seed, most=most)
        return log_p, Report(method, reason, points, off, goal)
    if options.method == "auto" and options.tol is not None:
        options = options._replace(samples=_enough(latent, target, options, goal))
    settings = (latent, options.samples, options.seed, options.noise)
    if method == "qmc" and latent.factors is None and ready(latent.mean) and fits(latent.mean.shape[-1]):
        log_p = _fused_qmc(latent, target, options)
    else:
        log_p = expect(by_qmc(*settings) if method == "qmc" else by_mc(*settings), target)
    error: Tensor | None = None
    if options.estimate:
        error = likelihood_error(log_p, target, method, *settings)
    return log_p, Report(method, reason, options.samples, error, goal)


def _enough(latent: Gaussian, target: Tensor, options: _Options, goal: float) -> int:
    """How many quasi-random points reach a tolerance that was asked for, at most `_MANY`."""
    samples = power_of_two(options.samples)
    while samples < _MANY and target.numel() > 0:
        settings = (latent, samples, options.seed, options.noise)
        with torch.no_grad():
            log_p = expect(by_qmc(*settings), target)
        error = likelihood_error(log_p, target, "qmc", *settings)
        if float(error.max()) <= goal:
            break
        samples *= 2
    return samples


def _fused_qmc(latent: Gaussian, target: Tensor, options: _Options) -> Tensor:
    """The kernel for shared quasi-random points."""
    bank = bank_of(latent.mean, options.samples, options.seed, options.noise)
    log_p: Tensor = QmcLikelihood.apply(*_flat(latent, target), bank)  # type: ignore[no-untyped-call]
    return log_p if target.dim() == 1 else log_p.reshape(target.shape)


def choose(method: str, latent: Gaussian, noise: str) -> tuple[str, str]:
    """The method for a likelihood and the reason for it."""
    if noise != "normal" and method in ("quadrature", "fixed"):
        raise DubitoError("quadrature is for normal noise", got=repr(noise), remedy='use method="qmc"')
    if method == "fixed" and latent.factors is not None:
        raise DubitoError("the fixed rule is for independent classes", remedy='use method="auto"')
    if method == "auto" and noise != "normal":
        return "qmc", f"{noise} noise has no quadrature"
    if method in ("mc", "qmc", "fixed"):
        return method, "as asked"
    if latent.mean.shape[-1] == 2:
        return "quadrature", TWO
    if latent.factors is None:
        return "quadrature", "independent classes: a one-dimensional integral"
    if method == "auto" and latent.rank > PRODUCT_RANK:
        return (
            "qmc",
            f"{latent.rank} factors: at equal cost draws over everything are better than a rule over them",
        )
    return "factors x quadrature", "given its factors the classes are independent"


def _weighed(latent: Gaussian, weights: Tensor) -> tuple[Gaussian, Tensor]:
    """One copy of each row per class, for targets that are weights of all classes."""
    if weights.shape != latent.mean.shape:
        raise DubitoError(
            "a float target must give one weight per class",
            expected=tuple(latent.mean.shape),
            got=tuple(weights.shape),
            remedy="pass class indices as integers (target.long())",
        )
    return every_class(latent)
