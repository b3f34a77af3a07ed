"""Small sets in the published layouts, so that every run of the papers can be tried without real data."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

TRAIN, TEST = 330, 64


def mnist(root: Path, rng: np.random.Generator) -> None:
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


def cifar(root: Path, rng: np.random.Generator, classes: int) -> None:
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


def human(root: Path, rng: np.random.Generator) -> None:
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


def svhn(root: Path, rng: np.random.Generator) -> None:
    """X (32, 32, 3, N) and y with 10 for the digit 0, as MATLAB writes them."""
    for split, n in (("train", TRAIN), ("test", TEST)):
        arrays = {
            "X": rng.integers(0, 256, (32, 32, 3, n), dtype=np.uint8),
            "y": (1 + np.arange(n, dtype=np.uint8) % 10).reshape(n, 1),
        }
        body = b"".join(_matrix(name, values) for name, values in arrays.items())
        (root / f"{split}_32x32.mat").write_bytes(b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + body)


def _matrix(name: str, values: np.ndarray) -> bytes:
    """One array element: flags (uint8), dimensions, name, numbers in column order."""
    parts = (
        (6, struct.pack("<II", 9, 0)),
        (5, np.asarray(values.shape, "<i4").tobytes()),
        (1, name.encode()),
        (2, values.tobytes(order="F")),
    )
    body = b"".join(
        struct.pack("<II", kind, len(data)) + data.ljust(-(-len(data) // 8) * 8, b"\0")
        for kind, data in parts
    )
    return struct.pack("<II", 14, len(body)) + body


def clothing1m(root: Path, rng: np.random.Generator) -> None:
    """List files and pictures: 14 classes, the first with the most images."""
    base = root / "clothing1m"
    names = [f"images/{i % 7}/{i:03d}.jpg" for i in range(110)]
    for name in names:
        _picture(base / name, rng)
    given = [i % 14 if i % 3 else 0 for i in range(110)]
    parts = {"noisy_train": names[:80], "clean_val": names[80:94], "clean_test": names[94:]}
    for part, keys in parts.items():
        (base / f"{part}_key_list.txt").write_text("\n".join(keys) + "\n")
    for kind in ("noisy", "clean"):
        lines = [
            f"{name} {y if kind == 'noisy' else i % 14}\n" for i, (name, y) in enumerate(zip(names, given))
        ]
        (base / f"{kind}_label_kv.txt").write_text("".join(lines))


def imagenet(root: Path, rng: np.random.Generator) -> None:
    """One folder per class under train and val."""
    for split, n in (("train", 8), ("val", 4)):
        for c in range(10):
            for i in range(n):
                _picture(root / "imagenet" / split / f"n{c:08d}" / f"{i}.JPEG", rng)


def labelme(root: Path, rng: np.random.Generator) -> None:
    """Features of three splits, and labels of twelve annotators on the first; the last two guess."""
    centres = rng.normal(size=(8, 512))
    arrays = {}
    for split, n in (("train", 120), ("valid", 40), ("test", 60)):
        y = np.arange(n) % 8
        arrays |= {f"y_{split}": y, f"x_{split}": (centres[y] + rng.normal(size=(n, 512))).astype(np.float32)}
    item = np.repeat(np.arange(120), 3)
    worker = rng.integers(0, 12, len(item))
    skill = np.where(np.arange(12) < 10, 0.8, 0.2)[worker]
    right = rng.random(len(item)) < skill
    label = np.where(right, arrays["y_train"][item], rng.integers(0, 8, len(item)))
    np.savez(root / "labelme.npz", item=item, worker=worker, label=label, **arrays)


def _picture(path: Path, rng: np.random.Generator) -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((80, 60)).save(path)


def write(root: Path) -> None:
    """All of them."""
    rng = np.random.default_rng(0)
    mnist(root, rng)
    cifar(root, rng, 10)
    cifar(root, rng, 100)
    human(root, rng)
    for one in (svhn, clothing1m, imagenet, labelme):
        one(root, rng)
