"""A crowd on one page: size, agreement, skills, confusions, whom to ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ._arguments import check_count
from ._layout import Layout
from .agreement import annotator_agreement, krippendorff_alpha
from .ask import ask_next
from .labels import CrowdLabels
from .quality import label_quality, same_crowd
from .result import Aggregate

if TYPE_CHECKING:
    from rich.console import RenderableType


LEAST = 0.5  # expected labels behind a confusion that is worth telling
FEW_SHARED = 0.1  # share of items with two labels or more below which it is said that skills rest on few


@dataclass(frozen=True)
class Confusion:
    """How often items of class `true` are called `given`; over the whole crowd where `annotator` is None."""

    annotator: str | None
    true: str
    given: str
    rate: float
    labels: float


@dataclass(frozen=True)
class Annotator:
    """One line of the skill table. `agreement` is NaN where no item is shared.

    `confusion` is the one behind most of their wrong labels, None where there are none.
    """

    name: str
    labels: int
    skill: float
    low: float
    high: float
    agreement: float
    confusion: Confusion | None = None


@dataclass(frozen=True)
class Summary:
    """What there is to know about a crowd without looking at any item."""

    labels: int
    items: int
    annotators: int
    classes: tuple[str, ...]
    per_item: tuple[int, float, int]  # least, median, most
    per_annotator: tuple[int, float, int]
    empty_items: int
    empty_annotators: int
    alpha: float
    method: str
    why: str
    unsure_items: int
    doubtful_labels: float
    class_shares: tuple[float, ...]
    skills: tuple[Annotator, ...]  # best first
    crowd_confusions: tuple[Confusion, ...]
    annotator_confusions: tuple[Confusion, ...]
    questions: tuple[tuple[str, str, float], ...]
    notes: tuple[str, ...]


def summarise(
    crowd: CrowdLabels,
    aggregate: Aggregate,
    *,
    anonymise: bool = False,
    level: float = 0.95,
    questions: int = 5,
) -> Summary:
    """Gather the facts about a crowd.

    Arguments:
        anonymise: annotators appear as "annotator 1", "annotator 2", ... ordered by how many labels they gave.

    Example:
        >>> from dubito.crowd import aggregate
        >>> crowd = CrowdLabels.from_dense([[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0], [0, 0, 1]])
        >>> page = summarise(crowd, aggregate(crowd), anonymise=True)
        >>> page.items, page.skills[-1].labels, round(page.alpha, 2)
        (5, 5, 0.25)
    """
    same_crowd(crowd, aggregate)
    check_count(questions, "questions")
    names = annotator_names(crowd, anonymise)
    quality = label_quality(crowd, aggregate)
    each = crowd.labels_per_annotator()
    asked = ask_next(crowd, aggregate, questions, per_annotator=max(1, -(-questions // 3)))
    return Summary(
        labels=len(crowd),
        items=crowd.num_items,
        annotators=crowd.num_annotators,
        classes=tuple(str(c) for c in crowd.classes.tolist()),
        per_item=_spread(crowd.labels_per_item()),
        per_annotator=_spread(each),
        empty_items=int((crowd.labels_per_item() == 0).sum()),
        empty_annotators=int((each == 0).sum()),
        alpha=krippendorff_alpha(crowd),
        method=aggregate.method,
        why=aggregate.why,
        unsure_items=int((aggregate.confidence < 0.9).sum()),
        doubtful_labels=float(1 - quality.double().mean()) if len(crowd) else 0.0,
        class_shares=tuple(aggregate.class_prior.tolist()),
        skills=_skills(crowd, aggregate, names, level),
        crowd_confusions=_confusions(crowd, aggregate, None),
        annotator_confusions=_confusions(crowd, aggregate, names),
        questions=tuple(
            (str(item), names[code], gain)
            for item, code, gain in zip(
                asked.items.tolist(), asked.annotator_codes.tolist(), asked.gain.tolist()
            )
            if gain > 0
        ),
        notes=_notes(crowd, aggregate),
    )


def annotator_names(crowd: CrowdLabels, anonymise: bool) -> list[str]:
    """Annotators as they are called in print."""
    if not anonymise:
        return [str(a) for a in crowd.annotator_ids.tolist()]
    order = torch.argsort(crowd.labels_per_annotator(), descending=True, stable=True).tolist()
    names = [""] * crowd.num_annotators
    for place, code in enumerate(order):
        names[code] = f"annotator {place + 1}"
    return names


def _spread(counts: Tensor) -> tuple[int, float, int]:
    if counts.numel() == 0:
        return 0, 0.0, 0
    ordered = counts.sort().values
    middle = ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]
    return int(ordered[0]), float(middle) / 2, int(ordered[-1])


def _skills(
    crowd: CrowdLabels, aggregate: Aggregate, names: list[str], level: float
) -> tuple[Annotator, ...]:
    each = crowd.labels_per_annotator().tolist()
    agreement = annotator_agreement(crowd).tolist()
    low, high = aggregate.skill_intervals(level).T.tolist()
    order = torch.argsort(aggregate.skills, descending=True, stable=True).tolist()
    skills = aggregate.skills.tolist()
    worst = _worst(crowd, aggregate, names)
    return tuple(
        Annotator(names[r], each[r], skills[r], low[r], high[r], agreement[r], worst.get(r))
        for r in order
        if each[r]
    )


def _counted(crowd: CrowdLabels, aggregate: Aggregate) -> tuple[Layout, Tensor]:
    layout, counts = aggregate.state.layout, aggregate.state.counts
    return (layout, counts) if len(counts) else _hard_counts(crowd, aggregate)


def _worst(crowd: CrowdLabels, aggregate: Aggregate, names: list[str]) -> dict[int, Confusion]:
    """For every annotator the confusion that accounts for most of their wrong labels."""
    layout, counts = _counted(crowd, aggregate)
    classes = [str(c) for c in aggregate.classes.tolist()]
    wrong, true = counts.masked_fill(layout.own(), 0.0).max(1)
    n = layout.by_annotator(counts)[layout.key_annotator].gather(1, true.unsqueeze(1)).squeeze(1)
    lines = zip(
        layout.key_annotator.tolist(), layout.key_label.tolist(), true.tolist(), wrong.tolist(), n.tolist()
    )
    found: dict[int, Confusion] = {}
    for r, j, k, times, rows in lines:
        if times >= LEAST and (r not in found or times > found[r].labels):
            found[r] = Confusion(names[r], classes[k], classes[j], times / rows, times)
    return found


def _confusions(
    crowd: CrowdLabels, aggregate: Aggregate, names: list[str] | None, most: int = 5
) -> tuple[Confusion, ...]:
    """The confusions that account for most wrong labels, over the crowd or by annotator."""
    layout, counts = _counted(crowd, aggregate)
    classes = [str(c) for c in aggregate.classes.tolist()]
    if names is None:
        table = layout.by_label(counts).T
        rows = table.sum(1)
        wrong = table.masked_fill(torch.eye(len(table), dtype=torch.bool, device=table.device), 0.0)
        places = torch.topk(wrong.flatten(), min(most, wrong.numel()))
        pairs = [divmod(p, len(table)) for p in places.indices.tolist()]
        found = [
            Confusion(None, classes[k], classes[j], float(table[k, j] / rows[k]), float(table[k, j]))
            for k, j in pairs
        ]
    else:
        n = layout.by_annotator(counts)
        wrong = counts.masked_fill(layout.own(), 0.0)
        places = torch.topk(wrong.flatten(), min(most, wrong.numel()))
        found = []
        for u, k in (divmod(p, counts.shape[1]) for p in places.indices.tolist()):
            r, j = int(layout.key_annotator[u]), int(layout.key_label[u])
            rate = float(counts[u, k] / n[r, k])
            found.append(Confusion(names[r], classes[k], classes[j], rate, float(counts[u, k])))
    # With few classes the largest entries run into the diagonal, which is no confusion.
    return tuple(c for c in found if c.labels >= LEAST and c.true != c.given)


def _hard_counts(crowd: CrowdLabels, aggregate: Aggregate) -> tuple[Layout, Tensor]:
    from ._layout import lay_out

    layout = lay_out(crowd, dtype=torch.float64)
    key = crowd.annotator.long() * crowd.num_classes + crowd.label
    own = layout.key_annotator * crowd.num_classes + layout.key_label
    rows = aggregate.probabilities.double()[crowd.item.long()]
    counts = layout.zeros(len(own), crowd.num_classes).index_add_(0, torch.searchsorted(own, key), rows)
    return layout, counts


def _notes(crowd: CrowdLabels, aggregate: Aggregate) -> tuple[str, ...]:
    notes = []
    alike: dict[str, list[str]] = {}
    for name in (str(c) for c in crowd.classes.tolist()):
        alike.setdefault("".join(name.split()).casefold(), []).append(name)
    for group in alike.values():
        if len(group) > 1:
            notes.append("classes that differ only in case or spaces: " + ", ".join(map(repr, group)))
    several, items = (int((crowd.labels_per_item() > n).sum()) for n in (1, 0))
    if items and several == 0:
        notes.append("no item has two labels: agreement and skills cannot be told from labels alone")
    elif several < FEW_SHARED * items:
        notes.append(
            f"only {several:,} of {items:,} items have two labels or more: all that is said about annotators, and "
            "about labels of the other items, rests on these"
        )
    rho, middle = aggregate.dependence, _spread(crowd.labels_per_item())[1]
    if rho and middle > 1:
        alone = middle / (1 + rho * (middle - 1))
        notes.append(
            f"labels of one item err together: {middle:.0f} of them are worth {alone:.1f} independent ones: more "
            "labels on the same items help less than it seems"
        )
    gaps = [c for c in crowd.classes.tolist() if str(c).strip() == "-1"]
    if gaps:
        notes.append(
            "the class -1 may mean that there is no label: if so, leave these out (missing, --missing -1)"
        )
    drawn = int((aggregate.confidence < 1).sum()) if aggregate.method == "vote" else 0
    if drawn:
        notes.append(f"{drawn:,} {'ties were' if drawn > 1 else 'tie was'} drawn by lot")
    if not aggregate.converged:
        notes.append("the fit was stopped before it settled")
    if aggregate.skills.numel() and len(crowd) and crowd.num_classes > 1:
        worse = int((aggregate.skill_intervals()[:, 1] < 1 / crowd.num_classes).sum())
        if worse:
            notes.append(f"{worse} annotators are worse than guessing (their labels still inform, reversed)")
    return tuple(notes)


def render(summary: Summary, *, most: int = 5) -> RenderableType:
    """The summary as text for a terminal: print it with rich."""
    from ._render import page

    return page(summary, most)


def as_dict(summary: Summary) -> dict[str, Any]:
    """The summary as plain data, for JSON."""
    from dataclasses import asdict

    return asdict(summary)
