"""Runs that have given up a class: rightly labelled training examples whose own class gets no probability."""

from __future__ import annotations

from collections.abc import Iterator

from results_cells import Section
from results_words import method_words, parameters

from dubito.papers.results import Result
from dubito.papers.tables import method_label

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
