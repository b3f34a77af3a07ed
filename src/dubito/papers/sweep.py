"""Many runs on local processes that share a folder: nothing is lost, nothing is done twice.

A run belongs to the process that holds the flock of its folder; the system releases it however the process ends.
A finished run has its result file and is skipped. A run that fails leaves ``failure.json`` in its folder, with the
cause, and the others go on; the next sweep repeats the failed ones and no others. The driver only starts workers
and waits: it can be killed at any instant and started again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os
import signal
import time
import traceback
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any

from .. import _lock
from .._files import replace_file
from .._json import parse_json
from ..errors import DubitoError
from .configs import Config, describe, run_id
from .results import DIVERGED, path_of

_LOG = logging.getLogger("dubito")
FAILURE, STARTED = "failure.json", "started.json"
OUT_OF_MEMORY, CRASHED, KILLED = "out of memory", "crashed", "killed"
POLL = 0.2  # seconds between looks at the workers
COUNT = 1.0  # and at the files of all runs

# (config, out=, **options) -> anything; writes the run's result under out.
Runner = Callable[..., Any]


@dataclass(frozen=True)
class Failure:
    """Why a run did not finish.

    Arguments:
        kind: "out of memory", "crashed" (an exception) or "killed" (the process ended without a word).
        cause: one line.
        trace: the traceback, where there is one.
    """

    config: Config
    kind: str
    cause: str
    trace: str = ""


@dataclass(frozen=True)
class Report:
    """What became of a sweep."""

    finished: tuple[Config, ...]
    failed: tuple[Failure, ...]
    diverged: tuple[Config, ...] = ()  # of the finished: they are not repeated, and have no scores

    def text(self) -> str:
        """One line per cause of failure and per run that diverged, then the sums."""
        causes: dict[tuple[str, str], list[Config]] = {}
        for f in self.failed:
            causes.setdefault((f.kind, f.cause), []).append(f.config)
        lines = []
        for (kind, cause), (first, *others) in causes.items():
            lines.append(f"{kind}: {describe(first)}{f' and {len(others)} more' if others else ''}: {cause}")
        lines += [f"{DIVERGED}: {describe(c)}" for c in self.diverged]
        lost = f" ({len(self.diverged)} {DIVERGED})" if self.diverged else ""
        return "\n".join([*lines, f"{len(self.finished)} finished{lost}, {len(self.failed)} failed\n"])


def sweep(
    configs: Iterable[Config],
    out: str | os.PathLike[str],
    *,
    workers: int = 2,
    run: Runner | None = None,
    options: dict[str, Any] | None = None,
    progress: Callable[[int, int, int], None] | None = None,
) -> Report:
    """Run every config that is not finished, on `workers` new processes.

    Arguments:
        out: the folder that all workers share; other sweeps may work in it at the same time.
        run: an importable function ``run(config, out=..., **options)`` that leaves a result file; None is
            `runner.run`.
        options: passed to `run`.
        progress: called with (finished, failed, all) whenever one of them changes.
    """
    wanted = list({run_id(c): c for c in configs}.values())
    folder = Path(out)
    (folder / ".runs").mkdir(parents=True, exist_ok=True)
    if workers < 1:
        raise DubitoError("a sweep needs a worker", got=workers)
    open_runs = [c for c in wanted if not path_of(folder, c).is_file()]
    driver = _Driver(wanted, folder, run, options or {})
    try:
        driver.watch(min(workers, len(open_runs)), progress)
    finally:
        driver.stop()
    return settled(wanted, folder)


def settled(wanted: Sequence[Config], folder: Path) -> Report:
    """The report of a sweep that is over: every run is finished or has failed."""
    found = report(wanted, folder)
    if missing := len(wanted) - len(found.finished) - len(found.failed):
        raise DubitoError(
            "the workers ended before their runs", got=f"{missing} of {len(wanted)} runs are still open",
            remedy="start the sweep again; finished runs are kept",
        )  # fmt: skip
    return found


def report(configs: Sequence[Config], out: str | os.PathLike[str]) -> Report:
    """Which runs are finished and which have failed, as the folder says."""
    folder = Path(out)
    finished = tuple(c for c in configs if path_of(folder, c).is_file())
    failures = (_failure(c, folder) for c in configs if not path_of(folder, c).is_file())
    lost = tuple(c for c in finished if DIVERGED in _read(path_of(folder, c)).get("history", {}))
    return Report(finished, tuple(filter(None, failures)), lost)


class _Driver:
    """Starts workers, replaces those that die, and writes down what they were doing."""

    def __init__(self, configs: list[Config], out: Path, run: Runner | None, options: dict[str, Any]) -> None:
        self.configs, self.out = configs, out
        self.sweep = uuid.uuid4().hex
        self.task = (run, options)
        # Workers are forked from a server that has loaded torch once; each would take seconds to load it by itself.
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["dubito.papers.runner"])
        self.processes: list[Any] = []
        self.open = [(path_of(out, c), _folder(c, out)) for c in configs]  # names of runs are made once

    def watch(self, workers: int, progress: Callable[[int, int, int], None] | None) -> None:
        """Wait until every run is finished or has failed in this sweep."""
        before, due = None, 0.0
        self.processes = [self._start(workers) for _ in range(workers)]
        while self.processes:
            connection.wait([p.sentinel for p in self.processes], timeout=POLL)  # or one of them ends
            for process in [p for p in self.processes if not p.is_alive()]:
                self.processes.remove(process)
                if process.exitcode != 0 and self._bury(process.pid, process.exitcode):
                    self.processes.append(self._start(workers))
            if progress is not None and (time.monotonic() >= due or not self.processes):
                counts, due = self._counts(), time.monotonic() + COUNT
                if counts != before:
                    progress(*counts)
                before = counts

    def stop(self) -> None:
        """End the workers that are left; each saves a checkpoint first."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.join()

    def _start(self, workers: int) -> Any:
        listed = [c.to_json() for c in self.configs]
        arguments = (dict(os.environ), listed, str(self.out), self.sweep, workers, *self.task)
        process = self.context.Process(target=_forked, args=arguments, daemon=True)
        process.start()
        return process

    def _bury(self, pid: int, code: int) -> bool:
        """A worker died: its run has failed. Whether another worker is worth starting."""
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        hint = ", as the system does when memory runs out" if code == -signal.SIGKILL else ""
        content = {"kind": KILLED, "cause": f"its process ended with {how}{hint}", "sweep": self.sweep}
        found = False
        for config in self.configs:
            folder = _folder(config, self.out)
            mine = _read(folder / STARTED) == {"pid": pid, "sweep": self.sweep}
            if mine and not path_of(self.out, config).is_file():
                _write(folder / FAILURE, content)
                (folder / STARTED).unlink(missing_ok=True)
                found = True
        return found

    def _counts(self) -> tuple[int, int, int]:
        self.open = [(result, folder) for result, folder in self.open if not result.is_file()]
        failed = sum(_read(folder / FAILURE).get("sweep") == self.sweep for _, folder in self.open)
        return len(self.configs) - len(self.open), failed, len(self.configs)


