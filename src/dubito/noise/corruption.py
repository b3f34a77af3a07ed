"""Corrupting labels by a transition matrix, each label by itself or in exact numbers."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..errors import DubitoError
from ._checks import class_indices, stochastic, torch_generator
from ._keyed import Array, draw_classes, draw_seed, uniform

Labels = TypeVar("Labels", Tensor, np.ndarray[Any, Any])


def corrupt(
    labels: Labels,
    T: Tensor,
    generator: torch.Generator,
    *,
    exact: bool | Literal["redrawn", "changed"] = False,
    index: Tensor | np.ndarray[Any, Any] | None = None,
) -> Labels:
    """Noisy copies of labels: observed ~ T[true, .], independently or in exact numbers.

    ``exact=False``: each label is drawn by itself from its row of T.

    ``exact=True`` (or "redrawn"): every row is split as ``T_i = (1 - r_i) e_i + r_i q_i`` with the own class
    as likely in q_i as the least likely class, so ``r_i = 1 - T_ii + min_j T_ij``. Classes with the same (r, q)
    form one group; in a group of n labels exactly ``ceil(r n)``, chosen at random, are drawn anew from q. For
    `resample` this draws exactly ``ceil(r N)`` labels of the whole set anew, over all classes; for `asymmetric`
    it moves exactly ``ceil(r n_c)`` labels of each class in the map; for `class_dependent` it draws
    ``ceil(r_c n_c)`` of each class anew.

    ``exact="changed"``: the same groups, but exactly ``ceil((1 - T_ii) n)`` labels end up wrong. Resampling
    and flipping to another class share one matrix, so this has to be said.

    The numbers belong to the examples: example i (or ``index[i]``) meets the same fate in every batch and
    order, as long as the generator starts from the same state.

    Arguments:
        labels: true classes, torch or numpy integers of any shape; not modified.
        T: (K, K), rows sum to one.
        generator: gives one seed; the same state gives the same noise.
        index: identities of the examples (the shape of labels), 0, 1, 2, ... by default.

    Returns:
        Observed labels of the type, shape, dtype and device of `labels`.

    Reference:
        lukasik2020 eq. 2
        collier2020 table 1
        englesson2023 table 1

    Example:
        >>> from dubito.noise import resample
        >>> corrupt(torch.zeros(8, dtype=torch.long), resample(4, 1.0), torch.Generator().manual_seed(0)).shape
        torch.Size([8])
    """
    T = stochastic(T, "T", 2)
    true = class_indices(labels, len(T))
    ids = _identities(index, true)
    seed = draw_seed(torch_generator(generator))
    u = uniform(seed, "new class", ids)
    if exact is False:
        observed = draw_classes(T, true.ravel(), u)
    elif exact is True or exact in ("redrawn", "changed"):
        observed = _exactly(true.ravel(), T, uniform(seed, "chosen", ids), u, exact == "changed")
    else:
        raise DubitoError(
            "unknown exact form", expected="False, True, 'redrawn' or 'changed'", got=repr(exact)
        )
    noisy: Labels = _like(labels, observed.reshape(true.shape))
    return noisy


def _exactly(true: Array, T: Tensor, order: Array, u: Array, changed: bool) -> Array:
    """`order` ranks the labels of a group for being chosen, `u` draws their new classes."""
    rates, targets = _split(T)
    groups = _groups(rates, targets)
    if changed:
        rates = 1 - T.diagonal()
        # Drawing normalises its rows, so a row that never moves must not become empty.
        targets = T - torch.diag(torch.where(rates > 0, T.diagonal(), 0.0))
    observed = true.copy()
    for classes in groups:
        members = np.flatnonzero(np.isin(true, classes))
        chosen = members[np.argsort(order[members], kind="stable")]
        chosen = chosen[: _ceil(float(rates[classes[0]]) * len(members))]
        observed[chosen] = draw_classes(targets, true[chosen], u[chosen])
    return observed


def _split(T: Tensor) -> tuple[Tensor, Tensor]:
    """Rates r and distributions q with T = diag(1 - r) + diag(r) q; rows that never move have q = e_i."""
    own = torch.eye(len(T), dtype=torch.bool)
    least = T.amin(-1)
    rates = 1 - T.diagonal() + least
    q = torch.where(own, least, T) / rates.unsqueeze(-1)
    return rates, torch.where(rates.unsqueeze(-1) > 0, q, own.to(T.dtype))


def _groups(rates: Tensor, targets: Tensor) -> list[list[int]]:
    """Classes with the same rate and the same distribution, up to rounding."""
    groups: dict[tuple[float, ...], list[int]] = {}
    for c, (rate, row) in enumerate(zip(rates.tolist(), targets.tolist())):
        groups.setdefault((round(rate, 9), *(round(q, 9) for q in row)), []).append(c)
    return list(groups.values())


def _ceil(x: float) -> int:
    """Round up, but not for the last digits: 0.4 recovered from a matrix times 50,000 is 20,000."""
    return math.ceil(x - 1e-6)


def _identities(index: Any, true: Array) -> Array:
    if index is None:
        return np.arange(true.size)
    ids = index.detach().cpu().numpy() if isinstance(index, Tensor) else np.asarray(index)
    if ids.shape != true.shape:
        raise DubitoError("index must name every label", expected=true.shape, got=ids.shape)
    if ids.dtype.kind not in "iu":
        raise DubitoError("index must hold integers", got=str(ids.dtype))
    return ids.ravel()


def _like(labels: Any, observed: Array) -> Any:
    if isinstance(labels, Tensor):
        return torch.from_numpy(observed).to(labels.device, labels.dtype)
    return observed.astype(np.asarray(labels).dtype if np.asarray(labels).size else np.int64)
