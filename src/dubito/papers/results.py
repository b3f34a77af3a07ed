"""Result files: one JSON object per finished run, alone in a file or as a line among others.

Tables and claims are computed from these files and from nothing else. A file holds the config, its id, seed,
date, commit, versions, hardware, seconds, metrics and a short history.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .._files import replace_file
from .._json import parse_json, plain
from .._versions import versions
from ..errors import DubitoError
from .configs import Config, run_id

_LOG = logging.getLogger("dubito")
DIVERGED = "diverged"  # in a history: why the run has no scores
TIME, SHARE = "time", "share"  # in a history: the seconds are a share of the device's time
STACKED = "convolutions in "  # in the name of the hardware of stacks, before the kind of number


@dataclass(frozen=True)
class Result:
    """What one finished run left.

    Arguments:
        seconds: of the device: where runs went side by side, this run's share of the time.
        metrics: name -> number, shares as shares (not per cent); names as in `dubito.papers.tables.METRICS`.
        history: a summary of the course: lists of numbers by name, or None.
        dirty: whether the source differed from `commit`; None where that is unknown.
    """

    config: Config
    metrics: Mapping[str, float]
    seconds: float = 0.0
    history: Mapping[str, Any] = field(default_factory=dict)
    commit: str = ""
    dirty: bool | None = None
    date: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    hardware: str = ""

    @property
    def id(self) -> str:
        """The run's identity."""
        return run_id(self.config)

    @property
    def diverged(self) -> str:
        """Why the run has no scores; "" for one that has."""
        return str(self.history.get(DIVERGED, ""))

    @property
    def on_gpu(self) -> bool:
        """Whether it was made on a GPU."""
        return "CPU" not in self.hardware

    def to_json(self) -> dict[str, Any]:
        """One object of plain values."""
        facts = {"id": self.id, "seed": self.config.seed, "config": self.config.to_json()}
        rest = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "config"}
        return {**facts, **{name: plain(value, name) for name, value in rest.items()}}

    @classmethod
    def from_json(cls, content: Any, where: str) -> Result:
        """The inverse of `to_json`; an id that does not belong to the config is refused."""
        if not isinstance(content, dict) or not isinstance(content.get("config"), dict):
            raise DubitoError("not a result of a run", where=where, expected="an object with a config")
        known = {k: content[k] for k in cls.__dataclass_fields__ if k in content and k != "config"}
        try:
            result = cls(config=Config.from_json(content["config"]), **known)
        except (TypeError, DubitoError) as error:
            raise DubitoError("not a result of a run", where=where, got=str(error)) from error
        if content.get("id") not in (None, result.id):
            raise DubitoError(
                "the id of a result does not belong to its config", where=where, expected=result.id,
                got=content["id"], remedy="the file was edited, or a default of a config was changed",
            )  # fmt: skip
        return result


def finished(
    config: Config,
    metrics: Mapping[str, float],
    seconds: float,
    *,
    history: Mapping[str, Any] | None = None,
    hardware: str = "",
) -> Result:
    """A result with date, commit, versions and hardware filled in."""
    commit, dirty = provenance()
    return Result(
        config=config,
        metrics=metrics,
        seconds=seconds,
        history=history or {},
        commit=commit,
        dirty=dirty,
        date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        versions=versions(),
        hardware=hardware or f"{platform.machine()} CPU, {os.cpu_count()} cores",
    )


def device_hours(results: Iterable[Result]) -> float:
    """Hours that a device was busy with some runs: the sum of their seconds.

    Stacks of runs once noted the whole time of a stack, in equal parts, also when several stacks shared the device.
    Such runs have equal seconds and no note that these are shares; their intervals, which end at the date of the
    results, count once where they overlap. A stack of a single run is known by how its hardware is named.
    """
    stacks: dict[tuple[str, float], list[Result]] = {}
    for result in results:
        stacks.setdefault((result.hardware, result.seconds), []).append(result)
    total, spans = 0.0, []
    for members in stacks.values():
        seconds = sum(r.seconds for r in members)
        dated = all(r.date for r in members)
        single = len(members) == 1 and STACKED not in members[0].hardware
        if single or not dated or any(r.history.get(TIME) == SHARE for r in members):
            total += seconds
            continue
        end = max(datetime.fromisoformat(r.date).timestamp() for r in members)
        spans.append((end - seconds, end))
    reached = float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total / 3600


