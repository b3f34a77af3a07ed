"""Which differences between methods the seeds at hand can tell, beside those that the paper prints."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from results_cells import Section
from results_words import column_words

from dubito.papers.collect import Entry
from dubito.papers.statistics import FEWEST_SEEDS

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
