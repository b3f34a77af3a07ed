"""Methods that were run on the same data under the same noise, ranked by their accuracy on clean test labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from results_cells import wanted
from results_words import noise_words, parameters

from dubito.papers import items
from dubito.papers.configs import Config
from dubito.papers.planar import SETS
from dubito.papers.results import Result
from dubito.papers.statistics import FEWEST_SEEDS, Summary, paired, summarise
from dubito.papers.tables import METRICS, method_label

# Beyond this many points below the best, a difference that is not significant is doubt and not a tie.
NEAR = 2.0


@dataclass(frozen=True)
class Standing:
    """A method at a place: first, level with it, in doubt (far below, but the spread is wide), or below."""

    name: str
    config: Config
    summary: Summary
    validation: Summary | None
    standing: str = "below"


@dataclass(frozen=True)
class Place:
    """Data, noise, network and length of training, with the methods that were run there, best first."""

    config: Config
    methods: tuple[Standing, ...]

    @property
    def words(self) -> str:
        """ "symmetric noise, 40 %"."""
        return noise_words(self.config)

    @property
    def crowd(self) -> bool:
        """Whether annotators gave the labels, and methods may know who gave which."""
        return self.config.annotators > 0 or self.config.labels == "crowd"

    @property
    def best(self) -> Standing:
        """The first."""
        return self.methods[0]

    @property
    def plain(self) -> Standing | None:
        """Plain training, if it was run."""
        found = [m for m in self.methods if m.name == "ce"]
        return found[0] if found else None

    @property
    def picked(self) -> Standing | None:
        """The method that noisy validation accuracy would pick, of equals the worst: the test must not break ties.

        None where it was not recorded for all.
        """
        if any(m.validation is None for m in self.methods):
            return None
        return max(reversed(self.methods), key=lambda m: m.validation.mean if m.validation else 0.0)

    @property
    def judged(self) -> bool:
        """Whether every method has enough seeds to be told apart."""
        return all(m.summary.seeds >= FEWEST_SEEDS for m in self.methods)


def places(results: Iterable[Result]) -> list[Place]:
    """Group and rank; places with a single method say nothing and are left out, and an oracle is no choice.

    Points in the plane are drawn to be looked at, and nobody chooses a method by them. Tables that take one method
    apart do not compare methods, nor does a figure whose rows are places or settings: it has seeds of some only. Of
    a sweep only the settings count that a table of the paper has: the best point of a curve was chosen by the test.
    Noisy targets with another library's gradient are left out too: a method here is what `dubito.methods` has.
    """
    groups: dict[Config, dict[tuple[str, str], list[Result]]] = {}
    for result in filter(compared, results):
        variant = (method_label(result.config), parameters(result.config.params))
        groups.setdefault(_key(result.config), {}).setdefault(variant, []).append(result)
    made = []
    for key, variants in groups.items():
        ranked = _ranked(variants)
        if len(ranked) > 1:
            made.append(Place(key, tuple(ranked)))
    return made


def all_places(results: dict[str, list[Result]]) -> list[Place]:
    """Every place that was run, smoke runs apart."""
    return places(r for runs in results.values() for r in runs if r.config.size != "smoke")


def compared(result: Result) -> bool:
    """Whether a run counts where methods are ranked, see `places`."""
    config = result.config
    own = items(config.paper).get(config.item)
    names = own.rows + own.columns if own else ("method",)
    of_settings = {"skill", "trace", "rounds"} & set(own.rows) if own else set()
    of_methods = "method" in names and not of_settings
    swept = bool(own) and not own.printed and any(name in names for name, _ in config.params)
    chosen = not swept or (config.network, config.method, config.params) in _in_tables(config.paper)
    ours = config.method != "oracle" and "label_noise" not in dict(config.reading)
    return ours and config.data not in SETS and of_methods and chosen


@cache
def _in_tables(paper: str) -> frozenset[tuple[str, str, Any]]:
    """Networks, methods and parameters that the paper prints test accuracies of."""
    tables = [i for i in items(paper).values() if i.printed and "test_accuracy" in i.metrics]
    return frozenset((c.network, c.method, c.params) for i in tables for c in wanted(paper, i.id))


def _key(config: Config) -> Config:
    """The config without method, seed and what goes with them."""
    return dataclasses.replace(
        config,
        paper="",
        item="",
        method="",
        params=(),
        reading=(),
        samples=0,
        eval_samples=0,
        record=(),
        seed=0,
    )


def _name(variant: tuple[str, str], variants: Iterable[tuple[str, str]]) -> str:
    """A method by its label, with its parameters where several of its settings are at the place."""
    label, params = variant
    twins = [other for other in variants if other[0] == label]
    return label if len(twins) == 1 else f"{label} {params}"


def _ranked(variants: dict[tuple[str, str], list[Result]]) -> list[Standing]:
    found = []
    for variant, runs in variants.items():
        summary = summarise(runs, METRICS["test_accuracy"])
        validation = summarise(runs, METRICS["validation_accuracy"])
        if summary is not None:
            found.append(Standing(_name(variant, variants), runs[0].config, summary, validation))
    found.sort(key=lambda m: -m.summary.mean)
    return [dataclasses.replace(m, standing=_standing(m, found[0])) for m in found]


def _standing(mine: Standing, best: Standing) -> str:
    if mine.summary.mean == best.summary.mean:
        return "first"
    test = paired(best.summary, mine.summary)
    if test is None:
        return "not judged"
    near = best.summary.mean - mine.summary.mean <= NEAR
    if test.p < 0.05:
        return "below"
    return "level" if near else "in doubt"