def provenance() -> tuple[str, bool | None]:
    """(commit, dirty) of the source: DUBITO_COMMIT ("abc123" or "abc123-dirty"), else git, else ("", None)."""
    given = os.environ.get("DUBITO_COMMIT", "")
    if given:
        return given.removesuffix("-dirty"), given.endswith("-dirty")
    here = Path(__file__).parent
    commit = _git(here, "rev-parse", "HEAD")
    if commit is None:
        return "", None
    changes = _git(here, "status", "--porcelain", "--untracked-files=no", "--", str(here.parent))
    return commit, None if changes is None else bool(changes)


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def path_of(folder: Path | str, config: Config) -> Path:
    """Where the result of a run goes: FOLDER/paper/item/<first 16 digits of its id>.json."""
    return Path(folder) / config.paper / config.item / f"{run_id(config)[:16]}.json"


def write_result(result: Result, folder: Path | str) -> Path:
    """Write one file, whole or not at all, and return its path."""
    path = path_of(folder, result.config)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result.to_json(), indent=1, ensure_ascii=False, allow_nan=False, sort_keys=True)
    replace_file(path, (text + "\n").encode())
    return path


def line(result: Result) -> str:
    """The result as one line of a ``.jsonl`` file, with its line end."""
    return json.dumps(result.to_json(), ensure_ascii=False, allow_nan=False, sort_keys=True) + "\n"


def read(folder: Path | str) -> list[Result]:
    """Every result under a folder, in ``.json`` and ``.jsonl`` files; a run that appears twice counts once.

    Of two results with one id the first by path is kept; a difference in their metrics is logged. The last line
    of a ``.jsonl`` file is left out, with a warning, when it has no line end: its writer was stopped.
    """
    root = Path(folder)
    if not root.is_dir():
        raise DubitoError("no such folder of results", got=str(root))
    kept: dict[str, Result] = {}
    for result in _each(sorted(_files(root))):
        first = kept.setdefault(result.id, result)
        if first is not result and dict(first.metrics) != dict(result.metrics):
            _LOG.warning("run %s has two results with different metrics; the first is used", result.id[:16])
    return list(kept.values())


def runs_of(configs: Iterable[Config], results: Iterable[Result]) -> list[Result]:
    """The results of some configs in their order, further seeds of them included, each once."""
    place = {cell: number for number, cell in enumerate(dict.fromkeys(c.cell for c in configs))}
    found = {r.id: (place[r.config.cell], r) for r in results if r.config.cell in place}
    return [r for _, r in sorted(found.values(), key=lambda pair: (pair[0], pair[1].config.seed))]


def _files(root: Path) -> Iterator[Path]:
    """Files that may hold results; hidden folders are runs under way, whose files come and go."""
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.endswith((".json", ".jsonl")) and not name.startswith("."):
                yield Path(folder) / name


def _each(paths: Iterable[Path]) -> Iterator[Result]:
    for path in paths:
        text = _text(path)
        if path.suffix == ".json":
            content = parse_json(text, str(path))
            # A folder may hold other JSON: a summary, a list of failures, a benchmark.
            if isinstance(content, dict) and "config" in content and "metrics" in content:
                yield Result.from_json(content, str(path))
            continue
        lines = text.splitlines(keepends=True)
        for number, row in enumerate(lines, start=1):
            if not row.endswith("\n"):
                _LOG.warning("%s ends in the middle of a line; the last result is left out", path)
            elif row.strip():
                where = f"{path}:{number}"
                content = parse_json(row, where)
                if isinstance(content, dict) and "benchmark" in content:
                    continue  # of a benchmark, which may hold a config of its own
                if not isinstance(content, dict) or "config" in content or "metrics" in content:
                    yield Result.from_json(content, where)


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise DubitoError(
            "not a file of results", where=str(path), expected="UTF-8", got=str(error)
        ) from None
