"""Which runs: hyper-parameters as the papers choose them, by noisy validation; methods by name; key=value."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from .._files import sha256
from ..errors import DubitoError, nearest
from ..methods import METHODS, parse_parameters
from .configs import PAIRS, Config, Pairs, override, run_id
from .items import Choices, Item, choice_key
from .results import Result
from .tables import method_label

RATED = (
    "resample",
    "flip_to_other",
    "pair_flip",
    "asymmetric",
    "one_sided",
)  # kinds of noise that have a rate
OPTIONS = ("size", "data")  # of the command: they change more than the field of that name
# What a search is judged by -> metric of a result.
VALIDATION = {
    "accuracy": "validation_accuracy",
    "log_likelihood": "validation_log_likelihood",
    "miou": "miou",
}


def choose(results: Iterable[Result]) -> dict[str, dict[str, Any]]:
    """The best parameters of every place by the mean of its criterion over the seeds that all its points have.

    A place is a data set, noise, network and method (`choice_key`); its criterion is the config's `tune_on`. Ties
    go to the point that comes first when parameters are sorted. Results without the criterion do not count; a run
    that diverged, or whose criterion is not finite, is the worst there is. Places have no choice where points share
    no seed, or all diverged.
    """
    scores: dict[str, dict[tuple[Any, ...], dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for result in results:
        value = -math.inf if result.diverged else result.metrics.get(VALIDATION[result.config.tune_on])
        if value is not None:
            found = scores[choice_key(result.config)][result.config.params]
            found[result.config.seed] = value if math.isfinite(value) else -math.inf
    best = {}
    for place, points in scores.items():
        shared = set.intersection(*(set(by_seed) for by_seed in points.values()))
        ranked = sorted(points.items(), key=lambda point: repr(point[0]))
        sums = [(sum(by_seed[s] for s in sorted(shared)), params) for params, by_seed in ranked]
        highest, params = max(sums, key=lambda point: point[0])
        if shared and highest > -math.inf:
            best[place] = dict(params)
    return best


def searched(item: Item, results: Sequence[Result], size: str = "paper", data: str | None = None) -> Choices:
    """Choices from the results of an item's own search; a place whose search is not finished is left out."""
    if item.search is None:
        return {}
    wanted: dict[str, set[str]] = defaultdict(set)
    for config in item.search(size, data, None):
        if config.seed == 0:
            wanted[choice_key(config)].add(run_id(config))
    done = {r.id for r in results}
    complete = {place for place, ids in wanted.items() if ids <= done}
    ids = {run_id(c) for c in item.search(size, data, None)}
    found = choose(r for r in results if r.id in ids)
    return {place: params for place, params in found.items() if place in complete}


def pick_methods(configs: Sequence[Config], methods: Sequence[str] | None) -> tuple[Config, ...]:
    """The rows of a table that are wanted, and rows for methods that it does not have.

    A name is a method of the table ("ln"), a variant of one ("ln:covariance=diagonal"), another method of ours,
    or a function in a file ("mine.py:mine"). New ones take every setting of plain training but the method.
    """
    if methods is None:
        return tuple(configs)
    plain = [c for c in configs if c.method == "ce"]
    picked: list[Config] = []
    for name in methods:
        base, options = _split(name)
        same = [c for c in configs if name in (c.method, method_label(c))]
        variants = [c for c in configs if c.method == base]
        if same:
            picked += same
        elif variants:
            picked += [c.with_params(**options) for c in variants]
        elif plain:
            _check(base)
            params, reading = tuple(options.items()), _source(base)
            picked += [dataclasses.replace(c, method=base, params=params, reading=reading) for c in plain]
        else:
            raise DubitoError("a new method needs a row of plain training to start from", got=repr(name))
    return tuple(dict.fromkeys(picked))


def _check(method: str) -> None:
    """Refuse a name that is neither one of ours nor a function in a file, before it becomes an empty row."""
    from .prepare import VARIANTS

    known = {**METHODS, **VARIANTS}
    if ".py:" not in method and method not in known:
        raise DubitoError("no such method", got=repr(method), remedy=nearest(method, known))


