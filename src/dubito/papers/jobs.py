"""Which runs of an item a command means, and running them on one back end or another."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..errors import DubitoError
from . import item
from .choose import chosen, pick_methods, searched
from .configs import Config
from .items import with_runs
from .results import path_of, read
from .streams import LANES, on_streams
from .sweep import Report, report, sweep

Say = Callable[[str], Any]


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
            if self._run(self.searches(), say, "search run", **how).failed:
                return True
            choices = searched(item(self.name), read(self.out), self.size, self.data)
            for place, params in choices.items():
                say(f"chosen for {place}: " + ", ".join(f"{k}={v}" for k, v in params.items()))
        own_runs = with_runs(self.name, item(self.name).make(self.size, self.data, choices))
        made = pick_methods(own_runs, self.methods)
        configs, own = chosen(made, self.overrides), {c.cell for c in made}
        _check_methods(configs)
        if others := sum(c.cell not in own for c in configs):
            what = f"{others} of {len(configs)} runs differ from the item's own and are not part of its table"
            say(f"{what}; `dubito paper table` shows them by the same key=value words")
        return bool(self._run(configs, say, "run", **how).failed)

    def _run(self, configs: Sequence[Config], say: Say, what: str, **how: Any) -> Report:
        done = sum(path_of(self.out, c).is_file() for c in configs)
        count = f"{len(configs)} {what}{'s' * (len(configs) != 1)}"
        say(f"{self.name} ({self.size}): {count}, {done} finished before")
        found = execute(configs, self.out, say=say, **how)
        say(found.text().rstrip("\n"))
        return found


def _check_methods(configs: Sequence[Config]) -> None:
    """A name that no method has, or a parameter that its method has not, is refused before the first run."""
    from .prepare import method_of

    for config in {(c.method, c.params): c for c in configs}.values():
        method, params = method_of(config)
        method.check(**params)


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
    """Every run that is not finished, on processes or as tasks of Ray; what all would refuse is refused once.

    With `streams`, networks that can share a GPU go first, together on that of this machine, as many larger ones at
    a time as there are `lanes`; after so many `seconds` these stop where the same call will go on, and nothing else
    is run. `cpus`, `gpus` and `retries` are those of a task (`cluster.sweep_on_ray`).
    """
    from .runner import device_of

    device_of(device)  # refuses unknown names
    place = None if root is None else str(root)
    if root is not None and not ray and not root.is_dir():
        raise DubitoError("no such folder of data", got=str(root))
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
