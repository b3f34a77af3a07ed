"""What single runs say beyond their scores: their last epochs, classes given up, whom they rank."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

import torch
from results_cells import Section
from results_words import column_words, method_words, parameters, row_words

from dubito.papers.choose import label
from dubito.papers.collect import Entry
from dubito.papers.records import rank_correlation
from dubito.papers.results import Result
from dubito.papers.tables import method_label

FEWEST = 5  # evaluations in the last fifth


def last_fifth(run: Result) -> list[float]:
    """Test accuracies in per cent, last fifth of the evaluations; none if they are few or the rate changes."""
    course = run.history.get("test_accuracy") or []
    count = len(course) // 5
    return [100 * v for v in course[-count:]] if run.config.schedule == "constant" and count >= FEWEST else []


def runs_of(section: Section, entry: Entry) -> list[Result]:
    """The runs of a cell."""
    item = section.item
    return [
        r for r in section.runs
        if (label(r.config, item.rows), label(r.config, item.columns)) == (entry.row, entry.column)
    ]  # fmt: skip


def ends(section: Section) -> Iterator[str]:
    """A table, run by run: the last epoch, and the last fifth of the evaluated epochs."""
    found = [
        (e, r, end)
        for e in section.table.entries
        if e.metric.ours == "test_accuracy"
        for r in runs_of(section, e)
        if (end := last_fifth(r))
    ]
    if not found:
        return
    yield from ("", "### The last epoch and those before it", "")
    yield (
        "The rate of learning is constant, so that accuracy goes up and down until the end, and the last epoch, "
        "which counts above, is one draw of it. Beside it the last fifth of the evaluated epochs; "
        f"{_near(section, [e for e, _, _ in found])}. {_jointly([end for _, _, end in found])}"
    )
    yield from ("", "| column | method | seed | last epoch | mean ± deviation | lowest | highest | paper |")
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for e, run, end in found:
        mean = f"{statistics.mean(end):.2f} ± {statistics.stdev(end):.2f}"
        yield (
            f"| {column_words(section.item, e.column)} | {row_words(section.item, e.row)} | {run.config.seed} "
            f"| {100 * run.metrics['test_accuracy']:.2f} | {mean} "
            f"| {min(end):.2f} | {max(end):.2f} | {'-' if e.paper is None else f'{e.paper.value:.2f}'} |"
        )


def _jointly(ends: Sequence[Sequence[float]]) -> str:
    """Runs of one seed see the images in one order: that they end high or low is not independent."""
    apart = [end[-1] - statistics.mean(end) for end in ends]
    above = sum(a > 0 for a in apart)
    return (
        f"{above} of {len(apart)} runs end above their own mean ({statistics.mean(apart):+.2f} on average of all): "
        "runs of one seed see the images in one order, so that these are not independent draws."
    )


def _near(section: Section, entries: Sequence[Entry]) -> str:
    """How many cells are near the paper by their last epoch, and by the mean of their last fifth."""
    by_place = {(e.row, e.column): e for e in entries if e.difference is not None}
    cells = list(by_place.values())
    last = sum(1 for e in cells if abs(e.difference or 0.0) <= e.metric.tolerance)
    mean = 0
    for e in cells:
        values = [statistics.mean(end) for r in runs_of(section, e) if (end := last_fifth(r))]
        mean += e.paper is not None and abs(statistics.mean(values) - e.paper.value) <= e.metric.tolerance
    few = "; cells of fewer than three seeds are not judged" * any(e.verdict == "not judged" for e in cells)
    lie = f"lie {last} of {len(cells)} cells by the last epoch, {mean} by that mean"
    return f"within 2 points of the paper {lie}{few}"


LEAST = 0.05  # of ten classes, half a class


def lost(section: Section) -> Iterator[str]:
    """Which of the runs, and how many of the examples; nothing where there are none."""
    found = [(run, share) for run in section.runs if (share := _share(run)) >= LEAST]
    if not found:
        return
    yield from ("", "### Classes given up", "")
    yield (
        "Share of the rightly labelled training examples for which the probability of their own class is in the "
        f"lowest bin of the recorded histogram, where it is {100 * LEAST:.0f} % or more:"
    )
    yield from ("", "| method | parameters | seed | share | test accuracy |", "|---|---|---:|---:|---:|")
    for run, share in found:
        config = run.config
        yield (
            f"| {method_words(method_label(config))} | {parameters(config.params)} | {config.seed} "
            f"| {100 * share:.1f} % | {100 * run.metrics['test_accuracy']:.2f} |"
        )


def _share(run: Result) -> float:
    counts = run.history.get("probabilities", {}).get("clean_true", [])
    return counts[0] / sum(counts) if sum(counts) else 0.0


MANY = 40  # labels of one annotator


def ranked_skills(section: Section) -> Iterator[str]:
    """A table, method by method, where annotators gave different numbers of labels; empty elsewhere."""
    runs = [r for r in section.runs if {"true", "labels"} <= (r.history.get("confusion") or {}).keys()]
    if not runs:
        return
    given = [r.history["confusion"]["labels"] for r in runs]
    middle = statistics.median(count for counts in given for count in counts)
    yield from ("", "### Who is ranked, and from what", "")
    yield (
        f"Of {len(given[0])} annotators half gave {middle:g} labels or fewer. Beside Spearman's correlation of the "
        f"estimated mean diagonals with the true ones over all of them, that over those with {MANY} labels or "
        "more; the epoch whose weights are kept, and how far the matrices of that epoch are from the identity (the "
        "largest entry). Means over seeds; an early epoch keeps matrices that have hardly left their start."
    )
    yield from ("", f"| method | seeds | all | {MANY} labels or more | epochs kept | from the identity |")
    yield "|---|---:|---:|---:|---:|---:|"
    for name in dict.fromkeys(method_label(r.config) for r in runs):
        yield _row(name, [r for r in runs if method_label(r.config) == name])


def _row(name: str, runs: Sequence[Result]) -> str:
    every, many = (statistics.mean(_correlation(r, least) for r in runs) for least in (0, MANY))
    epochs = ", ".join(
        str(r.history.get("best_epoch", "-")) for r in sorted(runs, key=lambda r: r.config.seed)
    )
    away = statistics.mean(r.metrics["cm_from_identity"] for r in runs)
    return f"| {method_words(name)} | {len(runs)} | {every:.2f} | {many:.2f} | {epochs} | {away:.2f} |"


def _correlation(run: Result, least: int) -> float:
    found = run.history["confusion"]
    kept = torch.tensor(found["labels"]) >= least
    estimated, true = (
        torch.tensor(found[key], dtype=torch.float64).diagonal(dim1=1, dim2=2).mean(1)[kept]
        for key in ("estimated", "true")
    )
    return rank_correlation(estimated, true)