def _source(method: str) -> Pairs:
    """The head of the SHA-256 of a user's file: a method that was edited is another run."""
    path, _, function = method.rpartition(":")
    if not function or not path.endswith(".py"):
        return ()
    if not Path(path).is_file():
        raise DubitoError("no such file of methods", got=path)
    return (("source", sha256(Path(path).read_bytes())[:16]),)


def _split(name: str) -> tuple[str, dict[str, Any]]:
    """("mine.py:mine", {}) or ("ln", {"covariance": "diagonal"})."""
    head, _, tail = name.partition(":")
    if head.endswith(".py"):
        function, _, tail = tail.partition(":")
        head = f"{head}:{function}"
    return head, parse_parameters(tail, name)


def label(config: Config, names: Sequence[str], method: str = "") -> tuple[str, ...]:
    """The config's place along some fields: the method by its label or as given, others by field or parameter."""
    values = []
    for name in names:
        if name == "method":
            values.append(method or method_label(config))
            continue
        value = getattr(config, name, None) if hasattr(config, name) else config.param(name)
        values.append(f"{value:g}" if isinstance(value, float) else "" if value is None else str(value))
    return tuple(values)


def chosen(configs: Sequence[Config], overrides: Sequence[str]) -> tuple[Config, ...]:
    """Runs picked by ``key=v1,v2`` where they have these values, or changed to them where none has.

    Example:
        >>> from dubito.papers import item
        >>> made = item("englesson2023.table1-mnist").make("smoke", None, None)
        >>> len(chosen(made, ["method=ce,ln", "rate=0.4"])), {c.seed for c in chosen(made, ["seed=3..5"])}
        (4, {3, 4, 5})
    """
    found = tuple(configs)
    for text in overrides:
        key, equals, values = text.partition("=")
        if not equals or not values:
            raise DubitoError(
                "a choice is written key=value", got=repr(text), expected="as seed=0..4 or rate=0.2,0.4"
            )
        found = _apply(found, key, _values(values))
    return tuple(dict.fromkeys(found))


def _apply(configs: tuple[Config, ...], key: str, values: list[str]) -> tuple[Config, ...]:
    fields = {f.name for f in dataclasses.fields(Config)} - set(PAIRS)
    params = {name for c in configs for name, _ in c.params}
    if key not in fields | params:
        raise DubitoError("unknown field", got=repr(key), remedy=nearest(key, fields | params))
    concerned = [c for c in configs if key in fields or key in dict(c.params)]
    has = {c: _texts(c, key) for c in concerned}
    if all(any(v in texts for texts in has.values()) for v in values):
        return tuple(c for c in concerned if has[c] & set(values))
    if key == "method":
        return pick_methods(configs, values)
    if key == "rate":  # where nothing is drawn at a rate, another would be a second name for the same run
        concerned = [c for c in concerned if c.noise in RATED]
    if key in OPTIONS:  # as a mere field it would leave the rest of the protocol as it was
        raise DubitoError(
            f"no run of the item has this {key}", got=repr(values[0]), remedy=f"use --{key} {values[0]}"
        )
    if not concerned:
        raise DubitoError("none of these runs has such a field to change", got=f"{key}={','.join(values)}")
    return tuple(override(c, key, v) for c, v in product(concerned, values))


def _texts(config: Config, key: str) -> set[str]:
    """How the value of a field may be written: as it is printed in tables, in full, methods with their variant."""
    value = config.param(key) if key in dict(config.params) else getattr(config, key)
    return {str(value), str(value).lower(), *label(config, [key])}


def _values(text: str) -> list[str]:
    """ "0,1" or "0..4" -> the single values."""
    found: list[str] = []
    for part in text.split(","):
        span = re.fullmatch(r"(\d+)\.\.(\d+)", part)
        if span and int(span[1]) > int(span[2]):
            raise DubitoError("a range runs upwards", got=repr(part))
        found += [str(n) for n in range(int(span[1]), int(span[2]) + 1)] if span else [part]
    return found
