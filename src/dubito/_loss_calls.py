"""How a model calls its loss: options that come from the model, and refusals of losses that cannot be called so."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from .errors import DubitoError
from .losses import BODIES, LATENT_BODIES, logistic_normal_nll

if TYPE_CHECKING:
    from ._own_loss import Loss
    from .model import Model


def unwrap(loss: Loss) -> tuple[Loss, dict[str, Any]]:
    """A loss without its `functools.partial`, and the options in that."""
    if isinstance(loss, partial):
        return loss.func, dict(loss.keywords)
    return loss, {}


def like_head(model: Model) -> dict[str, Any]:
    """Options of the logistic-normal likelihood that the model determines."""
    head: Any = model.head
    return {"temperature": model.tau, "dummy": head.dummy, "covariance": head.covariance}


def check_values(model: Model, function: Loss, options: Mapping[str, Any]) -> None:
    """Call a loss of this library once on zeros: its public function checks the options, its body does not."""
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
