"""The folder of a run: its configuration, its records and checkpoints, its result; for one process at a time.

runs/mine/config.json       the configuration and its SHA-256, the identity of the run
          starts.jsonl      one line per start: time, process, versions, threads, seed, step resumed from
          metrics.jsonl     one line per record; cut back to the checkpoint when a run is resumed
          times.jsonl       wall-clock figures, kept apart so that metrics.jsonl is the same in every repetition
          checkpoints/      see `checkpoint`
          result.json       written once, at the end
"""

from __future__ import annotations

import datetime
import errno
import json
import logging
import os
import socket
import stat
from collections.abc import Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import Tensor

from . import _files, _lock, checkpoint
from ._json import as_before, canonical_json, config_hash, parse_json, plain
from ._versions import versions
from .errors import DubitoError

__all__ = ["RunFolder", "canonical_json", "config_hash", "read_config", "read_metrics", "read_result"]

_LARGEST_JSON = 256 << 20

log = logging.getLogger("dubito")


class RunFolder:
    """A run folder, held by this process while the ``with`` block lasts.

    Arguments:
        path: the folder; made if missing, resumed if it holds a run of the same configuration, else refused.
        config: what identifies the run: JSON values, dataclasses, importable functions (`canonical_json`).
        seed: recorded at each start.
        since: entries, at any depth, that older folders lack; such a folder is resumed without them.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, RunFolder(f"{folder}/run", {"lr": 0.1}) as run:
        ...     run.resume()
        ...     run.log(step=1, loss=0.5)
        ...     run.finish({"accuracy": 0.9})
        ...     read_metrics(run.path)
        [{'loss': 0.5, 'step': 1}]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        config: object,
        *,
        seed: int | None = None,
        since: Collection[str] = (),
    ) -> None:
        self.path = Path(path)
        self.config, self.seed, self._since = plain(config), seed, since
        self.hash = config_hash(config)
        self._lock: int | None = None
        self._files: dict[str, int] = {}

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "checkpoints"

    def __enter__(self) -> RunFolder:
        self._refuse()
        _files.make_folder(self.path)
        self._lock = _lock.acquire(self.path)
        try:
            self._refuse()  # again: another run may have taken the folder before we had the lock
            if _files.kind_of(self.path / "config.json") == "nothing":
                content = {"sha256": self.hash, "config": self.config}
                _files.replace_file(self.path / "config.json", _pretty(content))
            for name in ("starts.jsonl", "metrics.jsonl", "times.jsonl"):
                self._files[name] = _open_lines(self.path / name)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        while self._files:
            os.close(self._files.popitem()[1])
        if self._lock is not None:
            _lock.release(self._lock)
            self._lock = None

    def _refuse(self) -> None:
        """Refuse a path that this run must not write to, without touching it."""
        kind = _files.kind_of(self.path)
        if kind == "nothing":
            return
        if kind != "a folder":
            raise DubitoError(
                "not a run folder", where=str(self.path), expected="a folder or nothing", got=kind
            )
        writable = self.path.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)
        if not writable or not os.access(self.path, os.W_OK | os.X_OK):  # root has access to everything
            raise DubitoError(
                "the run folder is read-only", where=str(self.path), remedy="choose another folder"
            )
        if _files.kind_of(self.path / "config.json") == "nothing":
            if foreign := sorted(n for n in os.listdir(self.path) if not n.startswith(".")):
                raise DubitoError(
                    "the folder is not empty and holds no run",
                    where=str(self.path),
                    got=", ".join(foreign[:3]),
                    remedy="choose a new folder",
                )
        else:
            self._agree(read_config(self.path))
        if (kind := _files.kind_of(self.checkpoints)) not in ("nothing", "a folder"):
            raise DubitoError("not a folder for checkpoints", where=str(self.checkpoints), got=kind)

    def _agree(self, found: Mapping[str, Any]) -> None:
        """Refuse the folder of another configuration; an older folder keeps its own, which has fewer entries."""
        ours = as_before(self.config, found["config"], self._since)
        if config_hash(ours) != found["sha256"]:
            raise DubitoError(
                "the folder belongs to a run of another configuration",
                where=str(self.path),
                expected=f"config {self.hash[:12]}",
                got=_difference(ours, found["config"], found["sha256"]),
                remedy="choose another folder, or give that configuration to resume it",
            )
        self.config, self.hash = ours, found["sha256"]

    def resume(self) -> checkpoint.Checkpoint | None:
        """The latest checkpoint that verifies, with metrics.jsonl cut back to it; None for a fresh start."""
        found = checkpoint.load_latest(self.checkpoints)
        if found is not None and found.state.get("config_hash") != self.hash:
            raise DubitoError(
                "the checkpoint belongs to a run of another configuration",
                where=str(found.path),
                expected=f"config {self.hash[:12]}",
                got=f"config {str(found.state.get('config_hash'))[:12]}",
            )
        self._cut("metrics.jsonl", 0 if found is None else int(found.state["metrics_bytes"]))
        start = {
            "time": _now(),
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "seed": self.seed,
            "from_step": 0 if found is None else found.step,
            "skipped": [] if found is None else [reason for _, reason in found.skipped],
            **_machine(),
        }
        self._append("starts.jsonl", start)
        return found

    def _cut(self, name: str, size: int) -> None:
        """Drop the lines that were written after the checkpoint."""
        fd = self._files[name]
        if os.fstat(fd).st_size < size:
            log.warning("%s is shorter than at the last checkpoint: records are missing", self.path / name)
            return
        os.ftruncate(fd, size)

    def log(self, **record: Any) -> None:
        """Append one line to metrics.jsonl: numbers that are the same in every repetition of the run."""
        self._append("metrics.jsonl", record)

    def log_time(self, **record: Any) -> None:
        """Append one line to times.jsonl: seconds, rates, memory, whatever differs between repetitions."""
        self._append("times.jsonl", record)

    def _append(self, name: str, record: Mapping[str, Any]) -> None:
        if not self._files:
            raise DubitoError("the run folder is closed", where=str(self.path), remedy="use it inside `with`")
        data = (canonical_json(record) + "\n").encode()
        fd = self._files[name]
        before = os.fstat(fd).st_size
        try:
            if os.write(fd, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            os.ftruncate(fd, before)  # no half lines
            raise _files.cannot_write(self.path / name, len(data), error) from error

    def save(
        self,
        step: int,
        tensors: Mapping[str, Mapping[str, Tensor]],
        state: Mapping[str, Any],
        *,
        best: bool = False,
        keep: int = 2,
    ) -> Path:
        """`checkpoint.save` into this run, with its configuration, its seed and the length of metrics.jsonl."""
        metrics = self._files["metrics.jsonl"]
        os.fsync(metrics)
        length = os.fstat(metrics).st_size
        full = {**state, "config": self.config, "seed": self.seed, "metrics_bytes": length}
        return checkpoint.save(self.checkpoints, step, tensors, full, best=best, keep=keep)

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write result.json, whole or not at all: its presence says that the run is complete."""
        for fd in self._files.values():
            os.fsync(fd)
        content = {
            "config_sha256": self.hash,
            "seed": self.seed,
            "versions": versions(),
            **plain(result, "result"),
        }
        _files.replace_file(self.path / "result.json", _pretty(content))


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """``{"sha256": ..., "config": ...}`` of a run folder, with the hash checked."""
    file = Path(path) / "config.json"
    content = parse_json(_files.read_bounded(file, _LARGEST_JSON), str(file))
    if not isinstance(content, dict) or content.keys() != {"sha256", "config"}:
        raise DubitoError("not the configuration of a run", where=str(file))
    if (found := config_hash(content["config"])) != content["sha256"]:
        raise DubitoError(
            "the configuration was changed after the run began",
            where=str(file),
            expected=str(content["sha256"])[:12],
            got=found[:12],
            remedy="start a changed configuration in another folder",
        )
    return content


