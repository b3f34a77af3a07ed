"""How unsure a prediction is, and why: noise in the labels (aleatoric) or too little knowledge (epistemic).

A heteroscedastic model says how noisy the labels of an input are. What it does not know itself shows where several
equally good models disagree: members of an ensemble, or one network under many dropout masks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ._batches import Batches
from ._context import forked
from ._random import generator
from ._tensors import at_least_float32, check_floating
from .data import LabelledData
from .errors import DubitoError
from .metrics._inputs import check_total
from .model import Model

DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


class Uncertainty(NamedTuple):
    """Entropies in nats per example ``(N, ...)``, and the averaged prediction ``(N, ..., K)`` they belong to.

    total = aleatoric + epistemic; none is below 0 or above log K.
    """

    log_p: Tensor
    total: Tensor
    aleatoric: Tensor
    epistemic: Tensor


def decompose(log_p: Tensor) -> Uncertainty:
    """Split the entropy of an averaged prediction into what members agree on and their disagreement.

        p = 1/M sum_m p_m,    total = H(p),    aleatoric = 1/M sum_m H(p_m)
        epistemic = total - aleatoric = 1/M sum_m KL(p_m || p)

    The epistemic part is computed as that sum of divergences, not as the small difference of two large numbers.

    Shapes: log_p ``(M, ..., K)``, one prediction per member.

    Reference:
        Depeweg et al. 2018; Gal 2016, mutual information

    Example:
        >>> sure_but_opposed = torch.tensor([[0.0, -torch.inf], [-torch.inf, 0.0]])
        >>> decompose(sure_but_opposed)[1:]
        (tensor(0.6931), tensor(0.), tensor(0.6931))
    """
    check_floating(log_p, "log_p")
    if log_p.dim() < 2 or len(log_p) == 0:
        raise DubitoError(
            "decompose needs the predictions of members", expected="(M, ..., K)", got=log_p.shape
        )
    if bool(log_p.isnan().any()):
        place = ", ".join(map(str, log_p.isnan().nonzero()[0].tolist()))
        raise DubitoError("a log-probability is not a number", where=f"log_p[{place}]")
    given, log_p = log_p.dtype, at_least_float32(log_p)
    check_total(log_p.exp().sum(-1).flatten(), given, "pass log-probabilities, as log_softmax(logits)")
    mean = log_p.logsumexp(0) - math.log(len(log_p))
    p = log_p.exp()
    gap = torch.where(p > 0, log_p - mean, 0.0)
    aleatoric = torch.where(p > 0, -p * log_p, 0.0).sum(-1).mean(0)
    epistemic = (p * gap).sum(-1).mean(0).clamp(min=0.0)
    return Uncertainty(mean, aleatoric + epistemic, aleatoric, epistemic)


def ensemble(
    models: Sequence[Model], data: LabelledData, *, seed: int = 0, batch_size: int = 1024
) -> Uncertainty:
    """The prediction and uncertainty of several trained models together, each in evaluation mode.

    Arguments:
        models: at least two, trained from different starts (seeds).
        data: examples; labels are not read.
        seed: of the draws of models that integrate by sampling. All members share them, so that they differ by what
            they have learned and not by luck.
    """
    if len(models) < 2:
        raise DubitoError("an ensemble needs members", expected="at least 2 models", got=len(models))
    if len({model.num_classes for model in models}) > 1:
        raise DubitoError(
            "the members of an ensemble know different classes", got=[model.num_classes for model in models]
        )
    return decompose(torch.stack([_log_probs(model, data, seed, 0, batch_size) for model in models]))


def mc_dropout(
    model: Model, data: LabelledData, *, passes: int = 30, seed: int = 0, batch_size: int = 1024
) -> Uncertainty:
    """The prediction and uncertainty of one network under `passes` dropout masks.

    What drops, and that alone, behaves as in training: dropout layers, modules that hold a rate as a number named
    ``dropout`` (attention and recurrent layers of torch), and torch's transformer layers. Batch norm and the rest
    stay in evaluation mode. Masks are drawn from (seed, pass, batch), in a fork of torch's generators that leaves
    these untouched.

    Arguments:
        passes: number of masks, at least 2.
        seed, batch_size: the same seed and batch size give the same masks.

    Reference:
        Gal and Ghahramani 2016
    """
    if passes < 2:
        raise DubitoError("disagreement needs several passes", expected="at least 2", got=passes)
    if not any(_drops(module) for module in model.modules()):
        raise DubitoError(
            "this model has no dropout layer", remedy="add nn.Dropout to it, or use an ensemble"
        )
    return decompose(torch.stack([_log_probs(model, data, seed, i + 1, batch_size) for i in range(passes)]))


def _drops(module: nn.Module) -> bool:
    """Whether a module drops by itself in training, as a layer of dropout or by a rate that it holds."""
    if isinstance(module, nn.RNNBase) and module.num_layers == 1:
        return False  # it drops between layers
    rate = module.p if isinstance(module, DROPOUT) else getattr(module, "dropout", None)
    return isinstance(rate, float | int) and not isinstance(rate, bool) and rate > 0


@torch.no_grad()
def _log_probs(model: Model, data: LabelledData, seed: int, mask: int, batch_size: int) -> Tensor:
    """log p of the true class ``(N, ..., K)`` under one dropout mask, 0 for none; the modes are put back."""
    device = next(model.parameters()).device
    modes = {module: module.training for module in model.modules()}
    model.eval()
    for module in modes:
        # Of a whole layer in evaluation torch takes a fused path, which drops nothing. Its parts keep their modes.
        if mask and (_drops(module) or isinstance(module, nn.TransformerEncoderLayer)):
            module.training = True
    parts = []
    try:
        # Of pixels far fewer images go at a time than of whole examples.
        size = model.evaluation_batch if batch_size == Model.evaluation_batch else batch_size
        for i, batch in enumerate(Batches(data.to(device)).all(size)):
            with forked(seed, mask, i, device):
                latent = model.latent(batch.x)
            draws = generator(seed, i, "latent", device=device)
            parts.append(at_least_float32(model.log_probs(latent, generator=draws)))
    finally:
        for module, mode in modes.items():
            module.training = mode
    return torch.cat(parts) if parts else torch.zeros(0, model.num_classes)
