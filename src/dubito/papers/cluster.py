"""Runs as tasks on a Ray cluster: the same folder, the same failures, the same table as on local processes.

Each run is one core task that asks for processors and a share of a GPU. A task whose node or process is lost is
sent again, up to `retries` times; an exception in a run is its failure, is written down, and is not tried again in
the same sweep. Where a node sees the folder of results, a run works in it, locked, with its checkpoints, and a task
that is sent again goes on from them; where it does not, the result travels back to the driver, which writes it.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import DubitoError
from .configs import Config, run_id
from .results import Result, path_of, write_result
from .sweep import (
    COUNT,
    CRASHED,
    FAILURE,
    KILLED,
    OUT_OF_MEMORY,
    POLL,
    Report,
    Runner,
    _attempt,
    _folder,
    _plain_runner,
    _read,
    _write,
    settled,
)

BUSY = "busy"  # somebody else has the run: ask again
AGAIN = 1.0  # seconds until then


def sweep_on_ray(
    configs: Iterable[Config],
    out: str | Path,
    *,
    address: str | None = None,
    cpus: float = 1.0,
    gpus: float | None = None,
    retries: int = 3,
    run: Runner | None = None,
    options: dict[str, Any] | None = None,
    progress: Callable[[int, int, int], None] | None = None,
) -> Report:
    """Run every config that is not finished, each as a task of a Ray cluster.

    Arguments:
        out: the folder of results, on the driver's machine and best on a file system that all nodes share.
        address: of the cluster; None is the one that the process or RAY_ADDRESS names, else this machine.
        cpus, gpus: what a run asks for; 0.25 GPUs are four runs on one. None: one GPU where the cluster has any.
        retries: how often a run is sent again after its node or process was lost.
        run, options, progress: as in `sweep.sweep`.
    """
    if retries < 0 or cpus <= 0 or (gpus is not None and gpus < 0):
        raise DubitoError("no such share of a cluster", got=f"cpus={cpus}, gpus={gpus}, retries={retries}")
    wanted = list({run_id(c): c for c in configs}.values())
    folder = Path(out).resolve()
    (folder / ".runs").mkdir(parents=True, exist_ok=True)
    mark = folder / ".runs" / f".sweep-{uuid.uuid4().hex}"
    with _connected(address) as ray:
        share = _gpus(ray, gpus, options or {})
        send = ray.remote(num_cpus=cpus, num_gpus=share, max_retries=retries, retry_exceptions=False)(task)
        work = _Tasks(ray, send, wanted, folder, mark, (run, options or {}, cpus))
        mark.touch()
        try:
            work.watch(progress)
        finally:
            mark.unlink(missing_ok=True)
    return settled(wanted, folder)


def task(
    fields: dict[str, Any], out: str, mark: str, run: Runner | None, options: dict[str, Any], cpus: float
) -> dict[str, Any]:
    """One run on a node of the cluster: in the shared folder where there is one, else in a folder of its own."""
    config, sweep_id = Config.from_json(fields), Path(mark).name
    chosen = _plain_runner(1, threads=max(1, int(cpus))) if run is None else run
    if (Path(out) / ".runs" / sweep_id).is_file():
        return {} if _attempt(config, Path(out), sweep_id, chosen, options) else {BUSY: True}
    with tempfile.TemporaryDirectory() as place:
        _attempt(config, Path(place), sweep_id, chosen, options)
        path = path_of(place, config)
        result = _read(path) if path.is_file() else None
        return {"result": result, "failure": _read(_folder(config, Path(place)) / FAILURE)}


class _Tasks:
    """Sends the open runs, and writes down what comes back and what does not."""

    def __init__(
        self, ray: Any, send: Any, configs: list[Config], out: Path, mark: Path, how: tuple[Any, ...]
    ) -> None:
        self.ray, self.send, self.configs, self.out, self.mark, self.how = ray, send, configs, out, mark, how
        self.flying: dict[Any, Config] = {}
        self.later: list[tuple[float, Config]] = []
        self.open = [(path_of(out, c), _folder(c, out)) for c in configs]

    def watch(self, progress: Callable[[int, int, int], None] | None) -> None:
        """Wait until every run is finished or has failed in this sweep."""
        before, due = None, 0.0
        for config in self.configs:
            if not path_of(self.out, config).is_file():
                self._send(config)
        while self.flying or self.later:
            self._send_again()
            ready, _ = self.ray.wait(list(self.flying), timeout=POLL) if self.flying else ([], None)
            for reference in ready:
                self._take(self.flying.pop(reference), reference)
            if self.later and not self.flying:
                time.sleep(POLL)
            over = not (self.flying or self.later)
            if progress is not None and (time.monotonic() >= due or over):
                counts, due = self._counts(), time.monotonic() + COUNT
                if counts != before:
                    progress(*counts)
                before = counts

    def _counts(self) -> tuple[int, int, int]:
        self.open = [(result, folder) for result, folder in self.open if not result.is_file()]
        failed = sum(_read(folder / FAILURE).get("sweep") == self.mark.name for _, folder in self.open)
        return len(self.configs) - len(self.open), failed, len(self.configs)

    def _send(self, config: Config) -> None:
        reference = self.send.remote(config.to_json(), str(self.out), str(self.mark), *self.how)
        self.flying[reference] = config

    def _send_again(self) -> None:
        now, waiting = time.monotonic(), self.later
        self.later = [(when, c) for when, c in waiting if when > now]
        for when, config in waiting:
            if when <= now and not path_of(self.out, config).is_file():
                self._send(config)

    def _take(self, config: Config, reference: Any) -> None:
        folder = _folder(config, self.out)
        try:
            found = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            folder.mkdir(parents=True, exist_ok=True)
            _write(folder / FAILURE, {**self._cause(error), "sweep": self.mark.name})
            return
        if found.get(BUSY):
            self.later.append((time.monotonic() + AGAIN, config))
        elif found.get("result"):
            write_result(Result.from_json(found["result"], "a task of the cluster"), self.out)
        elif found.get("failure"):
            folder.mkdir(parents=True, exist_ok=True)
            _write(folder / FAILURE, found["failure"])

    def _cause(self, error: Exception) -> dict[str, str]:
        """Why a task gave no answer: an exception around the run, memory, or a lost node or process."""
        known = self.ray.exceptions
        if isinstance(error, known.RayTaskError):
            last = [line for line in str(error).splitlines() if line.strip()][-1]
            return {"kind": CRASHED, "cause": last, "trace": str(error)}
        if isinstance(error, known.OutOfMemoryError):
            return {"kind": OUT_OF_MEMORY, "cause": "its node ran out of memory"}
        return {"kind": KILLED, "cause": f"its node or process was lost ({type(error).__name__})"}


@contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """Ray, connected; a connection that was there before stays."""
    try:
        import ray
    except ImportError as error:
        raise DubitoError("this back end needs ray", remedy="pip install 'dubito[ray]'") from error
    ours = not ray.is_initialized()
    if ours:
        try:
            ray.init(address=address, log_to_driver=False, include_dashboard=False)
        except ConnectionError as error:
            raise DubitoError("no Ray cluster answers", got=str(error), where=address or "") from error
    try:
        yield ray
    finally:
        if ours:
            ray.shutdown()


def _gpus(ray: Any, asked: float | None, options: dict[str, Any]) -> float:
    """The share of a GPU for each run: none where the device is the processor."""
    if asked is not None:
        return asked
    there = ray.cluster_resources().get("GPU", 0)
    return 1.0 if there and options.get("device", "auto") != "cpu" else 0.0
