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

from .covered import changed, digests

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
    """What the recorded lines say of a check; `date` is the day of the oldest line that counts, empty for none.

    `covers` are the parts of the package that its tests reach, `changed` those of them (or "tests", the tests
    themselves) that were changed after a line was recorded.
    """

    entry: Entry
    figure: str
    passed: bool
    date: str
    torch: str
    covers: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


def judge(entry: Entry, records: Iterable[Mapping[str, Any]]) -> Verdict:
    """Combine every record of a check; `records` carry "date" and "torch" of their session, and what changed since.

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
    passed, failed, skipped = (
        sum(record[word] for record in mine) for word in ("passed", "failed", "skipped")
    )
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
    tests = f"{passed:,} of {passed + failed:,} tests pass" + (f", {skipped:,} skipped" if skipped else "")
    figure = f"{', '.join(texts)}; {tests}" if texts else tests
    oldest = min(mine, key=lambda record: str(record["date"]))
    torches = ", ".join(sorted({str(record["torch"]) for record in mine}))
    told = [{part for record in mine for part in record.get(word, ())} for word in ("covers", "changed")]
    covers, since = (tuple(sorted(found)) for found in told)
    return Verdict(entry, figure, good, str(oldest["date"])[:10], torches, covers, since)


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


def recorded(now: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """The verdicts that this release was made with: number, figure, passed, date, torch and changed of each check.

    "changed" names the parts of the package that a check reaches and that are not, in the files at hand (or by the
    digests `now`), what they were when it was recorded.

    Example:
        >>> len(recorded())
        38
    """
    text = resources.files(__package__).joinpath("recorded.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    here = digests() if now is None else now
    rows: list[dict[str, Any]] = found["checks"]
    return [
        {**row, "changed": sorted({*row["changed"], *changed(found["parts"], here, row["covers"])})}
        for row in rows
    ]


def recorded_lines(live: Collection[int] = (), now: Mapping[str, str] | None = None) -> list[str]:
    """What was recorded of the checks that are not run here, and of the long ones that are run in short.

    Example:
        >>> "recorded" in recorded_lines()[0]
        True
    """
    shown = [row for row in recorded(now) if row["number"] not in live or row["nightly"]]
    met, older = (sum(bool(row[word]) for row in shown) for word in ("passed", "changed"))
    lines = [f"\n{len(shown)} further checks as recorded in full with this release, {met} of them met:"]
    if older:
        lines.append(f"code that {older} of them reach was changed after they were recorded; each says which")
    for row in shown:
        mark = "met " if row["passed"] else "OPEN"
        when = f"{row['date']}, torch {row['torch']}" if row["date"] else "never"
        since = f"; CHANGED SINCE: {some(row['changed'])}" if row["changed"] else ""
        lines.append(
            f"{mark}  {row['number']:>2}  {row['title']}: {row['figure']} (target {row['target']}; {when}{since})"
        )
    return lines


def some(names: Collection[str], most: int = 4) -> str:
    """A few names, and how many more there are.

    Example:
        >>> some(["a", "b", "c"], most=2)
        'a, b and 1 more'
    """
    first = ", ".join(sorted(names)[:most])
    return first + (f" and {len(names) - most} more" if len(names) > most else "")
