"""Promises about what comes in: nonsense is refused in a sentence, and files of strangers run nothing."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import checkpoint, losses, noise
from ..crowd import CrowdLabels
from ..data import LabelledData, read_arrays, read_npy, read_npz, read_table
from ..data._zips import read_torch
from ..errors import DubitoError
from ._card import Check, Outcome


def refused(folder: Path) -> Outcome:
    """Labels, matrices, tables and options without a meaning are refused in one sentence of ours."""
    z, y = torch.zeros(4, 3), torch.tensor([0, 1, 2, 0])
    short = folder / "short.csv"
    short.write_text("id,x,label\n1,2.0,a\n2,3.0\n", encoding="utf-8")
    source = torch.Generator().manual_seed(0)
    calls: list[Callable[[], Any]] = [
        lambda: losses.nll(z, torch.tensor([0, 1, 2, 3])),
        lambda: losses.nll(z, y[:3]),
        lambda: losses.nll(z.long(), y),
        lambda: losses.gce(z, y, q=-1.0),
        lambda: noise.corrupt(y, torch.ones(3, 3), source),
        lambda: noise.corrupt(y, torch.full((3, 2), 0.5), source),
        lambda: noise.corrupt(y, torch.full((3, 3), torch.nan), source),
        lambda: LabelledData(torch.zeros(3, 2), y),
        lambda: CrowdLabels([0, 0], [0, 1], [1, -1]),
        lambda: CrowdLabels([0, 0], [0], [1, 1]),
        lambda: read_table(short, features=["x"]),
        lambda: read_table(folder / "absent.csv"),
    ]
    found = sum(map(_says_so, calls))
    return Outcome(f"{found} of {len(calls)}", found == len(calls))


def _says_so(call: Callable[[], Any]) -> bool:
    try:
        call()
    except DubitoError as error:
        return "\n" not in str(error)
    except Exception:
        return False
    return False


def hostile(folder: Path) -> Outcome:
    """Files that would start a program or unpack without end are refused, and nothing comes of them."""
    (folder / "in").mkdir()
    mark = folder / "ran"
    code = f"cos\nsystem\n(S'touch {mark}'\ntR.".encode()
    files = list(_hostile_files(folder / "in", code))
    found = sum(_says_so(partial(read, path)) for read, path in files)
    left = sorted(p.name for p in folder.iterdir())
    good = found == len(files) and left == ["in"]
    return Outcome(
        f"{found} of {len(files)} refused, {'something' if left != ['in'] else 'nothing'} came of them", good
    )


def _hostile_files(folder: Path, code: bytes) -> Iterable[tuple[Callable[[Path], Any], Path]]:
    """Each with the reader that it is meant for."""
    objects = _npy("|O", (1,)) + code
    for name, content, read in (
        ("objects.npy", objects, read_npy),
        ("vast.npy", _npy("<f8", (1 << 40,)), read_npy),
        ("objects.npz", _zip({"x.npy": objects}), read_npz),
        ("vast.npz", _zip({"x.npy": _npy("<f8", (1 << 27,)) + bytes(1 << 24)}), read_arrays),
        ("weights.pt", _zip({"w/data.pkl": code, "w/version": b"3"}), read_torch),
    ):
        (folder / name).write_bytes(content)
        yield read, folder / name
    step = checkpoint.save(folder / "saved", 1, {"model": {"w": torch.ones(2)}}, {})
    (step / "model.safetensors").write_bytes(code)
    yield checkpoint.load, step


def _npy(kind: str, shape: tuple[int, ...]) -> bytes:
    """The head of an npy file."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": kind, "fortran_order": False, "shape": shape})
    return stream.getvalue()


def _zip(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


CHECKS = (
    Check(13, "bad input is refused in one sentence", "all", refused),
    Check(28, "files of strangers run nothing", "all refused, nothing comes of them", hostile),
)
