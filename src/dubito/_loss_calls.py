"""How a model calls its loss, one of this library or of the user, and refusals of what cannot be called so."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .errors import DubitoError
from .losses import BODIES, LATENT_BODIES, logistic_normal_nll

if TYPE_CHECKING:
    from .model import Model

Loss = Callable[..., Tensor]


def unwrap(loss: Loss) -> tuple[Loss, dict[str, Any]]:
    """A loss without its `functools.partial`, and the options in that."""
    if isinstance(loss, partial):
        if loss.args:
            raise DubitoError("options of a loss are given by name", where=_name(loss.func), got=loss.args)
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
    if idle := sorted(options.keys() & {"dim", "ignore_index", "reduction"}):
        raise DubitoError(
            "a model lays out classes, leaves out missing labels and averages by itself",
            where=_name(function),
            got=f"{idle[0]}={options[idle[0]]!r}",
            remedy=f"leave out {idle[0]}=; a label that is -1 or -100 does not count",
        )
    K, device = model.num_classes, next((p.device for p in model.parameters()), None)
    latent = [torch.zeros(1, K, device=device)]
    if function is logistic_normal_nll:
        head = like_head(model)
        if differing := [name for name in head if name in options and bool(options[name] != head[name])]:
            name = differing[0]
            raise DubitoError(
                f"model and likelihood differ in {name}", expected=head[name], got=options[name]
            )
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


def check_call(function: Loss, options: Mapping[str, Any], *, arguments: int) -> None:
    """Refuse a loss that could not be called with these options."""
    if not callable(function):
        raise DubitoError("a loss is a function of predictions and target", got=type(function).__name__)
    module = isinstance(function, nn.Module)
    try:
        signature = inspect.signature(function.forward if module else function)  # type: ignore[attr-defined]
    except ValueError:  # written in C
        return
    try:
        signature.bind(*[None] * arguments, **{**options, "reduction": "none"})
    except TypeError as error:
        raise DubitoError(
            "the loss cannot be called with these options",
            where=_name(function),
            got=str(error).removeprefix("got "),
            remedy="pass a function with reduction=, such as torch.nn.functional.cross_entropy"
            if module
            else "give its options with functools.partial",
        ) from None


def own_loss(function: Loss, log_q: Tensor, target: Tensor, options: Mapping[str, Any]) -> Tensor:
    """One number per label: ``(..., K)`` -> ``(...)``.

    A mean over the batch would be divided by the number of examples again, and train that many times too slowly.
    """
    try:
        found = function(log_q, target, reduction="none", **options)
    except (DubitoError, torch.OutOfMemoryError):
        raise
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise DubitoError(
            "the loss cannot read these predictions and targets",
            where=_name(function),
            got=f"{tuple(log_q.shape)} and {target.dtype} of shape {tuple(target.shape)}: "
            f"{(str(error).splitlines() or [type(error).__name__])[0][:200]}",
            remedy="pass a loss of log-probabilities and class indices, or make its target with target=",
        ) from error
    if not isinstance(found, Tensor) or found.shape != log_q.shape[:-1]:
        raise DubitoError(
            'a loss must give one number per label when called with reduction="none"',
            where=_name(function),
            expected=f"shape {tuple(log_q.shape[:-1])}",
            got=f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__,
        )
    return found


def _name(function: Loss) -> str:
    return getattr(function, "__name__", str(function))
