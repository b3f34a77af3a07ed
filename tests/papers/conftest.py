"""Small sets in the published layouts, so that every run of the papers can be tried without real data."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

TRAIN, TEST = 330, 64


def write_mnist(root: Path, rng: np.random.Generator) -> None:
    """Blurred digits of our own: each class is a bright square in a place of its own."""
    for stem, n in (("train", TRAIN), ("t10k", TEST)):
        labels = (np.arange(n) % 10).astype(np.uint8)
        images = rng.integers(0, 60, (n, 28, 28), dtype=np.uint8)
        for i, c in enumerate(labels):
            y, x = 4 + 9 * (c // 4), 2 + 6 * (c % 4)
            images[i, y : y + 6, x : x + 6] = 230
        head = struct.pack(">IIII", 2051, n, 28, 28)
        (root / f"{stem}-images-idx3-ubyte").write_bytes(head + images.tobytes())
        (root / f"{stem}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, n) + labels.tobytes())


def write_cifar(root: Path, rng: np.random.Generator, classes: int) -> None:
    """Binary records: label bytes, then three planes."""
    if classes == 10:
        folder, names = root / "cifar-10-batches-bin", [f"data_batch_{i}" for i in range(1, 6)]
        sizes = [*((name, TRAIN // 5) for name in names), ("test_batch", TEST)]
    else:
        folder, sizes = root / "cifar-100-binary", [("train", TRAIN), ("test", TEST)]
    folder.mkdir()
    for name, n in sizes:
        labels = (np.arange(n) % classes).astype(np.uint8)
        pixels = rng.integers(0, 256, (n, 3072), dtype=np.uint8)
        head = labels[:, None] if classes == 10 else np.stack([labels // 5, labels], 1)
        (folder / f"{name}.bin").write_bytes(np.concatenate([head, pixels], 1).tobytes())


def write_human(root: Path, rng: np.random.Generator) -> None:
    """Human labels in the order of the training images, a third of them wrong."""
    for name, classes, keys in (
        ("cifar10n", 10, ("aggre", "worst", "random1", "random2", "random3")),
        ("cifar100n", 100, ("noisy",)),
    ):
        per_file = TRAIN // 5 if classes == 10 else TRAIN
        clean = np.arange(TRAIN) % per_file % classes
        wrong = {k: np.where(rng.random(TRAIN) < 0.3, (clean + 1) % classes, clean) for k in keys}
        extra = {"clean_coarse": clean // 5, "noisy_coarse": clean // 5} if classes == 100 else {}
        np.savez(root / f"{name}.npz", clean=clean, **wrong, **extra)


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory) -> Path:
    """MNIST, CIFAR-10, CIFAR-100 and their human labels, a few hundred images each."""
    root = tmp_path_factory.mktemp("tiny")
    rng = np.random.default_rng(0)
    write_mnist(root, rng)
    write_cifar(root, rng, 10)
    write_cifar(root, rng, 100)
    write_human(root, rng)
    return root
