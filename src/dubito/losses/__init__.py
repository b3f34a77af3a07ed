"""Losses: (logits, target) to one number per example, then a mean.

Public losses take logits and normalise them. Each has a pure body, classes last, that a model calls on what it has
already computed. `BODIES` holds the bodies that read log-probabilities, `LATENT_BODIES` the others: `bi_tempered`
reads activations (it has its own link) and `logistic_normal_nll` the latent mean and root.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from .bi_tempered import _bi_tempered, bi_tempered, tempered_log_softmax, tempered_softmax
from .distill import distillation
from .likelihood import _nll, nll
from .logistic_normal import _logistic_normal, logistic_normal_nll
from .robust import _bootstrap, _gce, _truncated_gce, bootstrap, gce, truncated_gce

# public loss -> its body on log-probabilities: body(log_p, target, *, <own parameters>) -> one loss per example
BODIES: dict[Callable[..., Tensor], Callable[..., Tensor]] = {
    nll: _nll,
    gce: _gce,
    truncated_gce: _truncated_gce,
    bootstrap: _bootstrap,
}
# public loss -> its body on activations, or on mean and root
LATENT_BODIES: dict[Callable[..., Tensor], Callable[..., Tensor]] = {
    bi_tempered: _bi_tempered,
    logistic_normal_nll: _logistic_normal,
}

__all__ = [
    "BODIES",
    "LATENT_BODIES",
    "bi_tempered",
    "bootstrap",
    "distillation",
    "gce",
    "logistic_normal_nll",
    "nll",
    "tempered_log_softmax",
    "tempered_softmax",
    "truncated_gce",
]
