"""What a model and a loss make of each other: compositions and options without a meaning are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from . import heads
from ._own_loss import check_call
from .errors import DubitoError
from .losses import BODIES, LATENT_BODIES, bi_tempered, logistic_normal_nll
from .model import Loss, Model, like_head, unwrap


def check_stages(model: Model, loss: Loss) -> None:
    """Refuse compositions that mean nothing, before the first step."""
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
    _check_values(model, function, options)


def _check_values(model: Model, function: Loss, options: Mapping[str, Any]) -> None:
    """Call a loss of this library once on zeros: its border checks the options, which its body takes on trust."""
    if function not in BODIES and function not in LATENT_BODIES:
        return
    K, device = model.num_classes, next((p.device for p in model.parameters()), None)
    latent = [torch.zeros(1, K, device=device)]
    if function is logistic_normal_nll:
        head = like_head(model)
        if differing := [
            name for name in ("dummy", "covariance") if options.get(name, head[name]) != head[name]
        ]:
            name = differing[0]
            raise DubitoError(f"head and likelihood differ in {name}", expected=head[name], got=options[name])
        options = {**head, **options}
        mean = latent[0] if head["dummy"] else latent[0][:, 1:]
        latent = [mean, mean[:, :1] if head["covariance"] == "isotropic" else mean]
    try:
        function(
            *latent, torch.zeros(1, dtype=torch.int64, device=device), **{**options, "reduction": "none"}
        )
    except DubitoError:
        raise
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise DubitoError(
            "the loss cannot be called with these options",
            where=getattr(function, "__name__", str(function)),
            got=str(error).splitlines()[0][:200],
        ) from None
