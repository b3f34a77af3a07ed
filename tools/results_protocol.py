"""How runs were made: the command, the readings of the protocol, our own search of hyper-parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from results_cells import Section, searched_ids, wanted_ids
from results_words import noise_words, parameters

from dubito.papers.choose import VALIDATION, searched
from dubito.papers.configs import Config
from dubito.papers.items import choice_key
from dubito.papers.readings import READINGS
from dubito.papers.results import Result
from dubito.papers.tables import method_label

# What the back end of `--streams` writes into the hardware of a result.
SHARED = ("backbone", "convolutions in")


def command(section: Section) -> str:
    """`dubito paper run` with everything in which these runs differ from a plain call."""
    words = [f"dubito paper run {section.table.name}", *_changed(section), *_seeds(section)]
    if section.table.size != "paper":
        words.append(f"--size {section.table.size}")
    if section.data:
        words.append(f"--data {section.data}")
    if any(mark in r.hardware for r in section.runs for mark in SHARED):
        words.append("--streams")
    return " ".join([*words, "--out results"])


def _changed(section: Section) -> Iterator[str]:
    """Single values that were changed, as `key=value`; options of a network cannot be given so."""
    for change in section.changes:
        key, _, rest = change.partition(" ")
        value = rest.partition(" for ")[0]
        if value and "=" not in value and " " not in value and key != "no":
            yield f"{key}={value}"


def _seeds(section: Section) -> Iterator[str]:
    """The seeds that exist, where they are not all that the item asks for."""
    seeds = sorted({r.config.seed for r in section.runs})
    if seeds != list(range(section.seeds)):
        whole = seeds == list(range(seeds[0], seeds[-1] + 1)) and len(seeds) > 1
        yield "seed=" + (f"{seeds[0]}..{seeds[-1]}" if whole else ",".join(map(str, seeds)))


def readings(paper: str) -> Iterator[str]:
    """What the paper leaves open, or says twice, and what was taken."""
    yield from ("## How the protocol is read", "")
    yield from (f"- {sentence}" for sentence in READINGS[paper])


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
