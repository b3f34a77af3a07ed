"""Checkpoints that are complete and verified, or not used.

    checkpoints/step-00001234/model.safetensors        one file for each group of tensors: "model", "optimizer",
                              optimizer.safetensors    and whatever else a procedure keeps
                              state.json               step, state, versions, size and SHA-256 of each file

`state.json` ends with a seal: the SHA-256 of every byte before it. A checkpoint is written under a temporary name,
flushed to the disk and renamed, so a process that is killed at any time leaves only whole ones. Bytes are compared
with their SHA-256 before they are parsed, and both formats, safetensors and JSON, hold data and no code. Only one
process may write to a folder at a time, which `runs.RunFolder` ensures.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from . import _files, _sealed
from ._json import config_hash
from ._optimizer_state import optimizer_tensors, restore_optimizer
from ._versions import versions
from .errors import DubitoError

__all__ = [
    "Checkpoint",
    "load",
    "load_best",
    "load_latest",
    "optimizer_tensors",
    "restore_optimizer",
    "save",
    "steps",
    "verify",
]

_FOLDER = re.compile(r"step-(\d{8,18})")
_UNFINISHED = re.compile(r"\.step-\d+\.(tmp|old)")
_OWN = ("format", "step", "best", "files", "seal")  # keys of state.json that are not the caller's

log = logging.getLogger("dubito")


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint: `tensors` by group and name, `state` as it was given to `save`.

    `skipped` lists the checkpoints that should have been used instead but are broken, each with the reason.
    """

    step: int
    tensors: dict[str, dict[str, Tensor]]
    state: dict[str, Any]
    path: Path
    skipped: tuple[tuple[Path, str], ...] = ()


def save(
    folder: str | os.PathLike[str],
    step: int,
    tensors: Mapping[str, Mapping[str, Tensor]],
    state: Mapping[str, Any],
    *,
    best: bool = False,
    keep: int = 2,
) -> Path:
    """Write one checkpoint, whole or not at all, and remove those no longer needed.

    Arguments:
        folder: holds the checkpoints of one run; made if missing.
        step: number of updates so far; a checkpoint of the same step is replaced.
        tensors: group -> name -> tensor: ``{"model": ..., "optimizer": ..., "ema": ...}``. Shared, transposed,
            0-d and half-precision tensors are written by value.
        state: JSON values: epoch, seed, config, ... The hash of `config` is added.
        best: whether this is the best so far; the best is kept until a better one comes.
        keep: how many of the latest are kept.

    Returns:
        The folder of this checkpoint.

    Example:
        >>> import tempfile, torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = save(folder, 12, {"model": {"w": torch.ones(2)}}, {"epoch": 1})
        ...     path.name, load_latest(folder).tensors["model"]["w"]
        ('step-00000012', tensor([1., 1.]))
    """
    _check_arguments(step, tensors, state, keep)
    folder = Path(folder)
    _make_folder(folder)
    _clean(folder, step)
    place = folder / f"step-{step:08d}"
    temporary = folder / f".{place.name}.tmp"
    known = {"format": _sealed.FORMAT, "step": step, "best": best, "versions": versions()}
    if "config" in state:
        known["config_hash"] = config_hash(state["config"])
    try:
        temporary.mkdir()
        files = {}
        for group, named in tensors.items():
            data = _sealed.serialise(group, named)
            files[f"{group}.safetensors"] = {"bytes": len(data), "sha256": _files.sha256(data)}
            _files.write_durable(temporary / f"{group}.safetensors", data)
        _files.write_durable(temporary / _sealed.STATE, _sealed.seal({**state, **known, "files": files}))
        _files.sync_folder(temporary)
        _put(temporary, place)
    except OSError as error:
        size = sum(tensor.nbytes for named in tensors.values() for tensor in named.values())
        raise _files.cannot_write(place, size, error) from error
    finally:
        _remove(temporary)
    _prune(folder, keep)
    return place


def load(path: str | os.PathLike[str]) -> Checkpoint:
    """Load one checkpoint by its folder; refuse it if anything about it is wrong."""
    path = Path(path)
    state = _sealed.read_state(path)
    tensors = {
        name.removesuffix(".safetensors"): _sealed.read_tensors(path / name, entry)
        for name, entry in state["files"].items()
    }
    own = {key: value for key, value in state.items() if key not in _OWN}
    return Checkpoint(int(state["step"]), tensors, own, path)


def load_latest(folder: str | os.PathLike[str]) -> Checkpoint | None:
    """The checkpoint with the highest step that verifies; None if there are none at all.

    Broken ones are skipped, logged and listed in `skipped`. If every one is broken that is an error.
    """
    return _first(Path(folder), best=False)


