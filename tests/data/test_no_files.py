"""In the place of a file: a named pipe, a folder, a device, a link to itself, nothing, zeros. Every reader ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dubito import DubitoError, checkpoint
from dubito.data import image_folder, map_npy, read_arrays, read_mask, read_npy, read_npz, read_table
from dubito.data._cifar import _binary_batch, _python_batch
from dubito.data._idx import read_idx
from dubito.data._mat import read_mat
from dubito.data._zips import read_torch
from dubito.data.images import decode
from dubito.runs import read_config, read_result

READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "table": ("a.csv", lambda p: read_table(p, features=["x"])),
    "parquet": ("a.parquet", lambda p: read_table(p, features=["x"])),
    "arrays": ("a.npz", read_arrays),
    "npz": ("a.npz", read_npz),
    "npy": ("a.npy", read_npy),
    "mapped npy": ("a.npy", map_npy),
    "idx": ("t10k-labels-idx1-ubyte", read_idx),
    "idx.gz": ("a.gz", read_idx),
    "mat": ("a.mat", lambda p: read_mat(p, ("x",))),
    "python batch": ("a", lambda p: _python_batch(p, 10)),
    "binary batch": ("a.bin", lambda p: _binary_batch(p, 10)),
    "torch": ("a.pt", read_torch),
    "image": ("a.png", decode),
    "mask": ("a.png", read_mask),
    "config": ("config.json", lambda p: read_config(p.parent)),
    "result": ("result.json", lambda p: read_result(p.parent)),
}
PLACES: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "device": lambda p: p.symlink_to("/dev/zero"),
    "link to itself": lambda p: p.symlink_to(p),
    "zeros": lambda p: p.write_bytes(bytes(100_000)),
}


@pytest.fixture(autouse=True)
def alarm():
    """Whatever waits for a file without end is ended, and the test with it."""

    def ring(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.rel
@pytest.mark.parametrize("reader", READERS)
def test_no_file(tmp_path, reader, audited, scorecard):
    """Scorecard 28: one sentence, at once, whatever lies in the place of the file."""
    name, read = READERS[reader]
    for place, make in PLACES.items():
        folder = tmp_path / place
        folder.mkdir()
        make(folder / name)
        with pytest.raises(DubitoError) as refused:
            read(folder / name)
        assert "\n" not in str(refused.value), place
        scorecard(28, files=1, **audited.figures())


@pytest.mark.rel
@pytest.mark.parametrize("place", [place for place in PLACES if place != "folder"])
def test_among_images(tmp_path, place):
    """Scorecard 28: in a folder of images, read by several threads."""
    from PIL import Image

    for name in ("cats", "dogs"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (4, 4)).save(tmp_path / name / "0.png")
    PLACES[place](tmp_path / "cats" / "1.png")
    data = image_folder(tmp_path)
    if place == "device":
        assert len(data) == 2  # a link that leads out of the folder is left out
        return
    with pytest.raises(DubitoError):
        data.batch(torch.arange(len(data)))


@pytest.mark.rel
@pytest.mark.parametrize("part", ["model.safetensors", "state.json", ""])
def test_in_a_checkpoint(tmp_path, part, scorecard):
    """Scorecard 26, 28: the checkpoint before it is taken, and the reason is named."""
    for place, make in PLACES.items():
        folder = tmp_path / place
        for step in (1, 2):
            path = checkpoint.save(folder, step, {"model": {"w": torch.full((3,), float(step))}}, {})
        if part:
            (path / part).unlink()
        else:
            path.rename(tmp_path / f"{place} aside")
        make(path / part if part else path)
        found = checkpoint.load_latest(folder)
        assert found is not None
        assert found.step == 1
        ((skipped, reason),) = found.skipped
        assert Path(skipped).name == "step-00000002"
        assert reason
        scorecard(26, damaged=1, unnoticed=0)
