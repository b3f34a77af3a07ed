"""One model behind the papers: backbone -> head -> link -> channel, and the loss that reads it.

    x -> backbone -> h -> head -> latent -> link -> log p(y | x) -> channel -> log p(y~ | x) -> loss(., target)

Stages combine freely; the few combinations that mean nothing are refused by `check_stages` before training.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from . import heads, links
from ._loss_calls import Loss as Loss
from ._loss_calls import check_call, check_values, like_head, own_loss, unwrap
from ._tensors import at_least_float32, check_distribution
from .errors import DubitoError
from .losses import BODIES, bi_tempered, logistic_normal_nll, nll
from .losses.bi_tempered import _bi_tempered
from .losses.logistic_normal import _logistic_normal


class Model(nn.Module):
    """A classifier that knows the difference between the true and the observed label.

    Arguments:
        backbone: any module that maps inputs to features (..., F).
        head: a module that maps features to a `heads.Latent` over K classes.
        temperature: tau, divides the logits: softmax(u / tau). A module without arguments (a learnable
            temperature) or a number.
        integration: how the expected softmax of a Gaussian head is computed: auto, quadrature, fixed, qmc or mc.
        samples: draws per example for qmc and mc.
        link: replaces the head's own link: a function of the mean logits that returns log-probabilities; for
            predictions after `bi_tempered` partial(links.tempered_log_softmax, t=t2).
        channel: log p(true) -> log p(observed); None takes observed labels as true.

    Example:
        >>> model = Model(nn.Identity(), heads.Point(4, 3))
        >>> model(torch.zeros(2, 4)).exp().sum(-1).allclose(torch.ones(2))
        True
    """

    evaluation_batch = 1024  # examples scored at a time, by default
    compiled_methods: tuple[str, ...] = ("latent",)  # what `fit(compile=True)` compiles

    def __init__(
        self,
        backbone: nn.Module,
        head: nn.Module,
        *,
        temperature: float | nn.Module = 1.0,
        integration: str = "auto",
        samples: int = 1000,
        link: Callable[[Tensor], Tensor] | None = None,
        channel: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if not hasattr(head, "num_classes"):
            raise DubitoError(
                "not a head",
                expected="a module of dubito.heads, as Point(features, classes)",
                got=type(head).__name__,
                remedy="give the last linear layer as dubito.Point",
            )
        if channel is not None and not isinstance(channel, nn.Module):
            raise DubitoError(
                "not a channel",
                expected="a module of dubito.channels, as LearnedTransition(classes)",
                got=repr(channel)[:80],
            )
        if not isinstance(temperature, Real | Tensor | nn.Module):
            raise DubitoError(
                "not a temperature",
                expected="a number, or a module as links.BoundedTemperature(), which is learned",
                got=repr(temperature)[:80],
            )
        self.backbone, self.head, self.channel = backbone, head, channel
        self.temperature, self.integration, self.samples, self.link = temperature, integration, samples, link

    def __getstate__(self) -> dict[str, Any]:
        """Without methods compiled by `fit(compile=True)`: in a copy they would still read this model's weights."""
        return {name: value for name, value in vars(self).items() if name not in self.compiled_methods}

    @property
    def num_classes(self) -> int:
        """K, the number of real classes."""
        return int(self.head.num_classes)  # type: ignore[arg-type]

    @property
    def tau(self) -> Any:
        """The temperature as a number or a tensor."""
        return self.temperature() if isinstance(self.temperature, nn.Module) else self.temperature

    def latent(self, x: Tensor) -> heads.Latent:
        """The head's distribution over logits, in float32 at least.

        Under autocast only the backbone runs in half precision: a head costs little, and a small temperature
        would magnify its rounding errors.
        """
        features = self.backbone(x)
        kind = features.device.type
        if not torch.is_autocast_enabled(kind):
            return self.head(features)  # type: ignore[no-any-return]
        with torch.autocast(kind, enabled=False):
            return self.head(at_least_float32(features))  # type: ignore[no-any-return]

    def at_full_size(self, latent: heads.Latent) -> heads.Latent:
        """The latent for losses that read it directly; a model of pixels enlarges it to the size of the mask."""
        return latent

    def log_probs(
        self,
        latent: heads.Latent,
        *,
        noise: tuple[Tensor, Tensor | None] | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """log p(true class | x), shape (..., K). `noise` = (eps, factor_eps) makes sampling a pure function."""
        if self.link is not None:
            return self.link(latent.mean)
        if latent.root is not None:
            return links.logistic_normal_log_softmax(
                latent.mean,
                temperature=self.tau,
                dummy=self.head.dummy,  # type: ignore[arg-type]
            )
        if latent.scale is None:
            if isinstance(self.temperature, float | int) and self.temperature == 1:
                return latent.mean.log_softmax(-1)
            return links.log_softmax(latent.mean, temperature=self.tau)
        if noise is not None:
            return links.sampled_log_softmax(
                latent.mean,
                latent.scale,
                noise[0],
                factors=latent.factors,
                factor_noise=noise[1],
                temperature=self.tau,
            )
        return links.expected_log_softmax(
            latent.mean,
            latent.scale,
            factors=latent.factors,
            temperature=self.tau,
            method=self.integration,
            samples=self.samples,
            generator=generator,
        )

    def forward(self, x: Tensor) -> Tensor:
        """log p(true class | x), the model's prediction."""
        return self.log_probs(self.latent(x))

    def observed(self, log_p: Tensor, annotators: Tensor | None = None) -> Tensor:
        """log p(observed label | x), given the annotator of each row where the channel has several."""
        if self.channel is None:
            return log_p
        several = getattr(self.channel, "per_annotator", False)
        if several and annotators is None:
            raise DubitoError(
                "the channel has a matrix per annotator, and nobody gave these labels",
                remedy="pass annotators=, one number per label",
            )
        found: Tensor = self.channel(log_p, annotators) if several else self.channel(log_p)
        return found


def example_losses(
    model: Model,
    latent: heads.Latent,
    target: Tensor,
    loss: Loss = nll,
    *,
    row: Tensor | None = None,
    annotators: Tensor | None = None,
    noise: tuple[Tensor, Tensor | None] | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """One loss per label, computed from the latent without normalising or tempering anything twice.

    The logistic-normal likelihood reads the latent (its temperature is the model's) and bi-tempered the logits.
    The other losses of this library are called through their bodies, on log-probabilities. Any other callable
    gets the observed log-probabilities as logits and ``reduction="none"``, and must return one number per label.

    Arguments:
        row: the example that each label belongs to, where examples have several labels or none.
        annotators: who gave each label.
    """
    function, options = unwrap(loss)
    if target.is_floating_point():
        target = target.to(latent.mean.dtype)
    if function in (logistic_normal_nll, bi_tempered):
        if target.is_floating_point():
            check_distribution(target)
        latent = model.at_full_size(latent)
        if row is not None:
            latent = heads.Latent(*(None if part is None else part[row] for part in latent))  # type: ignore[arg-type]
    if function is logistic_normal_nll:
        options = {**like_head(model), **options}
        return _logistic_normal(latent.mean, latent.root, target, **options)
    if function is bi_tempered:
        return _bi_tempered(latent.mean, target, **options)
    if noise is None and row is None and function is nll and _is_integral(model, latent, target):
        return links.expected_softmax_nll(
            latent.mean,
            latent.scale,  # type: ignore[arg-type]
            target,
            temperature=model.tau,
            method=model.integration,
            reduction="none",
        )
    log_p = model.log_probs(latent, noise=noise, generator=generator)
    log_p = log_p if row is None else log_p[row]
    only_given = function is nll and not target.is_floating_point() and annotators is not None
    if only_given and getattr(model.channel, "sparse", False):
        return -model.channel.log_given(log_p, annotators, target)  # type: ignore[union-attr, operator, no-any-return]
    log_q = model.observed(log_p, annotators)
    if function in BODIES:
        return BODIES[function](log_q, target, **options)
    return own_loss(function, log_q, target, options)


def _is_integral(model: Model, latent: heads.Latent, target: Tensor) -> bool:
    """Whether to integrate the label's likelihood alone, which stays accurate where it is tiny.

    The integral over all classes at once loses digits there.
    """
    plain = model.channel is None and model.link is None and not target.is_floating_point()
    # Shapes differ where a mask has more pixels than the latent, whose log-probabilities are then enlarged first.
    gaussian = latent.scale is not None and latent.factors is None and latent.mean.shape[:-1] == target.shape
    return plain and gaussian and model.integration in ("auto", "quadrature", "fixed")


def check_stages(model: Model, loss: Loss) -> None:
    """Refuse combinations of stages that mean nothing."""
    function, options = unwrap(loss)
    check_call(function, options, arguments=3 if function is logistic_normal_nll else 2)
    is_ln_head, is_ln_loss = isinstance(model.head, heads.LogisticNormal), function is logistic_normal_nll
    if is_ln_head != is_ln_loss:
        raise DubitoError(
            "the logistic-normal head and likelihood belong together",
            got=f"{type(model.head).__name__} with {getattr(function, '__name__', function)}",
            remedy="use LogisticNormal with logistic_normal_nll",
        )
    if is_ln_loss and model.channel is not None:
        raise DubitoError(
            "the logistic-normal likelihood reads the latent, so no channel can stand before it"
        )
    if function is bi_tempered and (model.channel is not None or not isinstance(model.head, heads.Point)):
        raise DubitoError(
            "bi_tempered brings its own link, so it takes a Point head and no channel",
            remedy="use gce with this head or channel",
        )
    alone = isinstance(model.temperature, Real) and model.temperature == 1
    if not alone and (function is bi_tempered or model.link is not None):
        raise DubitoError(
            "a link of its own takes no temperature, which would be left out",
            where=getattr(function, "__name__", str(function)) if model.link is None else "link",
            expected="temperature 1",
            got=model.temperature,
        )
    check_values(model, function, options)