def load_best(folder: str | os.PathLike[str]) -> Checkpoint | None:
    """The checkpoint last saved with ``best=True`` that verifies; None if none was marked so."""
    return _first(Path(folder), best=True)


def verify(path: str | os.PathLike[str]) -> None:
    """Compare every byte of a checkpoint with its recorded SHA-256; raise `DubitoError` at the first difference."""
    path = Path(path)
    for name, entry in _sealed.read_state(path)["files"].items():
        _sealed.check_file(path / name, entry)


def steps(folder: str | os.PathLike[str]) -> list[int]:
    """The steps that have a checkpoint folder, in order, verified or not."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise DubitoError(
            "not a folder of checkpoints", where=repr(folder)[:200], got=str(error)[:80]
        ) from None
    return sorted(int(match[1]) for name in names if (match := _FOLDER.fullmatch(name)))


def _first(folder: Path, *, best: bool) -> Checkpoint | None:
    skipped: list[tuple[Path, str]] = []
    for step in reversed(steps(folder)):
        path = folder / f"step-{step:08d}"
        try:
            if best and not _sealed.read_state(path)["best"]:
                continue
            return dataclasses.replace(load(path), skipped=tuple(skipped))
        except (DubitoError, OSError) as error:
            log.warning("skipping checkpoint %s: %s", path, error)
            skipped.append((path, str(error)))
    if skipped:
        raise DubitoError(
            "no intact checkpoint",
            where=str(folder),
            got="; ".join(reason for _, reason in skipped[:3]),
            remedy="remove the folder to start again from nothing",
        )
    return None


def _check_arguments(step: int, tensors: Mapping[str, Any], state: Mapping[str, Any], keep: int) -> None:
    if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < 10**18:
        raise DubitoError("a step is a number of updates", expected="an integer from 0", got=repr(step))
    if keep < 1:
        raise DubitoError("at least one checkpoint has to be kept", where="keep", expected=">= 1", got=keep)
    for group in tensors:
        if not _sealed.GROUP.fullmatch(group):
            raise DubitoError(
                "not a name for a group of tensors", expected="letters, digits, - and _", got=repr(group)
            )
    if taken := sorted(set(state) & {*_OWN, "versions", "config_hash"}):
        raise DubitoError("the checkpoint writes this key of state itself", where=", ".join(taken))


def _make_folder(folder: Path) -> None:
    if (kind := _files.kind_of(folder)) not in ("nothing", "a folder"):
        raise DubitoError("not a folder for checkpoints", where=str(folder), expected="a folder", got=kind)
    _files.make_folder(folder)


def _clean(folder: Path, step: int) -> None:
    """Remove unfinished checkpoints, and broken ones of later steps, which `load_latest` has skipped."""
    for entry in os.listdir(folder):
        if _UNFINISHED.fullmatch(entry):
            log.info("removing an unfinished checkpoint: %s", folder / entry)
            _remove(folder / entry)
    for later in (n for n in steps(folder) if n > step):
        path = folder / f"step-{later:08d}"
        try:
            verify(path)
        except (DubitoError, OSError):
            _retire(path)
        else:
            raise DubitoError(
                "a checkpoint of a later step exists",
                where=str(path),
                expected=f"none after step {step}",
                remedy="resume from it, or remove it to go on from an earlier one",
            )


def _remove(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)


def _aside(path: Path) -> Path:
    """Rename a checkpoint before it is removed, so that a kill never leaves half of one under its name."""
    old = path.with_name(f".{path.name}.old")
    os.rename(path, old)
    return old


def _retire(path: Path) -> None:
    try:
        _remove(_aside(path))
    except OSError as error:
        log.warning("cannot remove the old checkpoint %s: %s", path, error)


def _put(temporary: Path, place: Path) -> None:
    """Rename into place; a checkpoint of the same step is moved aside first."""
    old = _aside(place) if os.path.lexists(place) else None
    os.rename(temporary, place)
    _files.sync_folder(place.parent)
    if old is not None:
        _remove(old)


def _prune(folder: Path, keep: int) -> None:
    """Keep the last ones and the latest that was marked best."""
    best_found = False
    for rank, number in enumerate(reversed(steps(folder))):
        path = folder / f"step-{number:08d}"
        is_best = not best_found and _marked_best(path)
        best_found = best_found or is_best
        if rank >= keep and not is_best:
            _retire(path)


def _marked_best(path: Path) -> bool:
    try:
        return bool(_sealed.read_state(path)["best"])
    except (DubitoError, OSError):
        return False
