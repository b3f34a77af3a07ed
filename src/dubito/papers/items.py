"""A table or figure of a paper: the runs it needs, how it is laid out, what it costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import DubitoError, nearest
from .configs import SIZES, Config, smoke, with_seeds

# choice_key(config) -> hyper-parameters found by a search; replaces the ones that the paper chose.
Choices = Mapping[str, Mapping[str, Any]]


# (size, data, choices) -> the runs of an item.
Make = Callable[[str, str | None, Choices | None], tuple[Config, ...]]


@dataclass(frozen=True, kw_only=True)
class Item:
    """One table or figure.

    Arguments:
        id: within its paper, "table1-mnist" or "figure4".
        title: one line for lists.
        make: (size, data, choices) -> configs; no configs where the item is a drawing that needs no training.
        hours: GPU hours of the full size, roughly, on one H200-class GPU.
        search: the same for the search of hyper-parameters behind it, where there is one.
        rows, columns: fields or parameters of a config that name the place of a cell.
        metrics: names in `dubito.papers.tables.METRICS`, shown for each cell.
        printed: the table in the papers' file; "" where no number is printed.
        reference: the method that the others are tested against, by its label.
    """

    id: str
    title: str
    make: Make
    hours: float
    search: Make | None = None
    rows: tuple[str, ...] = ("method",)
    columns: tuple[str, ...] = ("data",)
    metrics: tuple[str, ...] = ("test_accuracy",)
    printed: str = ""
    reference: str = ""


def choice_key(config: Config) -> str:
    """Where a choice of hyper-parameters applies: data, label set, noise, network, method and its variant."""
    variant = [f"{name}={value}" for name, value in config.params if isinstance(value, str | bool)]
    place = [config.data, config.labels, config.noise, config.matrix, f"{config.rate:g}"]
    crowd = [f"{config.annotators}x{config.per_item}", f"{config.skill:g}"] if config.annotators else []
    return "/".join([*place, *crowd, config.network, config.method, *variant])


def chosen_params(config: Config, choices: Choices | None) -> Config:
    """The config with the parameters that a search chose for its place, if there was one."""
    found = (choices or {}).get(choice_key(config))
    return config.with_params(**found) if found else config


def finish(
    configs: Iterable[Config],
    size: str,
    seeds: Mapping[str, int],
    small: Callable[[Config], Config] | None = None,
) -> tuple[Config, ...]:
    """Reduce configs of the paper's size to `size` and give them their seeds.

    Arguments:
        seeds: number of seeds for "paper" and "small"; "smoke" has one.
        small: what "small" changes.
    """
    if size not in SIZES:
        raise DubitoError("unknown size", expected=" or ".join(SIZES), got=repr(size))
    made = tuple(configs)
    if size == "smoke":
        made = tuple(smoke(c) for c in made)
    elif size == "small":
        made = tuple(dataclasses.replace(small(c) if small else c, size="small") for c in made)
    return with_seeds(dict.fromkeys(made), range(1 if size == "smoke" else seeds[size]))


def two_points(grid: Iterable[dict[str, Any]], size: str) -> list[dict[str, Any]]:
    """A grid, or its first and last point for a smoke run."""
    points = list(grid)
    return [points[0], points[-1]] if size == "smoke" and len(points) > 2 else points


def base_of(bases: Mapping[str, dict[str, Any]], data: str) -> dict[str, Any]:
    """What a paper's runs on some data have in common; data without a protocol are refused."""
    if data not in bases:
        raise DubitoError(
            "this paper has no protocol for the data", got=repr(data), remedy=nearest(data, bases)
        )
    return bases[data]


def only_on(data: str | None, *allowed: str) -> None:
    """Refuse data that an analysis cannot be made on."""
    if data is not None and data not in allowed:
        raise DubitoError(
            "this figure has no protocol for the data", expected=" or ".join(allowed), got=repr(data)
        )


def no_runs(
    size: str = "paper", data: str | None = None, choices: Choices | None = None
) -> tuple[Config, ...]:
    """A drawing that needs no training."""
    return ()


def with_runs(name: str, made: tuple[Config, ...]) -> tuple[Config, ...]:
    """The runs of an item; a drawing, which has none, is refused."""
    if not made:
        raise DubitoError(
            "this is a drawing and has no runs", where=name, remedy=f"dubito paper figure {name}"
        )
    return made


def runs(
    listing: Callable[[str | None], Iterable[Config]],
    seeds: Mapping[str, int],
    *,
    choose: Callable[[Config], Config] = lambda config: config,
    small: Callable[[Config], Config] | None = None,
) -> Make:
    """Turn a list of runs of the paper's size into the function of an item.

    Arguments:
        listing: data -> configs without chosen hyper-parameters.
        choose: sets the ones that the paper chose; a search of one's own replaces them.
    """

    def make(
        size: str = "paper", data: str | None = None, choices: Choices | None = None
    ) -> tuple[Config, ...]:
        return finish((chosen_params(choose(c), choices) for c in listing(data)), size, seeds, small)

    return make


def search_of(
    listing: Callable[[str | None], Iterable[Config]],
    grid: Callable[[Config], list[dict[str, Any]]],
    *,
    seeds: int = 1,
    small: Callable[[Config], Config] | None = None,
) -> Make:
    """Every point of every run's grid; methods with nothing to search are left out."""

    def make(
        size: str = "paper", data: str | None = None, choices: Choices | None = None
    ) -> tuple[Config, ...]:
        points = (c.with_params(**p) for c in listing(data) for p in two_points(grid(c), size))
        return finish(points, size, {"paper": seeds, "small": 1}, small)

    return make
