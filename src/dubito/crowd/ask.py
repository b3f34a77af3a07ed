"""Whom to ask next, and about what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .._tensors import check_broadcast
from ..errors import DubitoError
from ._arguments import check_count
from ._coding import Ids
from ._dependence import worth
from ._rules import matrices
from .labels import CrowdLabels
from .quality import same_crowd
from .result import Aggregate

_ROOM = 1 << 22  # entries of matrices at a time


@dataclass(frozen=True)
class Questions:
    """Questions worth asking, best first: item, annotator, expected information in nats.

    `items`, `annotators`: ids; `item_codes`, `annotator_codes`: the same as codes; `gain`: ``(questions,)``.
    """

    items: Ids
    annotators: Ids
    item_codes: Tensor
    annotator_codes: Tensor
    gain: Tensor

    def __len__(self) -> int:
        return self.gain.numel()


def expected_gain(q: Tensor, A: Tensor) -> Tensor:
    """Mutual information of the true class and the answer, in nats.

    ``I = H(sum_k q_k A[k, :]) - sum_k q_k H(A[k, :])`` for a posterior q ``(..., classes)`` and an annotator's
    matrix A ``(..., classes, classes)``.

    Example:
        >>> round(float(expected_gain(torch.tensor([0.5, 0.5]), torch.eye(2))), 4)
        0.6931
        >>> float(expected_gain(torch.tensor([0.5, 0.5]), torch.full((2, 2), 0.5)))
        0.0
    """
    if not isinstance(q, Tensor) or not isinstance(A, Tensor):
        raise DubitoError(
            "a posterior and a matrix must be tensors", got=f"{type(q).__name__}, {type(A).__name__}"
        )
    if A.dim() < 2 or q.dim() < 1 or not q.shape[-1] == A.shape[-1] == A.shape[-2]:
        raise DubitoError(
            "a posterior and a matrix differ in classes", got=f"{tuple(q.shape)}, {tuple(A.shape)}"
        )
    if not q.is_floating_point() or not A.is_floating_point():
        raise DubitoError("a posterior and a matrix must be real", got=f"{q.dtype}, {A.dtype}")
    check_broadcast(q=q.unsqueeze(-1), A=A)
    A = A.to(q.dtype)
    answer = (q.unsqueeze(-2) @ A).squeeze(-2)
    noise: Tensor = (q * _entropy(A)).sum(-1)
    return _entropy(answer) - noise


def _entropy(p: Tensor) -> Tensor:
    total: Tensor = torch.special.xlogy(p, p).sum(-1)
    return -total


def ask_next(
    crowd: CrowdLabels,
    aggregate: Aggregate,
    n: int = 10,
    *,
    per_annotator: int | None = None,
    candidates: int = 50,
) -> Questions:
    """The n most informative questions: which item, and whom.

    Each item is asked at most once, nobody is asked about an item that they have labelled. The gain of a question
    is `expected_gain` I of the item's posterior q_n and the annotator's matrix, for as much of a label as one
    more is worth to an item that has m_n of them, where labels of one item err together by rho
    (`Aggregate.dependence`):

        gain = (w(m_n + 1) - w(m_n)) I(q_n, A_r),   w(m) = m / (1 + rho (m - 1))

    Arguments:
        n: how many questions; fewer come back when there are not so many.
        per_annotator: the most questions for one annotator; no limit unless given.
        candidates: how many of the most informative annotators to consider. Items x annotators is never formed:
            the items on which the best candidate who is left would tell most meet the candidates only.

    Example:
        >>> from dubito.crowd import aggregate
        >>> crowd = CrowdLabels.from_dense([[0, 0, -1], [1, 0, -1], [1, 1, 1], [0, 0, 0], [1, 1, 1]])
        >>> asked = ask_next(crowd, aggregate(crowd), 1)
        >>> asked.items.tolist(), asked.annotators.tolist()
        ([1], [2])
    """
    same_crowd(crowd, aggregate)
    _check(n, per_annotator, candidates)
    state = aggregate.state

    def matrices_of(people: Tensor) -> Tensor:
        return matrices(state.layout, state.fitted, people).double()

    return ask_about(
        crowd, aggregate.probabilities.double(), aggregate.class_prior.double(), matrices_of, n, per_annotator,
        candidates, aggregate.dependence,
    )  # fmt: skip


def ask_about(
    crowd: CrowdLabels,
    q: Tensor,
    prior: Tensor,
    matrices_of: Callable[[Tensor], Tensor],
    n: int,
    per_annotator: int | None,
    candidates: int,
    rho: float = 0.0,
) -> Questions:
    """The n best questions given posteriors ``(items, K)``, a prior ``(K,)``, and matrices by annotators."""
    people = _candidates(prior, matrices_of, crowd.num_annotators, candidates)
    if len(people) == 0 or crowd.num_items == 0:
        return _pack(crowd, [])
    A = matrices_of(people)
    m = crowd.labels_per_item()
    more = (m + 1) * worth(m + 1, rho) - m * worth(m, rho)  # what the next label of each item is worth
    items = _best(_open_gain(crowd, q, people, A, more), 4 * n + 100)
    gain = _rounded(more[items].unsqueeze(1) * _gains(q[items], A))
    gain = gain.masked_fill(_already(crowd, items, people), -torch.inf)
    return _pack(crowd, _greedy(gain.cpu(), items.tolist(), people.tolist(), n, per_annotator))


def _candidates(
    prior: Tensor, matrices_of: Callable[[Tensor], Tensor], annotators: int, candidates: int
) -> Tensor:
    """The annotators who tell most about an item of unknown class, most telling first."""
    size, everyone = max(1, _ROOM // len(prior) ** 2), torch.arange(annotators, device=prior.device)
    gains = [_gains(prior.unsqueeze(0), matrices_of(some))[0] for some in everyone.split(size)]
    return _best(torch.cat(gains), candidates) if gains else everyone


def _gains(q: Tensor, A: Tensor) -> Tensor:
    """`expected_gain` of each posterior ``(N, K)`` with each matrix ``(R, K, K)``, ``(N, R)``, without copies."""
    return _entropy(q @ A).T - q @ _entropy(A).T


def _open_gain(crowd: CrowdLabels, q: Tensor, people: Tensor, A: Tensor, more: Tensor) -> Tensor:
    """What the first of the people who has not labelled an item would tell about it; -inf where all have."""
    place = torch.full((crowd.num_annotators,), len(people), dtype=torch.int64, device=people.device)
    place[people] = torch.arange(len(people), device=people.device)
    rank, item = place[crowd.annotator.long()], crowd.item.long()
    given = torch.unique((item * (len(people) + 1) + rank)[rank < len(people)])
    item, rank = given // (len(people) + 1), given % (len(people) + 1)
    each = torch.bincount(item, minlength=crowd.num_items)
    # The ranks of an item are in order: as long as the j-th is j, nobody has been left out.
    before = torch.arange(len(item), device=item.device) - (each.cumsum(0) - each)[item]
    first = torch.bincount(item[rank == before], minlength=crowd.num_items)
    gain = q.new_full((crowd.num_items,), -torch.inf)
    for r in first.unique().tolist():
        if r < len(people):
            asked = first == r
            gain[asked] = more[asked] * _gains(q[asked], A[r : r + 1]).squeeze(1)
    return gain


def _best(values: Tensor, many: int) -> Tensor:
    """Places of the largest values; among equals the first, on every device."""
    return torch.argsort(_rounded(values), descending=True, stable=True)[:many]


def _rounded(values: Tensor) -> Tensor:
    """To 2^-40: values that are equal in exact arithmetic stay equal whatever the order of summation."""
    return (values.double() * 2**40).round() / 2**40


def _already(crowd: CrowdLabels, items: Tensor, people: Tensor) -> Tensor:
    row = torch.full((crowd.num_items,), -1, dtype=torch.int64, device=crowd.item.device)
    row[items] = torch.arange(len(items), device=row.device)
    column = torch.full((crowd.num_annotators,), -1, dtype=torch.int64, device=row.device)
    column[people] = torch.arange(len(people), device=row.device)
    r, c = row[crowd.item.long()], column[crowd.annotator.long()]
    out = torch.zeros(len(items), len(people), dtype=torch.bool, device=row.device)
    both = (r >= 0) & (c >= 0)
    out[r[both], c[both]] = True
    return out


def _greedy(
    gain: Tensor, items: list[int], people: list[int], n: int, limit: int | None
) -> list[tuple[int, int, float]]:
    """Best pair first; an item is asked once, an annotator at most `limit` times."""
    chosen: list[tuple[int, int, float]] = []
    asked = [0] * len(people)
    while len(chosen) < n:
        place = int(gain.argmax())
        row, column = divmod(place, len(people))
        value = float(gain[row, column])
        if value < 0:
            break
        chosen.append((items[row], people[column], value))
        gain[row] = -torch.inf
        asked[column] += 1
        if limit is not None and asked[column] >= limit:
            gain[:, column] = -torch.inf
    return chosen


def _pack(crowd: CrowdLabels, chosen: list[tuple[int, int, float]]) -> Questions:
    items = torch.tensor([c[0] for c in chosen], dtype=torch.int64)
    people = torch.tensor([c[1] for c in chosen], dtype=torch.int64)
    return Questions(
        items=crowd.item_ids[items.numpy()],
        annotators=crowd.annotator_ids[people.numpy()],
        item_codes=items,
        annotator_codes=people,
        gain=torch.tensor([c[2] for c in chosen], dtype=torch.float64),
    )


def _check(n: int, per_annotator: int | None, candidates: int) -> None:
    for name, value in (("n", n), ("per_annotator", per_annotator), ("candidates", candidates)):
        if value is not None or name != "per_annotator":
            check_count(value, name)
