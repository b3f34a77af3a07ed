"""Which runs of an item a command means, and running them on one back end or another."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from ..errors import DubitoError, nearest
from . import item
from .choose import pick_methods, searched
from .collect import label
from .configs import PAIRS, Config, override
from .results import path_of, read
from .streams import LANES, on_streams
from .sweep import Report, report, sweep

Say = Callable[[str], Any]
RATED = (
    "resample",
    "flip_to_other",
    "pair_flip",
    "asymmetric",
    "one_sided",
)  # kinds of noise that have a rate
OPTIONS = ("size", "data")  # of the command: they change more than the field of that name


@dataclasses.dataclass
class Job:
    """The runs of one table or figure, as picked on a command line."""

    name: str
    size: str
    data: str | None
    methods: Sequence[str] | None
    overrides: Sequence[str]
    out: Path

    def configs(self, choices: Any = None) -> tuple[Config, ...]:
        """The item's runs, with the chosen values of hyper-parameters, then picked or changed."""
        made = item(self.name).make(self.size, self.data, choices)
        return chosen(pick_methods(made, self.methods), self.overrides)

    def searches(self) -> tuple[Config, ...]:
        """The runs of the search, one seed each."""
        make = item(self.name).search
        made = () if make is None else make(self.size, self.data, None)
        first = [c for c in made if c.seed == 0]
        picked = [o for o in self.overrides if not o.startswith("seed=")]
        if self.methods is not None:
            first = [c for c in first if c.method in self.methods]
        return chosen(first, picked)

    def run(self, *, search: bool = False, say: Say = print, **how: Any) -> bool:
        """Run what is not finished; whether anything failed."""
        choices = None
        if search:
            if self._run(self.searches(), say, "search", **how).failed:
                return True
            choices = searched(item(self.name), read(self.out), self.size, self.data)
            for place, params in choices.items():
                say(f"chosen for {place}: " + ", ".join(f"{k}={v}" for k, v in params.items()))
        made = pick_methods(item(self.name).make(self.size, self.data, choices), self.methods)
        configs, own = chosen(made, self.overrides), {c.cell for c in made}
        _check_methods(configs)
        if others := sum(c.cell not in own for c in configs):
            say(f"{others} of {len(configs)} runs differ from the item's own and are not part of its table")
        return bool(self._run(configs, say, "runs", **how).failed)

    def _run(self, configs: Sequence[Config], say: Say, what: str, **how: Any) -> Report:
        done = sum(path_of(self.out, c).is_file() for c in configs)
        say(f"{self.name} ({self.size}): {len(configs)} {what}, {done} finished before")
        found = execute(configs, self.out, say=say, **how)
        say(found.text().rstrip("\n"))
        return found


def _check_methods(configs: Sequence[Config]) -> None:
    """A name that no method has is refused once and before the first run."""
    from .prepare import method_of

    for config in {c.method: c for c in configs}.values():
        method_of(config)


def execute(
    configs: Sequence[Config],
    out: Path,
    *,
    workers: int = 1,
    streams: bool = False,
    lanes: int = LANES,
    seconds: float | None = None,
    ray: bool = False,
    cpus: float = 1.0,
    gpus: float | None = None,
    retries: int = 3,
    root: Path | None = None,
    device: str = "auto",
    say: Say = print,
) -> Report:
    """Every run that is not finished, on processes or as tasks of a Ray cluster.

    With `streams`, networks that can share a GPU go first, together on that of this machine, as many larger ones at
    a time as there are `lanes`; after so many `seconds` these stop where the same call will go on, and nothing else
    is run. `cpus`, `gpus` and `retries` are those of a task (`cluster.sweep_on_ray`).
    """
    place = None if root is None else str(root)
    if seconds is not None and not streams:
        raise DubitoError(
            "only runs on streams stop after a time", got=f"{seconds:g} seconds", remedy="add --streams"
        )
    if streams:
        until = math.inf if seconds is None else seconds
        on_streams(configs, out, root=place, device=device, lanes=lanes, seconds=until, say=say)
        if seconds is not None:
            return report(configs, out)

    def progress(finished: int, failed: int, all_: int) -> None:
        say(f"{finished} finished, {failed} failed of {all_}")

    options = {"root": place, "device": device}
    if ray:
        from .cluster import sweep_on_ray

        how: dict[str, Any] = {"cpus": cpus, "gpus": gpus, "retries": retries}
        return sweep_on_ray(configs, out, options=options, progress=progress, **how)
    return sweep(configs, out, workers=workers, options=options, progress=progress)


def chosen(configs: Sequence[Config], overrides: Sequence[str]) -> tuple[Config, ...]:
    """Runs picked by ``key=v1,v2`` where they have these values, or changed to them where none has.

    Example:
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
