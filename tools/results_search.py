"""What our own search of hyper-parameters chose, beside the choice that a paper prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from results_cells import Section, searched_ids, wanted_ids
from results_words import noise_words, parameters

from dubito.papers.choose import VALIDATION, searched
from dubito.papers.configs import Config
from dubito.papers.items import choice_key
from dubito.papers.results import Result
from dubito.papers.tables import method_label

Points = dict[tuple[str, tuple[tuple[str, Any], ...]], Result]


def search(section: Section, results: Sequence[Result]) -> Iterator[str]:
    """A table of the places whose search is finished; nothing without one."""
    known = wanted_ids(section.paper, section.item.id, section.table.size, section.data)
    tried = searched_ids(section.paper, section.item.id, section.table.size)
    mine = [r for r in results if r.id in tried or (r.id in known and r.config.item == section.item.id)]
    if section.changes or all(r.id in known for r in mine):
        return
    choices = searched(section.item, results, section.table.size, section.data)
    if not choices:
        return
    printed = {choice_key(c): c for c in section.item.make(section.table.size, section.data, None)}
    points: Points = {(choice_key(r.config), r.config.params): r for r in mine if r.config.seed == 0}
    yield from (
        "",
        "### Our own search",
        "",
        "By noisy validation data at the end of training, seed 0. In brackets: accuracy on noisy validation "
        "labels, and on clean test labels, which no choice saw.",
        "",
        "| method | noise | points | ours chose | the paper chose |",
        "|---|---|---:|---|---|",
    )
    for place, params in sorted(choices.items()):
        chosen = tuple(sorted(params.items()))
        count = sum(1 for key, _ in points if key == place)
        run = points[place, chosen]
        theirs = _choice(points, place, printed[place]) if place in printed else "-"
        yield (
            f"| {method_label(run.config)} | {noise_words(run.config)} | {count} "
            f"| {parameters(chosen)}{_scores(run)} | {theirs} |"
        )


def _choice(points: Points, place: str, config: Config) -> str:
    run = points.get((place, config.params))
    return parameters(config.params) + ("" if run is None else _scores(run))


def _scores(run: Result) -> str:
    if run.diverged:
        return " (diverged)"
    metrics = run.metrics
    seen = metrics.get(VALIDATION["accuracy"])
    if seen is None or "test_accuracy" not in metrics:
        return ""
    return f" ({100 * seen:.2f}; {100 * metrics['test_accuracy']:.2f})"
