"""What was understood, said before anything is trained; the same facts stand in the report."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from .._report import Fact
from ..data import LabelledData
from ..data._alike import GROUP, alike
from .arrays import NO_LABEL
from .columns import CATEGORY, DATE
from .features import percent, reason
from .sources import Source, first_rows
from .training import Setting

MOST_NAMES = 8


def facts(data: LabelledData, source: Source) -> list[Fact]:
    """Rows, classes, annotators, labels per item, balance, inputs."""
    out = [Fact("items", len(data)), Fact("inputs", _inputs(data, source))]
    out += _coded(data, source)
    counts = torch.bincount(given(data), minlength=data.num_classes)
    without = unlabelled(data)
    if source.kind != "folder":
        out.append(Fact("labels from", _roles(source)))
    again = _repeated(data)
    if again:
        out.append(Fact("ids that occur again", len(again), note=f"told apart by a number: {again[0]}"))
    out += copies(data)
    out.append(Fact("classes", data.num_classes, note=_names(data.classes, count=False)))
    if data.crowd is not None:
        each = torch.bincount(data.crowd.item, minlength=len(data))
        people = torch.bincount(data.crowd.annotator, minlength=len(data.annotators))
        matrix = source.kind == "arrays" and source.annotator is None
        out.append(Fact("labels", int(counts.sum()), note=NO_LABEL if matrix else ""))
        out.append(Fact("annotators", len(data.annotators), note=_spread(people, " labels each")))
        out.append(Fact("labels per item", _spread(each[each > 0])))
        out += repeats(*data.crowd)
    if without:
        why = f"; {NO_LABEL}" if source.kind == "arrays" else ""
        out.append(Fact("items without a label", without, note=f"predicted, not learned from{why}"))
    out.append(Fact("balance", balance(counts, data.classes)))
    if data.clean is not None:
        known = int((data.clean >= 0).sum())
        out.append(Fact("true labels", f"of {known:,} items", note=f"{source.clean}: for scoring only"))
    return out


def sentences(data: LabelledData, source: Source, setting: Setting, method: str, folds: int) -> list[str]:
    """The facts as lines for a terminal."""
    lines = [f"Understood {source.path}:"]
    lines += [f"  {sentence(f)}" for f in facts(data, source)]
    lines += _not_used(source)
    lines.append(
        f"  training: method {method}, network {setting.backbone}, {setting.epochs} epochs, "
        f"{folds} folds, seed {setting.seed}"
    )
    return lines


def _not_used(source: Source) -> list[str]:
    """Columns that are left out, and why."""
    twice = tuple(n for n in dict.fromkeys(source.left_out) if source.left_out.count(n) > 1)
    once = tuple(n for n in source.left_out if n not in twice)
    groups: dict[str, tuple[str, ...]] = {}
    for name, why in _reasons(source, once).items():
        groups[why] = (*groups.get(why, ()), name)
    if twice:
        groups["several columns have this name"] = twice
    return [f"  not used: {_names(names)} ({why})" for why, names in groups.items()]


def _reasons(source: Source, names: tuple[str, ...]) -> dict[str, str]:
    """Why columns are no features, by their first rows, as `features` decides it."""
    if source.image or not names:
        return dict.fromkeys(names, "the images are what is learned from")
    wanted = dict.fromkeys(n for n in (*names, source.label, source.item) if n is not None)
    head = first_rows(Path(source.path), list(wanted), source.delimiter)
    return {n: reason(head, n, source.label, source.item) or "not named by --features" for n in names}


def given(data: LabelledData) -> Tensor:
    """All labels that were given."""
    labels = data.labels if data.crowd is None else data.crowd.label
    return labels[labels >= 0]


def unlabelled(data: LabelledData) -> int:
    """How many items have no label."""
    if data.crowd is None:
        return int((data.labels < 0).sum())
    return len(data) - len(data.crowd.item.unique())


def balance(counts: Tensor, classes: tuple[str, ...]) -> str:
    """How often each class is given, or the rarest and the commonest of many.

    Example:
        >>> balance(torch.tensor([1, 3]), ("no", "yes"))
        'no 25.0 %, yes 75.0 %'
    """
    share = 100 * counts.double() / counts.sum().clamp(min=1)
    if len(classes) <= MOST_NAMES:
        return _between(classes).join(f"{name} {p:.1f} %" for name, p in zip(classes, share.tolist()))
    low, high = int(share.argmin()), int(share.argmax())
    return f"from {share[low]:.1f} % ({classes[low]}) to {share[high]:.1f} % ({classes[high]})"


def repeats(item: Tensor, annotator: Tensor, label: Tensor) -> list[Fact]:
    """Whether annotators labelled an item more than once, in one way or in different ones; empty if nobody did.

    Example:
        >>> [f.value for f in repeats(*torch.tensor([[0, 0, 0, 1], [5, 5, 6, 5], [1, 1, 2, 1]]))]
        ['1 pair of item and annotator']
    """
    if not item.numel():
        return []
    pair = item.long() * (int(annotator.max()) + 1) + annotator.long()
    _, which, count = pair.unique(return_inverse=True, return_counts=True)
    classes = int(label.max()) + 1
    kinds = torch.bincount((which * classes + label.long()).unique() // classes)
    again = int((count > 1).sum())
    if not again:
        return []
    differ = int((kinds > 1).sum())
    note = f"{again - differ:,} repeat one label, {differ:,} contradict it; each label counts"
    return [Fact("repeated labels", f"{again:,} pair{'s'[: again > 1]} of item and annotator", note=note)]


def copies(data: LabelledData) -> list[Fact]:
    """How many groups there are, or how many items have an input that another one has too; empty if there are none.

    Example:
        >>> x = torch.arange(60.0).unsqueeze(1)
        >>> twice = LabelledData(torch.cat([x, x[:2]]), torch.arange(62) % 2)
        >>> [sentence(f) for f in copies(twice)]
        ['items alike: 4 in 2 groups (kept in one fold each)']
    """
    if GROUP in data.extra:
        return [Fact("groups", len(data.extra[GROUP].unique()), note="kept in one fold each")]
    group = alike(data)
    sizes = torch.zeros(0) if group is None else torch.bincount(group)
    sizes = sizes[sizes > 1]
    if not len(sizes):
        return []
    value = f"{int(sizes.sum()):,} in {len(sizes):,} group{'s'[: len(sizes) > 1]}"
    return [Fact("items alike", value, note="kept in one fold each")]


def sentence(fact: Fact) -> str:
    """A fact as a line of text."""
    return f"{fact.name}: {_value(fact.value)}" + (f" ({fact.note})" if fact.note else "")


def _repeated(data: LabelledData) -> list[str]:
    """Ids that were numbered because another row has the same."""
    ids = list(data.ids or ())
    known = set(ids)
    return [i for i in ids if i.endswith(")") and i.rpartition(" (")[0] in known]


def _inputs(data: LabelledData, source: Source) -> str:
    shape = data.gather(torch.zeros(1, dtype=torch.int64)).shape[1:]
    if len(shape) == 3:
        return f"images, {shape[1]} x {shape[2]}, {'grey' if shape[0] == 1 else f'{shape[0]} channels'}"
    named = f": {_names(source.features)}" if source.features else ""
    several = len(source.features)
    of = f" from {several} column{'s'[: several > 1]}" if several not in (0, shape.numel()) else ""
    return f"{shape.numel()} numbers each{of}{named}"


def _coded(data: LabelledData, source: Source) -> list[Fact]:
    """Columns that are not taken as they stand: categories, dates, gaps."""
    words = tuple(f"{c.name} {len(c.values)}" for c in source.codes if c.kind == CATEGORY)
    dates = tuple(c.name for c in source.codes if c.kind == DATE)
    gaps = tuple(
        f"{c.name} {percent(c.gaps / len(data))}" for c in source.codes if c.gaps and c.kind != CATEGORY
    )
    out = []
    if words:
        out.append(
            Fact("categories", _names(words), note="one column of 0 and 1 for each value that is not rare")
        )
    if dates:
        out.append(Fact("dates", _names(dates), note="as days"))
    if gaps:
        out.append(Fact("gaps", _names(gaps), note="the median stands there, and one more column marks them"))
    return out


def _roles(source: Source) -> str:
    roles = [
        ("label", source.label),
        ("item", source.item),
        ("annotator", source.annotator),
        ("id", source.id),
        ("groups", source.groups),
    ]
    return ", ".join(f"{role} = {name}" for role, name in roles if name)


def _names(names: tuple[str, ...], count: bool = True) -> str:
    mark = _between(names[:MOST_NAMES])
    shown = mark.join(str(n)[:30] for n in names[:MOST_NAMES])
    more = f"{mark}... ({len(names)} in all)" if count else f"{mark}..."
    return shown + (more if len(names) > MOST_NAMES else "")


def _between(names: tuple[str, ...]) -> str:
    """What stands between names in a list: a semicolon where one of them has a comma itself."""
    return "; " if any("," in str(n) for n in names) else ", "


def _spread(counts: Tensor, what: str = "") -> str:
    if not counts.numel():
        return f"0{what}"
    low, high = int(counts.min()), int(counts.max())
    mean = f", {float(counts.double().mean()):.1f} on average"
    return f"{low}{what}" if low == high else f"{low} to {high}{what}{mean}"


def _value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
