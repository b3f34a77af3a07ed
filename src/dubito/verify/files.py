"""Promises about checkpoints and run folders."""

from __future__ import annotations

import random
from pathlib import Path

import torch
from torch import Tensor

from .. import checkpoint
from ..errors import DubitoError
from ..runs import RunFolder
from ._card import Check, Outcome

DAMAGES = 200


def _tensors(step: int) -> dict[str, dict[str, Tensor]]:
    g = torch.Generator().manual_seed(step)
    model = {"w": torch.randn(32, 16, generator=g), "half": torch.randn(5, generator=g).bfloat16()}
    return {"model": model, "optimizer": {"m": torch.randn(32, 16, generator=g), "step": torch.tensor(3.0)}}


def round_trip(folder: Path) -> Outcome:
    """Every tensor that comes back from a checkpoint has the bits that went in."""
    saved = _tensors(1)
    found = checkpoint.load(checkpoint.save(folder, 1, saved, {"epoch": 0})).tensors
    pairs = [(value, found[group][name]) for group, named in saved.items() for name, value in named.items()]
    same = sum(a.dtype == b.dtype and torch.equal(_bytes(a), _bytes(b)) for a, b in pairs)
    return Outcome(f"{same} of {len(pairs)} tensors", same == len(pairs))


def _bytes(x: Tensor) -> Tensor:
    return x.contiguous().reshape(-1).view(torch.uint8)


def damage(folder: Path) -> Outcome:
    """Damaged checkpoints are noticed, and the last good one is used instead."""
    r = random.Random(0)
    for step in (1, 2):
        checkpoint.save(folder, step, _tensors(step), {"epoch": step})
    latest = folder / "step-00000002"
    noticed = 0
    for _ in range(DAMAGES):
        file = r.choice(sorted(latest.iterdir()))
        whole = file.read_bytes()
        file.write_bytes(_damaged(whole, r))
        found = checkpoint.load_latest(folder)
        noticed += found is not None and found.step == 1 and found.skipped[0][0] == latest
        file.write_bytes(whole)
    return Outcome(f"{noticed} of {DAMAGES}", noticed == DAMAGES)


def _damaged(whole: bytes, r: random.Random) -> bytes:
    """One bit flipped, a block zeroed, or the end cut off; never the same bytes."""
    data = bytearray(whole)
    kind = r.choice(("flip", "zero", "cut"))
    while bytes(data) == whole:
        place = r.randrange(len(data))
        if kind == "flip":
            data[place] ^= 1 << r.randrange(8)
        elif kind == "zero":
            data[place : place + 64] = bytes(len(data[place : place + 64]))
        else:
            del data[place:]
    return bytes(data)


def refused_places(folder: Path) -> Outcome:
    """A run refuses a file, a link, a foreign folder and another run's folder, and leaves them as they were."""
    (folder / "file").write_text("mine")
    (folder / "foreign").mkdir()
    (folder / "foreign" / "notes.txt").write_text("mine")
    (folder / "link").symlink_to(folder / "foreign")
    with RunFolder(folder / "other", {"lr": 1}):
        pass
    before = _listing(folder)
    places = ("file", "foreign", "link", "other")
    refused = sum(_refuses(folder / name) for name in places)
    return Outcome(f"{refused} of {len(places)}", refused == len(places) and _listing(folder) == before)


def _refuses(path: Path) -> bool:
    try:
        with RunFolder(path, {"lr": 2}):
            return False
    except DubitoError as error:
        return str(path) in str(error)


def _listing(folder: Path) -> list[tuple[str, bytes]]:
    return [(str(p), p.read_bytes() if p.is_file() else b"") for p in sorted(folder.rglob("*"))]


CHECKS = (
    Check(31, "a checkpoint gives back every bit", "all tensors", round_trip),
    Check(26, "damaged checkpoints are noticed and the last good one is used", "all", damage),
    Check(30, "a run writes to no place that is not its own", "all refused, untouched", refused_places),
)
