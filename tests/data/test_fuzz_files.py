"""Every reader under random damage: it reads something or raises DubitoError, and nothing else."""

from __future__ import annotations

import io
import os
import random
import tarfile

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from dubito import DubitoError
from dubito.data import map_npy, read_npy, read_npz, read_table
from dubito.data._cifar import _binary_batch, _python_batch
from dubito.data._download import extract
from dubito.data._idx import read_idx
from dubito.data._mat import read_mat
from dubito.data._zips import read_torch
from dubito.data.images import decode


def saved(function, *arguments, **more):
    stream = io.BytesIO()
    function(stream, *arguments, **more)
    return stream.getvalue()


def jpeg(stream):
    Image.fromarray(np.arange(300, dtype=np.uint8).reshape(10, 10, 3)).save(stream, "JPEG")


def archive(stream):
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        info = tarfile.TarInfo("a")
        info.size = 3000
        tar.addfile(info, io.BytesIO(bytes(range(250)) * 12))


def samples(published):
    """name -> (good bytes, suffix, reader)."""
    frame = pd.DataFrame({"label": ["a", "b"] * 20, "x": range(40)})
    read = published / "mnist" / "train-images-idx3-ubyte.gz"
    return {
        "idx.gz": (read.read_bytes(), ".gz", read_idx),
        "idx": ((published / "mnist" / "t10k-labels-idx1-ubyte").read_bytes(), "", read_idx),
        "batch": (
            (published / "py100" / "cifar-100-python" / "train").read_bytes(),
            "",
            lambda p: _python_batch(p, 100),
        ),
        "binary": (
            (published / "bin10/cifar-10-batches-bin/test_batch.bin").read_bytes(),
            "",
            lambda p: _binary_batch(p, 10),
        ),
        "mat": (
            (published / "svhn" / "train_32x32.mat").read_bytes(),
            ".mat",
            lambda p: read_mat(p, ("X", "y")),
        ),
        "plain mat": (
            (published / "svhn" / "test_32x32.mat").read_bytes(),
            ".mat",
            lambda p: read_mat(p, ("X", "y")),
        ),
        "torch": ((published / "human" / "CIFAR-10_human.pt").read_bytes(), ".pt", read_torch),
        "old torch": ((published / "human" / "CIFAR-100_human.pt").read_bytes(), ".pt", read_torch),
        "tensors": (saved(lambda f: torch.save({"a": torch.arange(9)}, f)), ".pt", read_torch),
        "npy": (saved(np.save, np.arange(20.0)), ".npy", read_npy),
        "mapped": (saved(np.save, np.arange(20.0)), ".npy", map_npy),
        "npz": (saved(np.savez_compressed, x=np.eye(4), y=np.arange(4)), ".npz", read_npz),
        "csv": (frame.to_csv(index=False).encode(), ".csv", lambda p: read_table(p, features=["x"])),
        "parquet": (
            saved(lambda f: frame.to_parquet(f)),
            ".parquet",
            lambda p: read_table(p, features=["x"]),
        ),
        "jpeg": (saved(jpeg), ".jpg", lambda p: decode(p, 8)),
        "tar": (saved(archive), ".tar.gz", lambda p: extract(p, p.parent / "out", ("a",))),
    }


NIGHTLY = int(os.environ.get("DUBITO_FUZZ", "1000"))
NAMES = [
    "idx.gz",
    "idx",
    "batch",
    "binary",
    "mat",
    "plain mat",
    "torch",
    "old torch",
    "tensors",
    "npy",
    "mapped",
]
NAMES += ["npz", "csv", "parquet", "jpeg", "tar"]


def damage(raw, dice):
    """Flip bytes (mostly near the ends, where heads and directories are), cut, repeat or insert."""
    out = bytearray(raw)
    kind = dice.randrange(4)
    for _ in range(dice.choice([1, 1, 3, 20])):
        if not out:
            break
        edge = min(len(out), 400)
        near = dice.choice(
            [dice.randrange(edge), len(out) - 1 - dice.randrange(edge), dice.randrange(len(out))]
        )
        if kind == 0:
            out[near] = dice.randrange(256)
        elif kind == 1:
            out[near] ^= 1 << dice.randrange(8)
        elif kind == 2:
            del out[near : near + dice.choice([1, 4, 1000])]
        else:
            out[near:near] = dice.choice([b"\xff" * 4, b"\0" * 8, bytes(out[:50])])
    return bytes(out)


def fuzz(published, tmp_path, name, rounds):
    good, suffix, read = samples(published)[name]
    sentences = []
    for seed in range(rounds):
        path = tmp_path / f"x{suffix}"
        path.write_bytes(damage(good, random.Random(f"{name}{seed}")))
        try:
            read(path)
        except DubitoError as error:
            sentences.append(str(error))
    assert sentences
    assert not any("\n" in sentence for sentence in sentences)


@pytest.mark.rel
@pytest.mark.usefixtures("bounded")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_damaged_files(published, tmp_path, name, audited, scorecard):
    """Scorecard 28: each reader on 40 damaged files."""
    fuzz(published, tmp_path, name, 40)
    scorecard(28, files=40, **audited.figures())


@pytest.mark.rel
@pytest.mark.nightly
@pytest.mark.usefixtures("bounded")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_many_damaged_files(published, tmp_path, name, audited, scorecard):
    """Scorecard 18, 28: each reader on hundreds of damaged files."""
    fuzz(published, tmp_path, name, NIGHTLY)
    scorecard(18, examples=NIGHTLY)
    scorecard(28, files=NIGHTLY, **audited.figures())
