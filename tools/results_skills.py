"""How well the skills of people are ranked: by all of them, and by those who gave many labels."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

import torch
from results_cells import Section
from results_words import method_words

from dubito.papers.records import rank_correlation
from dubito.papers.results import Result
from dubito.papers.tables import method_label

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