def _forked(environment: dict[str, str], *arguments: Any) -> None:
    """A worker with the environment of its driver, which may be newer than that of the server."""
    os.environ.clear()
    os.environ.update(environment)
    work(*arguments)


def work(
    listed: list[dict[str, Any]],
    out: str,
    sweep_id: str,
    workers: int,
    run: Runner | None,
    options: dict[str, Any],
) -> None:
    """The life of a worker: take runs that nobody has, until none is open. It ends when its driver is gone."""
    chosen = _plain_runner(workers) if run is None else run
    driver, folder = multiprocessing.parent_process(), Path(out)  # not getppid: that is the server
    open_runs = [Config.from_json(fields) for fields in listed]
    while open_runs:
        busy = []
        for config in open_runs:
            if driver is not None and not driver.is_alive():
                return
            if not _attempt(config, folder, sweep_id, chosen, options):
                busy.append(config)
        open_runs = busy
        if busy:
            time.sleep(POLL)


def _plain_runner(workers: int, threads: int | None = None) -> Runner:
    """`runner.run`, with the processor's cores shared between the workers, or with so many threads."""
    import torch

    from . import runner

    share = (os.cpu_count() or 1) // workers if threads is None else threads
    torch.set_num_threads(max(1, min(share, torch.get_num_threads())))
    return runner.run


def _attempt(config: Config, out: Path, sweep_id: str, run: Runner, options: dict[str, Any]) -> bool:
    """Do a run unless it is done, has failed in this sweep, or is being done: then False."""
    if path_of(out, config).is_file():
        return True
    folder = _folder(config, out)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        claim = _lock.acquire(_claim(folder))
    except DubitoError:
        return False
    try:
        if path_of(out, config).is_file() or _read(folder / FAILURE).get("sweep") == sweep_id:
            return True
        _write(folder / STARTED, {"pid": os.getpid(), "sweep": sweep_id})
        (folder / FAILURE).unlink(missing_ok=True)
        try:
            run(config, out=out, **options)
        except Exception as error:
            _LOG.warning("run %s failed: %s", describe(config), error)
            _write(folder / FAILURE, {**_cause(error), "sweep": sweep_id})
        finally:
            (folder / STARTED).unlink(missing_ok=True)
        return True
    finally:
        _lock.release(claim)


def _cause(error: Exception) -> dict[str, str]:
    """Running out of memory, on the host or the GPU, is told apart from other exceptions."""
    memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    text = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
    return {"kind": OUT_OF_MEMORY if memory else CRASHED, "cause": text, "trace": traceback.format_exc()}


def _failure(config: Config, out: Path) -> Failure | None:
    """The failure on record."""
    found = _read(_folder(config, out) / FAILURE)
    if not found:
        return None
    return Failure(config, *(str(found.get(key, "")) for key in ("kind", "cause", "trace")))


def _folder(config: Config, out: Path) -> Path:
    return out / ".runs" / run_id(config)[:16]


def _claim(folder: Path) -> Path:
    """Where the sweep's own lock lies: apart from that of the run, which `run` takes for itself."""
    place = folder / ".claim"
    place.mkdir(exist_ok=True)
    return place


def _read(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, DubitoError):
        content = parse_json(path.read_text(encoding="utf-8"), str(path))
        if isinstance(content, dict):
            return content
    return {}


def _write(path: Path, content: dict[str, Any]) -> None:
    replace_file(path, (json.dumps(content, indent=1) + "\n").encode())
