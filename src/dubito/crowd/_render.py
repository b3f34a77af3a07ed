"""The summary of a crowd for a terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .._rich import Group, Table, Text
from ..errors import printable

if TYPE_CHECKING:
    from .summary import Annotator, Confusion, Summary


LEAST = 0.0005 * math.log(2)  # nats; a question that tells less would be shown as 0.000 bits


def page(summary: Summary, most: int) -> Group:
    """All parts, in the order in which one asks. Names are shown as plain text, never as markup or controls."""
    s = summary
    parts: list[Text | Table] = [
        Text(
            f"{s.labels:,} labels on {s.items:,} items by {s.annotators:,} annotators, {len(s.classes)} classes "
            f"({_few(s.classes)})"
        ),
        Text(f"labels per item {_spread(s.per_item)}, per annotator {_spread(s.per_annotator)}"),
        Text(f"agreement (Krippendorff's alpha) {_number(s.alpha)}: {_verdict(s.alpha)}"),
        Text(
            f"consensus by {s.method}: {s.unsure_items:,} items below 90 % certainty, "
            f"about {100 * s.doubtful_labels:.1f} % of the labels are wrong"
            if s.per_item[2] > 1
            else f"consensus by {s.method}: how many labels are wrong cannot be told, none is beside another"
        ),
    ]
    if s.empty_items or s.empty_annotators:
        parts.append(Text(f"without labels: {s.empty_items} items, {s.empty_annotators} annotators"))
    parts += [Text(f"note: {printable(note)}", style="yellow") for note in s.notes]
    parts += [Text(), *_skill_tables(s, most)]
    if s.crowd_confusions:
        parts.append(_confusion_table("Worst confusions of the crowd", s.crowd_confusions))
    if s.annotator_confusions:
        parts.append(_confusion_table("Worst confusions by annotator", s.annotator_confusions))
    asked = [(item, who, gain / math.log(2)) for item, who, gain in s.questions if gain >= LEAST]
    if asked:
        shown = asked[: 2 * most]
        title = (
            "Ask next" if len(shown) == len(asked) else f"Ask next: the first {len(shown)} of {len(asked):,}"
        )
        table = _table(title, "item", "whom", "expected information (bits)")
        for item, who, bits in shown:
            table.add_row(_name(item), _name(who), f"{bits:.3f}")
        parts.append(table)
    return Group(*parts)


def _name(text: str) -> Text:
    return Text(printable(text))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for place, name in enumerate(columns):
        table.add_column(name, justify="left" if place == 0 else "right", overflow="fold")
    return table


def _skill_tables(s: Summary, most: int) -> list[Table]:
    if len(s.skills) <= 2 * most:
        return [_skill_table("Annotators, best first", s.skills)]
    return [
        _skill_table(f"Best {most} of {len(s.skills):,} annotators", s.skills[:most]),
        _skill_table(f"Worst {most}", s.skills[-most:]),
    ]


def _skill_table(title: str, people: tuple[Annotator, ...]) -> Table:
    table = _table(title, "annotator", "labels", "skill", "95 % interval", "agrees with others")
    for a in people:
        table.add_row(
            _name(a.name),
            f"{a.labels:,}",
            f"{a.skill:.3f}",
            f"{a.low:.3f} to {a.high:.3f}",
            _number(a.agreement),
        )
    return table


def _confusion_table(title: str, rows: tuple[Confusion, ...]) -> Table:
    who = rows[0].annotator is not None
    table = _table(title, *(["annotator"] if who else []), "true class", "called", "how often", "labels")
    for c in rows:
        first = [_name(c.annotator)] if c.annotator is not None else []
        table.add_row(*first, _name(c.true), _name(c.given), f"{100 * c.rate:.1f} %", f"{c.labels:,.0f}")
    return table


def _few(names: tuple[str, ...]) -> str:
    return ", ".join(map(printable, names[:8])) + (", ..." if len(names) > 8 else "")


def _spread(values: tuple[int, float, int]) -> str:
    low, middle, high = values
    return f"{low:,}" if low == high else f"{low:,} to {high:,} (median {middle:,.0f})"


def _number(x: float) -> str:
    return "not defined" if math.isnan(x) else f"{x:.3f}"


def _verdict(alpha: float) -> str:
    if math.isnan(alpha):
        return "needs items with two labels and two classes in use"
    if alpha >= 0.8:
        return "good"
    if alpha >= 0.667:
        return "fair"
    return "weak: one label per item is not enough" if alpha > 0.1 else "close to chance"
