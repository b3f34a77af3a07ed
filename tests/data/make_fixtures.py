"""Tiny files in the published layouts of sets that are not at hand, written from their descriptions.

Independent of the readers: nothing of dubito is imported. `python tests/data/make_fixtures.py FOLDER` writes all.

* MNIST idx: http://yann.lecun.com/exdb/mnist (big-endian head, magic 2049 and 2051).
* CIFAR: https://www.cs.toronto.edu/~kriz/cifar.html (python: pickles by Python 2; binary: 1 or 2 label bytes).
* SVHN: http://ufldl.stanford.edu/housenumbers (X (32, 32, 3, N), y (N, 1) with 10 for the digit 0).
* CIFAR-10N / 100N: torch.save of a dict of numpy arrays. CIFAR-10H: an .npy of counts.
* Clothing1M: key lists and "path label" lines. ImageNet and image folders: one folder per class.
* LabelMe (Rodrigues and Pereira 2018): features as .npy, labels and answers as text.
"""

from __future__ import annotations

import gzip
import struct
import sys
from pathlib import Path

import numpy as np

N = 12  # images per file


def pixels(n: int, channels: int, side: int, start: int = 0) -> np.ndarray:
    """uint8 (n, channels, side, side) that tells every image, channel, row and column apart."""
    i, c, y, x = np.ogrid[start : start + n, :channels, :side, :side]
    return ((i * 31 + c * 67 + y * 5 + x * 3) % 251).astype(np.uint8)


