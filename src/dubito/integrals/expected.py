"""`expected_log_softmax`: the average softmax of all classes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .._numbers import check_choice
from .._tensors import at_least_float32, full_precision
from ..errors import DubitoError
from .all_classes import all_classes
from .border import Gaussian, as_latent, every_class, levelled
from .factors import factor_log_likelihood
from .fixed import NODES, fixed_log_likelihood
from .fused import QmcAllClasses, fits
from .fused_mean import on_device, simple
from .graphs import apart_from_graphs
from .noise import bank_of, check_kind, fresh_seed
from .one_factor import one_factor
from .report import Report, warn_of
from .sampling import by_mc, by_qmc, check_sampling, standard_error
from .two_classes import POINTS, TWO, joined

METHODS = ("auto", "quadrature", "fixed", "qmc", "mc")
_LOOSE = 3e-3  # from this tolerance on, a few hundred quasi-random points are cheaper than the panels
_FEW, _MANY = 256, 8192
_DEFAULT = 1e-4
_RULE_CLASSES = 64  # up to this many, panels over one factor cost little more than `_MANY` draws
_WITHIN = ("factors x quadrature", "given its factors the classes are independent")


@apart_from_graphs
@full_precision
def expected_log_softmax(
    mean: Tensor,
    scale: Tensor | float,
    *,
    factors: Tensor | None = None,
    temperature: float | Tensor = 1.0,
    method: str = "auto",
    samples: int = 1000,
    generator: torch.Generator | None = None,
    tol: float | None = None,
    noise: str = "normal",
    floor: float = 0.0,
    dim: int = -1,
    report: Callable[[Report], object] | None = None,
) -> Tensor:
    """Log of the expected tempered softmax of a Gaussian latent, all classes.

        log p_c = log E[ softmax(u / tau)_c ],   u = mean + scale * e + factors @ z,   e and z standard normal

    `torch.compile` runs it eagerly, between two graphs, whatever the method; ``fullgraph=True`` is refused.

    Shapes: mean and scale (..., K), factors (..., K, R), temperature a number or (..., 1); the result is (..., K).

    The tolerance is that of the probabilities, an absolute one. For the likelihood of one observed class, accurate
    even where it is tiny, use `expected_softmax_nll`.

    Arguments:
        mean, scale: location and standard deviation of each latent logit; scale may be 0.
        factors: the low-rank part of the noise.
        temperature: tau >= 0; a tensor can be learned. At 0, p_c is the probability that u_c is the largest.
        method: "quadrature" (deterministic; with factors, around a rule over them), "fixed" (class by class as in
            `expected_softmax_nll`; for `torch.vmap` and CUDA graphs), "qmc" (scrambled Sobol points shared by all
            rows), "mc" (random draws, as the papers do), or "auto": quadrature without factors, with one factor of
            up to 64 classes, and of two classes; else as many quasi-random points as `tol` asks for, up to 8,192.
        samples: how many draws "mc" and "qmc" take ("qmc": raised to a power of two).
        generator: the source of randomness of "mc" and "qmc"; without one every call uses the same draws.
        tol: absolute error to reach (default 1e-4); the report has the estimated error. If `tol` is given and not
            reached by "auto" or "quadrature", a warning says so, unless there is a report.
        noise: distribution of e: "normal", "logistic" or "gumbel"; the last two by "mc" and "qmc".
        floor: probabilities below it are raised to it, as other code does, which sets their gradient to 0.
        dim: the class axis.
        report: called with a `Report` (as ``reports.append``): which method was taken, why, and its error.

    Reference:
        collier2020 eq. 2, eq. 3, eq. 5, eq. 6, eq. 7

    Example:
        >>> mean, scale = torch.tensor([1.0, 0.0, -0.5]), torch.tensor([0.5, 1.0, 2.0])
        >>> expected_log_softmax(mean, scale).exp()
        tensor([0.5239, 0.2394, 0.2367])
        >>> expected_log_softmax(mean, scale, temperature=0.0).exp()
        tensor([0.6335, 0.1492, 0.2173])
    """
    check_choice(method, METHODS, "method")
    check_kind(noise)
    asked, tol = tol, _DEFAULT if tol is None else tol
    if not tol > 0:
        raise DubitoError("the tolerance must be positive", got=tol)
    bare = report is None and not floor > 0 and dim in (-1, mean.dim() - 1)
    panels = noise == "normal" and (method == "quadrature" or (method == "auto" and tol < _LOOSE))
    if bare and factors is None and (panels or method == "qmc") and simple(mean, scale, temperature):
        if panels:
            return _on_device(mean, scale, temperature, tol, None)  # type: ignore[arg-type]
        if fits(mean.shape[-1]):
            check_sampling("qmc", samples)
            bank = bank_of(mean, samples, fresh_seed(generator), noise)
            return _on_device(mean, scale, temperature, tol, bank)  # type: ignore[arg-type]
    latent = as_latent(mean, scale, factors, temperature, dim)
    chosen = choose(method, latent, noise, tol)
    draws = _Draws(samples, fresh_seed(generator), noise)
    log_p, found = _compute(latent, method, chosen, draws, tol, estimate=report is not None)
    if report is not None:
        report(found)
    elif asked is not None and method in ("auto", "quadrature") and found.method in ("qmc", _WITHIN[0]):
        warn_of(found)
    if floor > 0:
        log_p = log_p.clamp(min=torch.tensor(floor).log().item())
    return log_p if dim in (-1, log_p.dim() - 1) else log_p.movedim(-1, dim)


class _Draws(NamedTuple):
    samples: int
    seed: int
    noise: str


def _compute(
    latent: Gaussian, method: str, chosen: tuple[str, str], draws: _Draws, tol: float, *, estimate: bool
) -> tuple[Tensor, Report]:
    """log p of all classes by the chosen method, of which (name, reason) are given, and its report."""
    name, reason = chosen
    if name == "quadrature":
        log_p, off = _by_quadrature(joined(latent), tol)
        return log_p, Report(name, reason, POINTS if latent.mean.shape[-1] == 2 else 0, off, tol)
    if name == "fixed":
        log_p, off = _class_by_class(latent)
        return log_p, Report(name, reason, 2 * NODES + 2, off, tol)
    if name == _WITHIN[0]:
        log_p, off, points = _within_factors(latent, tol, draws.seed)
        return log_p, Report(name, reason, points, off, tol)
    check_sampling(name, draws.samples)
    error: Tensor | None = None
    if method == "auto":
        samples, error = _enough(latent, tol, draws.seed, draws.noise)
        draws = draws._replace(samples=samples)
    log_p = by_qmc(latent, *draws) if name == "qmc" else by_mc(latent, *draws)
    if estimate and error is None:
        error = standard_error(name, latent, *draws).amax(-1)
    return log_p, Report(name, reason, draws.samples, error, tol)


def _on_device(mean: Tensor, scale: Tensor, temperature: float, tol: float, bank: Tensor | None) -> Tensor:
    """The short way to the kernels, where every small operation costs time: panels, or draws if there is a bank."""
    shape, classes = mean.shape, mean.shape[-1]
    mean, scale = at_least_float32(mean), at_least_float32(scale)
    if mean.dim() != 2:
        mean, scale = mean.reshape(-1, classes), scale.reshape(-1, classes)
    tau = on_device(mean.device, float(temperature))
    if bank is None:
        log_p, _ = all_classes(mean, scale, tau.expand(len(mean), 1), tol)
    else:
        log_p = QmcAllClasses.apply(mean, scale, tau, bank)  # type: ignore[no-untyped-call]
    return log_p if log_p.shape == shape else log_p.reshape(shape)


def choose(method: str, latent: Gaussian, noise: str, tol: float) -> tuple[str, str]:
    """The method for all classes and the reason for it."""
    if method in ("mc", "qmc"):
        return method, "as asked"
    if latent.mean.shape[-1] == 2 and noise == "normal" and method != "fixed":
        return "quadrature", TWO
    if noise != "normal" or latent.factors is not None:
        what = f"{noise} noise" if noise != "normal" else "a latent with factors"
        one = latent.rank == 1 and latent.mean.shape[-1] <= _RULE_CLASSES and tol < _LOOSE
        exact = method == "quadrature" or (method == "auto" and one)
        if exact and noise == "normal":
            return _WITHIN
        if method in ("quadrature", "fixed"):
            raise DubitoError(f"no quadrature for all classes with {what}", remedy='use method="qmc"')
        return "qmc", f"{what} has no one-dimensional form"
    if method == "fixed":
        return method, "as asked"
    if method == "auto" and tol >= _LOOSE:
        return "qmc", f"cheaper for a tolerance of {tol:g}"
    return "quadrature", "independent classes: one integral over the value of the largest"


def _by_quadrature(latent: Gaussian, tol: float) -> tuple[Tensor, Tensor]:
    shape, classes = latent.mean.shape, latent.mean.shape[-1]
    if latent.mean.dim() == 2:
        return all_classes(latent.mean, latent.scale, latent.temperature, tol)
    flat = (
        latent.mean.reshape(-1, classes),
        latent.scale.reshape(-1, classes),
        latent.temperature.reshape(-1, 1),
    )
    log_p, error = all_classes(*flat, tol)
    return log_p.reshape(shape), error.reshape(shape[:-1])


def _class_by_class(latent: Gaussian) -> tuple[Tensor, Tensor]:
    """The likelihood of each class in turn, every one around its own mode; and the largest error of a row."""
    rows, target = every_class(latent)
    log_p, error = fixed_log_likelihood(rows.mean, rows.scale, rows.temperature, target)
    return log_p, (error * log_p.detach().exp()).amax(-1)


def _within_factors(latent: Gaussian, tol: float, seed: int) -> tuple[Tensor, Tensor, int]:
    """log p, the largest error of a row, and the points over the factors: with one factor of all classes at once.

    With more, classes are integrated one by one, so their sum differs from 1 by an error that no rule can hide.
    Classes of probability far below `tol` are not refined.
    """
    latent = levelled(latent)
    if latent.rank == 1:
        assert latent.factors is not None
        shape, classes = latent.mean.shape, latent.mean.shape[-1]
        mean, scale, factor = (
            x.reshape(-1, classes) for x in (latent.mean, latent.scale, latent.factors[..., 0])
        )
        log_p, error, points = one_factor(mean, scale, factor, latent.temperature.reshape(-1, 1), tol)
        return log_p.reshape(shape), error.reshape(shape[:-1]), points
    rows, target = every_class(latent)
    log_p, error, points = factor_log_likelihood(rows, target, tol, seed, least=math.log(tol / 100))
    p = log_p.detach().exp()
    return log_p, torch.maximum((error * p).amax(-1), (p.sum(-1) - 1).abs()), points


def _enough(latent: Gaussian, tol: float, seed: int, noise: str) -> tuple[int, Tensor]:
    """How many quasi-random points reach `tol` on the worst row, at most `_MANY`; and the error of each row."""
    samples = _FEW
    while True:
        error = standard_error("qmc", latent, samples, seed, noise)
        if samples == _MANY or error.numel() == 0 or float(error.max()) <= tol:
            return samples, error.amax(-1)
        samples *= 2
