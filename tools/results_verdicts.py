"""What the cells say together: how many agree, which means differ, what so few seeds can tell."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from results_cells import Section
from results_words import column_words, row_words

from dubito.metrics import holm
from dubito.papers.collect import Entry
from dubito.papers.statistics import FEWEST_SEEDS

# Tables of these papers are run to be judged; the fourth paper's matrices are in a picture only.
JUDGED = ("collier2020", "englesson2023", "lukasik2020")


def verdicts(found: Sequence[Section]) -> Counter[str]:
    """How many cells got which verdict; cells without a counterpart are left out."""
    return Counter(e.verdict for s in found for e in s.table.entries if e.verdict != "-")


def agreement(found: Mapping[str, Sequence[Section]]) -> Iterator[str]:
    """All judged cells together, each counted once, and each paper's share in them."""
    counted = {p: verdicts([s for s in found.get(p, ()) if not s.earlier]) for p in JUDGED}
    total = sum(counted.values(), Counter[str]())
    judged = sum(count for name, count in total.items() if name != "not judged")
    if not judged:
        yield "No cell is judged yet: that takes three seeds."
        return
    wide = total["agrees, wide spread"]
    agree = total["agrees"] + wide
    yield (
        f"Judged cells (three seeds or more, a printed number beside them): {judged}, of which {agree} agree "
        f"({100 * agree / judged:.0f} %), {wide} of them only because our spread is wide. By paper: "
        f"{'; '.join(_one(paper, counts) for paper, counts in counted.items())}.{_earlier(found)}"
    )


def _earlier(found: Mapping[str, Sequence[Section]]) -> str:
    """What is left out of the count, so that a new reading cannot make a failure vanish."""
    counts = verdicts([s for p in JUDGED for s in found.get(p, ()) if s.earlier])
    judged = sum(count for name, count in counts.items() if name != "not judged")
    agree = counts["agrees"] + counts["agrees, wide spread"]
    if not judged:
        return ""
    return f" Not counted: {judged} of earlier readings of what a paper leaves open, of which {agree} agree."


def _one(paper: str, counts: Counter[str]) -> str:
    judged = sum(count for name, count in counts.items() if name != "not judged")
    return f"{paper} {counts['agrees'] + counts['agrees, wide spread']} of {judged}"


def apart(found: Sequence[Section]) -> Iterator[str]:
    """In which tables cells differ from the paper, and on which side."""
    told = []
    for section in found:
        judged = [e for e in section.table.entries if e.verdict not in ("-", "not judged")]
        differ = [e for e in judged if not e.verdict.startswith("agrees")]
        below = sum((e.difference or 0.0) < 0 for e in differ)
        if differ:
            told.append(
                f"{section.item.id}, {len(differ)} of {len(judged)} cells, {below} of them below the paper"
            )
    if told:
        yield f"- Where they differ: {'; '.join(told)}."


def means(found: Sequence[Section]) -> Iterator[str]:
    """Cells that agree by the spread of seeds, but not in their means: Welch's test, where a spread is printed.

    Reference:
        Welch 1947, The generalization of Student's problem when several different population variances are involved
    """
    tested = [(s, e, _welch(e, s.seeds)) for s in found for e in s.table.entries if _both_spread(e)]
    agree = [(s, e, p) for s, e, p in tested if e.verdict.startswith("agrees")]
    if not agree:
        return
    apart = sorted(((s, e, p) for s, e, p in agree if p < 0.05), key=lambda cell: cell[2])
    kept = dict(zip((id(e) for _, e, _ in tested), holm([p for _, _, p in tested])))
    left = sum(kept[id(e)] < 0.05 for _, e, _ in apart)
    named = "; ".join(
        f"{row_words(s.item, e.row)}, {column_words(s.item, e.column)}: {e.ours.mean:.2f} against "
        f"{e.paper.value:.2f}, p = {p:.3f}"
        for s, e, p in apart
        if e.ours and e.paper
    )
    yield (
        "- That is by the spread of single seeds, which is wider than that of their mean. Of the "
        f"{len(agree)} that agree and have a printed spread, the means of {len(apart)} differ at p < .05 (Welch's "
        f"t-test; chance alone would make about {0.05 * len(agree):.1g}), {left} of them after Holm's correction"
        f"{': ' * bool(named)}{named}."
    )


def _both_spread(entry: Entry) -> bool:
    judged = entry.verdict not in ("-", "not judged")
    return bool(judged and entry.ours and entry.ours.spread and entry.paper and entry.paper.spread)


def _welch(entry: Entry, seeds: int) -> float:
    """p of the difference of two means with spreads of their own; `seeds` are the paper's."""
    from scipy.stats import ttest_ind_from_stats

    assert entry.ours is not None
    assert entry.paper is not None
    ours = entry.ours.mean, entry.ours.spread, entry.ours.seeds
    paper = entry.paper.value, entry.paper.spread, seeds
    return float(ttest_ind_from_stats(*ours, *paper, equal_var=False).pvalue)


POWER = 0.8


def tellable(section: Section) -> Iterator[str]:
    """One line for each column and metric of a table whose methods are compared with one of them by seed."""
    item = section.item
    if not item.reference or item.rows != ("method",):
        return
    lines = []
    for column, metric in section.table.columns:
        cells = [e for e in section.table.entries if (e.column, e.metric) == (column, metric)]
        lines += [
            f"- {column_words(item, column)}, `{metric.ours}`: {text}"
            for text in _line(cells, item.reference)
        ]
    if lines:
        yield from ("", "### What these seeds can tell", "")
        yield (
            f"Smallest mean difference from {item.reference} that a paired t-test at .05 finds about four times "
            "out of five, from the spread of our paired differences; and the paper's own, from 25 seeds."
        )
        yield from ("", *lines)


def _line(cells: Sequence[Entry], reference: str) -> Iterator[str]:
    main = next((e for e in cells if e.row == (reference,)), None)
    if main is None or main.ours is None or main.paper is None:
        return
    digits, smallest, printed, seeds = main.metric.digits, [], [], []
    for e in cells:
        if e is main or e.ours is None or e.paper is None:
            continue
        both = sorted(e.ours.values.keys() & main.ours.values.keys())
        if len(both) >= FEWEST_SEEDS:
            spread = statistics.stdev(main.ours.values[s] - e.ours.values[s] for s in both)
            smallest.append(_least(spread, len(both)))
            printed.append(abs(main.paper.value - e.paper.value))
            seeds.append(len(both))
    if smallest:
        count = f"{min(seeds)}" if min(seeds) == max(seeds) else f"{min(seeds)} to {max(seeds)}"
        yield f"{count} seeds tell {_range(smallest, digits)}; the paper's are {_range(printed, digits)}."


def _least(spread: float, seeds: int) -> float:
    from scipy.special import stdtrit

    t = float(stdtrit(seeds - 1, 0.975)) + float(stdtrit(seeds - 1, POWER))
    return t * spread / math.sqrt(seeds)


def _range(values: Sequence[float], digits: int) -> str:
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"
