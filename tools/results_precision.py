"""The page that compares arithmetic: runs with convolutions in bfloat16 beside the same runs in float32."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import mean, stdev
from typing import Any

from results_words import formats, method_words, noise_words, parameters

from dubito.papers import items
from dubito.papers.choose import label
from dubito.papers.collect import WIDE, entries_of
from dubito.papers.configs import Config
from dubito.papers.results import Result
from dubito.papers.tables import method_label

KINDS = ("bfloat16", "float32")
Pair = tuple[Result, Result]  # the run of the table, and the same in the other arithmetic


def precision_page(others: Sequence[Result], table: Sequence[Result]) -> str:
    """Pairs of runs with one config and seed, by method: accuracy in each column in both, and the difference."""
    by_id = {r.id: r for r in table}
    pairs = [(by_id[r.id], r) for r in others if r.id in by_id]
    by_method: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_method.setdefault(method_label(pair[0].config), []).append(pair)
    lines = [
        "# Does the arithmetic matter?",
        "",
        "Written by `python tools/results_pages.py` from `results/precision/`; do not edit.",
        "",
        f"{len(pairs)} runs on MNIST were made twice from one config and seed: with convolutions in bfloat16 and "
        "with everything in float32 (`python benchmarks/precision.py`). Only one of the two is in the tables of "
        "the paper. Test accuracy in per cent, mean ± standard deviation over the seeds that were run twice; the "
        "last column is the spread over all seeds of that cell of the table.",
    ]
    rest = {method_label(r.config) for r in table if r.config.item == "table1-mnist"} - set(by_method)
    if rest:
        names = ", ".join(map(method_words, sorted(rest)))
        lines[-1] += f" Run in one arithmetic only: {names}."
    for method, group in by_method.items():
        lines += ["", *_of_method(method, group, table)]
    return "\n".join(lines) + "\n"


def _of_method(method: str, pairs: Sequence[Pair], table: Sequence[Result]) -> Iterator[str]:
    yield f"## {method_words(method)}"
    yield ""
    yield f"The table has the runs in {_kind(pairs[0][0])}.{_replaced(pairs)}"
    yield ""
    yield "| noise | parameters | seeds | bfloat16 | float32 | difference | spread of seeds |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    columns: dict[tuple[str, float], list[Pair]] = {}
    changes = []
    for pair in pairs:
        columns.setdefault((pair[0].config.noise, pair[0].config.rate), []).append(pair)
    for group in columns.values():
        config = group[0][0].config
        by_kind: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for pair in group:
            for r in pair:
                by_kind[_kind(r)].append(_accuracy(r))
        half, full = (by_kind[kind] for kind in KINDS)
        changes.append(mean(full) - mean(half))
        cell = [_accuracy(r) for r in table if r.config.cell == config.cell]
        yield (
            f"| {noise_words(config)} | {parameters(config.params)} | {len(group)} | {_spread(half)} "
            f"| {_spread(full)} | {changes[-1]:+.2f} | {stdev(cell):.2f} |"
        )
    yield ""
    yield f"Over the columns: {mean(changes):+.2f} on average, {_within(changes)} (Student's 95 % interval)."


def _replaced(pairs: Sequence[Pair]) -> str:
    """Runs that were replaced in the table after they had been seen, and what they would say there."""
    if not all(of_table.date > other.date for of_table, other in pairs):
        return ""
    item = items(pairs[0][0].config.paper)[pairs[0][0].config.item]
    places: dict[Any, tuple[Config, list[Result]]] = {}
    for _, r in pairs:
        place = label(r.config, item.rows), label(r.config, item.columns)
        places.setdefault(place, (r.config, []))[1].append(r)
    verdicts = [e.verdict for e in entries_of(item, places, "")]
    agree, wide = sum(v.startswith("agrees") for v in verdicts), verdicts.count(WIDE)
    return (
        f" Those in {_kind(pairs[0][1])} were made before and had been seen when they were replaced: beside the "
        f"paper {agree} of {len(verdicts)} columns of theirs agree, {wide} of them only because our spread is wide."
    )


def _within(changes: Sequence[float]) -> str:
    from scipy.special import stdtrit

    half = float(stdtrit(len(changes) - 1, 0.975)) * stdev(changes) / math.sqrt(len(changes))
    return f"{mean(changes) - half:+.2f} to {mean(changes) + half:+.2f}"


def _kind(result: Result) -> str:
    """ "bfloat16" or "float32"."""
    (kind,) = formats([result])
    return kind


def _accuracy(result: Result) -> float:
    return 100 * result.metrics["test_accuracy"]


def _spread(values: Sequence[float]) -> str:
    return f"{mean(values):.2f} ± {stdev(values):.2f}" if len(values) > 1 else f"{mean(values):.2f}"
