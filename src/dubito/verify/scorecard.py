"""The scorecard: 38 checks, their targets, and how figures are made of what the tests recorded.

Tests write lines (DUBITO_SCORECARD=card.jsonl pytest -m "rel or nightly"); `judge` makes a figure, a verdict and a
date of them for every check. Nothing here is a result: those lie in results/reliability and, in short,
in recorded.json.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

COMBINE: dict[str, Callable[[list[float]], float]] = {"worst": max, "least": min, "sum": sum, "share": min}
COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">=": operator.ge,
    "=": operator.eq,
}


@dataclass(frozen=True)
class Measure:
    """A number that tests record under `name`: how several are combined, and what the result has to be."""

    name: str
    combine: str
    relation: str
    target: float

    def figure(self, values: list[float]) -> tuple[str, bool]:
        """The combined number as text, and whether it meets the target."""
        found = COMBINE[self.combine](values)
        text = f"{found:,.0f}" if float(found).is_integer() and abs(found) < 1e12 else f"{found:.2g}"
        return f"{self.name.replace('_', ' ')} {text}", COMPARE[self.relation](found, self.target)


@dataclass(frozen=True)
class Entry:
    """One of the checks: its number, what is checked, the target in words, and what its tests measure."""

    number: int
    title: str
    target: str
    measures: tuple[Measure, ...] = ()
    nightly: bool = False


@dataclass(frozen=True)
class Verdict:
    """What the recorded lines say of a check; `date` is the day of the oldest line that counts, empty for none."""

    entry: Entry
    figure: str
    passed: bool
    date: str
    torch: str


def judge(entry: Entry, records: Iterable[Mapping[str, Any]]) -> Verdict:
    """Combine every record of a check; `records` carry "date" and "torch" of their session.

    Example:
        >>> line = {"checks": [4], "passed": 2, "failed": 0, "skipped": 0, "date": "2026-01-02", "torch": "2.13",
        ...         "figures": {"4": {"cases": [1500, 700], "non_finite": [0, 0]}}}
        >>> found = judge(CARD[3], [line])
        >>> found.figure, found.passed
        ('cases 2,200, non finite 0; 2 of 2 tests pass', True)
    """
    mine = [record for record in records if entry.number in record["checks"]]
    if not mine:
        return Verdict(entry, "not recorded", False, "", "")
    passed, failed = (sum(record[word] for record in mine) for word in ("passed", "failed"))
    texts, good = [], failed == 0 and passed > 0
    for measure in entry.measures:
        found = [record["figures"].get(str(entry.number), {}).get(measure.name, []) for record in mine]
        values = [float(value) for listed in found for value in listed]
        if not values:
            texts.append(f"{measure.name.replace('_', ' ')} not recorded")
            good = False
            continue
        text, met = measure.figure(values)
        texts.append(text)
        good = good and met
    tests = f"{passed:,} of {passed + failed:,} tests pass"
    figure = f"{', '.join(texts)}; {tests}" if texts else tests
    oldest = min(mine, key=lambda record: str(record["date"]))
    torches = ", ".join(sorted({str(record["torch"]) for record in mine}))
    return Verdict(entry, figure, good, str(oldest["date"])[:10], torches)


def _entries() -> tuple[Entry, ...]:
    text = resources.files(__package__).joinpath("scorecard.json").read_text(encoding="utf-8")
    return tuple(
        Entry(
            number=content["number"],
            title=content["title"],
            target=content["target"],
            measures=tuple(Measure(*measure) for measure in content.get("measures", ())),
            nightly=content.get("nightly", False),
        )
        for content in json.loads(text)
    )


CARD: tuple[Entry, ...] = _entries()


def recorded() -> list[dict[str, Any]]:
    """The verdicts that this release was made with, one object per check: number, figure, passed, date, torch.

    Example:
        >>> len(recorded())
        38
    """
    text = resources.files(__package__).joinpath("recorded.json").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = json.loads(text)
    return found


def recorded_lines(live: Collection[int] = ()) -> list[str]:
    """What was recorded of the checks that are not run here, and of the long ones that are run in short.

    Example:
        >>> "recorded" in recorded_lines()[0]
        True
    """
    shown = [row for row in recorded() if row["number"] not in live or row["nightly"]]
    met = sum(row["passed"] for row in shown)
    lines = [f"\n{len(shown)} further checks as recorded in full with this release, {met} of them met:"]
    for row in shown:
        mark = "met " if row["passed"] else "OPEN"
        when = f"{row['date']}, torch {row['torch']}" if row["date"] else "never"
        lines.append(
            f"{mark}  {row['number']:>2}  {row['title']}: {row['figure']} (target {row['target']}; {when})"
        )
    return lines