def read_result(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The content of result.json, None if the run is not complete."""
    file = Path(path) / "result.json"
    if _files.kind_of(file) == "nothing":
        return None
    content = parse_json(_files.read_bounded(file, _LARGEST_JSON), str(file))
    if not isinstance(content, dict):
        raise DubitoError("not the result of a run", where=str(file))
    return content


def read_metrics(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The records of metrics.jsonl; a last line that a killed process left unfinished is dropped."""
    file = Path(path) / "metrics.jsonl"
    if _files.kind_of(file) == "nothing":
        return []
    lines = _files.read_bounded(file, 16 * _LARGEST_JSON).split(b"\n")
    return [parse_json(line, f"{file}, line {i}") for i, line in enumerate(lines[:-1], 1)]


def _open_lines(path: Path) -> int:
    _files.refuse_special(path)
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _files.cannot_write(path, 0, error) from error


def _pretty(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _machine() -> dict[str, Any]:
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {"versions": versions(), "threads": torch.get_num_threads(), "cpus": os.cpu_count(), "gpus": gpus}


def _difference(ours: Any, theirs: Any, found: str) -> str:
    """The first entry in which two configurations differ, for the message; long texts from where they part."""
    path = []
    while isinstance(ours, dict) and isinstance(theirs, dict):
        key = next((k for k in sorted(set(ours) | set(theirs)) if ours.get(k) != theirs.get(k)), None)
        if key is None:
            break
        path.append(str(key))
        ours, theirs = ours.get(key), theirs.get(key)
    if not path:
        return f"config {found[:12]}"
    texts = str(theirs), str(ours)
    part = next((i for i, (a, b) in enumerate(zip(*texts)) if a != b), 0)
    there, here = (f"...{t[part - 20 :]}"[:60] if part > 40 else t[:60] for t in texts)
    return f"config {found[:12]} with {'.'.join(path)}={there} instead of {here}"