def mnist(root: Path) -> None:
    for stem, n, packed in (("train", N, True), ("t10k", N // 2, False)):
        images = struct.pack(">IIII", 2051, n, 28, 28) + pixels(n, 1, 28).tobytes()
        labels = struct.pack(">II", 2049, n) + bytes(i % 10 for i in range(n))
        for name, data in ((f"{stem}-images-idx3-ubyte", images), (f"{stem}-labels-idx1-ubyte", labels)):
            write(
                root / "mnist" / (name + ".gz" if packed else name), gzip.compress(data) if packed else data
            )


def py2_text(text: bytes) -> bytes:
    return b"U" + bytes([len(text)]) + text


def py2_int(value: int) -> bytes:
    return b"K" + bytes([value]) if value < 256 else b"M" + struct.pack("<H", value)


def py2_batch(images: np.ndarray, lists: dict[bytes, list[int]]) -> bytes:
    """What cPickle of Python 2 writes for a CIFAR batch: protocol 2, str as U and T, numpy.core.multiarray."""
    raw = images.reshape(len(images), -1)
    out = b"\x80\x02}q\x01("
    out += py2_text(b"batch_label") + b"q\x02" + py2_text(b"a batch") + b"q\x03"
    for name, values in lists.items():
        out += py2_text(name) + b"]q\x04(" + b"".join(py2_int(v) for v in values) + b"e"
    out += (
        py2_text(b"data") + b"q\x05cnumpy.core.multiarray\n_reconstruct\nq\x06cnumpy\nndarray\nq\x07K\x00\x85"
    )
    out += py2_text(b"b") + b"\x87Rq\x08(K\x01" + py2_int(len(raw)) + py2_int(raw.shape[1]) + b"\x86"
    out += b"cnumpy\ndtype\nq\x09" + py2_text(b"u1") + b"K\x00K\x01\x87Rq\x0a(K\x03" + py2_text(b"|")
    out += (
        b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
        + struct.pack("<I", raw.size)
        + raw.tobytes()
        + b"tb"
    )
    out += (
        py2_text(b"filenames")
        + b"]q\x0b("
        + b"".join(py2_text(b"f%d.png" % i) for i in range(len(raw)))
        + b"e"
    )
    return out + b"u."


def cifar10(root: Path) -> None:
    for k, name in enumerate(
        ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"]
    ):
        images, labels = pixels(N, 3, 32, k * N), [(k + i) % 10 for i in range(N)]
        write(root / "py10" / "cifar-10-batches-py" / name, py2_batch(images, {b"labels": labels}))
        records = b"".join(bytes([y]) + x.tobytes() for x, y in zip(images, labels))
        write(root / "bin10" / "cifar-10-batches-bin" / (name + ".bin"), records)
    images = pixels(N, 3, 32, 1000)
    write(root / "py10" / "cifar-10-batches-py" / "test_batch", py2_batch(images, {b"labels": [3] * N}))
    records = b"".join(b"\x03" + x.tobytes() for x in images)
    write(root / "bin10" / "cifar-10-batches-bin" / "test_batch.bin", records)


def cifar100(root: Path) -> None:
    for k, name in enumerate(["train", "test"]):
        images = pixels(N, 3, 32, k * N)
        fine, coarse = [(k + 8 * i) % 100 for i in range(N)], [(k + i) % 20 for i in range(N)]
        lists = {b"fine_labels": fine, b"coarse_labels": coarse}
        write(root / "py100" / "cifar-100-python" / name, py2_batch(images, lists))
        records = b"".join(bytes([c, f]) + x.tobytes() for x, c, f in zip(images, coarse, fine))
        write(root / "bin100" / "cifar-100-binary" / (name + ".bin"), records)


def svhn(root: Path) -> None:
    from scipy.io import savemat

    for split, compressed in (("train", True), ("test", False)):
        x = pixels(N, 3, 32).transpose(2, 3, 1, 0)  # (32, 32, 3, N)
        y = np.array([[1 + i % 10] for i in range(N)], np.uint8 if compressed else np.float64)
        (root / "svhn").mkdir(parents=True, exist_ok=True)
        savemat(root / "svhn" / f"{split}_32x32.mat", {"X": x, "y": y}, do_compression=compressed)


def human(root: Path) -> None:
    import torch

    def labels(step: int, classes: int, n: int) -> np.ndarray:
        return (np.arange(n) * step % classes).astype(np.int64)

    clean10 = np.concatenate([(k + np.arange(N)) % 10 for k in range(5)])
    table = {"clean_label": clean10, "aggre_label": clean10.copy()}
    for step, name in enumerate(["worse_label", "random_label1", "random_label2", "random_label3"], 2):
        table[name] = labels(step, 10, 5 * N)
    (root / "human").mkdir(parents=True, exist_ok=True)
    torch.save(table, root / "human" / "CIFAR-10_human.pt")
    fine, coarse = 8 * np.arange(N) % 100, np.arange(N) % 20
    table100 = {"clean_label": fine, "noisy_label": labels(7, 100, N)}
    table100 |= {"clean_coarse_label": coarse, "noisy_coarse_label": labels(3, 20, N)}
    torch.save(table100, root / "human" / "CIFAR-100_human.pt", _use_new_zipfile_serialization=False)
    counts = np.full((N, 10), 2, np.int64)
    counts[np.arange(N), np.arange(N) % 10] = 30
    np.save(root / "human" / "cifar10h-counts.npy", counts)


def clothing1m(root: Path) -> None:
    base = root / "clothing1m"
    names = [f"images/{i % 3}/{i:02d},x.jpg" for i in range(N)]
    for i, name in enumerate(names):
        picture(base / name, 40 + i, 30 + i, (i * 20, 255 - i * 20, 7))
    write(base / "noisy_train_key_list.txt", "\n".join(names[:8]).encode() + b"\n")
    write(base / "clean_val_key_list.txt", "\n".join(names[8:10]).encode())
    write(base / "clean_test_key_list.txt", "\n".join(names[10:]).encode())
    write(base / "clean_train_key_list.txt", "\n".join(names[:2]).encode())
    write(base / "noisy_label_kv.txt", "".join(f"{n} {i % 3}\n" for i, n in enumerate(names)).encode())
    clean = [(n, 13 - i) for i, n in enumerate(names) if i < 2 or i >= 8]
    write(base / "clean_label_kv.txt", "".join(f"{n} {y}\n" for n, y in clean).encode())


def imagenet(root: Path) -> None:
    for split, n in (("train", 3), ("val", 1)):
        for k, wnid in enumerate(["n01440764", "n01443537"]):
            for i in range(n):
                picture(root / "imagenet" / split / wnid / f"{wnid}_{i}.JPEG", 60, 50 + i, (k * 200, 10, 10))


def imagenet_archive(root: Path) -> None:
    """The archive as handed out on Kaggle: validation images in one folder, their classes in a table."""
    base = root / "archive" / "ILSVRC" / "Data" / "CLS-LOC"
    for wnid in ("n01440764", "n01443537", "n01484850"):
        picture(base / "train" / wnid / f"{wnid}_1.JPEG", 40, 40, (9, 9, 9))
    rows = ["ImageId,PredictionString"]
    for i, wnid in enumerate(["n01484850", "n01440764"], 1):
        picture(base / "val" / f"ILSVRC2012_val_{i:08}.JPEG", 40, 50, (i * 100, 0, 0))
        rows.append(f"ILSVRC2012_val_{i:08},{wnid} 1 2 30 40 {wnid} 5 6 7 8 ")
    write(root / "archive" / "LOC_val_solution.csv", "\n".join(rows).encode())


def labelme(root: Path) -> None:
    base = root / "LabelMe"
    for split, n in (("train", 4), ("valid", 2), ("test", 3)):
        base.mkdir(parents=True, exist_ok=True)
        np.save(base / f"data_{split}_vgg16.npy", np.arange(n * 8, dtype=np.float32).reshape(n, 2, 2, 2))
        write(base / f"labels_{split}.txt", "".join(f"{i % 3}\n" for i in range(n)).encode())
    write(base / "answers.txt", b"0 -1 1\n-1 1 -1\n2 2 2\n-1 -1 0\n")


def picture(path: Path, width: int, height: int, colour: tuple[int, int, int]) -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (width, height), colour).save(path, quality=95)


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def make(root: Path) -> None:
    for maker in (mnist, cifar10, cifar100, svhn, human, clothing1m, imagenet, imagenet_archive, labelme):
        maker(root)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
