"""The packed layout: the decoder undoes a naive encoder, written pixel by pixel from the description."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import zlib

import numpy as np
import pytest
import torch

from dubito.data import load
from dubito.data._packed import decode_planes


def neighbours(plane, i, j):
    """W, N, NW, NE, WW, NN of one image's plane, with the replacements at the border."""
    w = plane[i][j - 1] if j > 0 else plane[i - 1][0]
    n = plane[i - 1][j] if i > 0 else w
    nw = plane[i - 1][j - 1] if i > 0 and j > 0 else (n if j == 0 else w)
    ne = plane[i - 1][j + 1] if i > 0 and j + 1 < len(plane[0]) else n
    ww = plane[i][j - 2] if j > 1 else w
    nn = plane[i - 2][j] if i > 1 else n
    return [w, n, nw, ne, ww, nn]


def encode(image, order, coefficients):
    """uint8 (H, W, C) -> one list of residual bytes per plane, in Python integers."""
    planes = [image[:, :, c].astype(int).tolist() for c in order]
    out = []
    for k, (plane, coefficient) in enumerate(zip(planes, coefficients)):
        residuals = []
        for i in range(image.shape[0]):
            for j in range(image.shape[1]):
                if i == j == 0:
                    guess = planes[k - 1][0][0] if k else 128
                else:
                    values = neighbours(plane, i, j)
                    for earlier in planes[:k]:
                        values += [earlier[i][j], *neighbours(earlier, i, j)[:4]]
                    total = 512 + sum(c * v for c, v in zip(coefficient, values))
                    guess = min(max(total >> 10, 0), 255)
                residuals.append((plane[i][j] - guess) & 255)
        out.append(residuals)
    return out


COEFFICIENTS = [
    [864, 671, -437, 133, -103, -108],
    [852, 731, -606, 74, -16, -16, 954, -786, -681, 580, -61],
    [837, 711, -579, 79, -14, -14, 917, -725, -620, 504, -73, 10, -28, -28, 38, 8],
]


def some_images(n, height, width):
    return np.random.default_rng(0).integers(0, 256, (n, height, width, 3), np.uint8)


@pytest.mark.parametrize(("height", "width"), [(5, 4), (1, 6), (6, 1), (1, 1), (2, 2)])
def test_decoder_undoes_the_naive_encoder(height, width):
    images, order = some_images(3, height, width), [1, 0, 2]
    coded = [encode(image, order, COEFFICIENTS) for image in images]
    residuals = [np.array([c[k] for c in coded], np.uint8) for k in range(3)]
    assert np.array_equal(decode_planes(residuals, COEFFICIENTS, order, height, width), images)


def packed_npy(array):
    raw = io.BytesIO()
    np.save(raw, array)
    return lzma.compress(raw.getvalue())


def test_a_packed_folder_is_found_and_read(tmp_path):
    images, labels = some_images(4, 3, 5), np.array([0, 9, 3, 3], np.uint8)
    coded = [encode(image, [1, 0, 2], COEFFICIENTS) for image in images]
    folder = tmp_path / "images" / "cifar10"
    folder.mkdir(parents=True)
    for k in range(3):
        (folder / f"p{k}.z").write_bytes(zlib.compress(bytes(b for c in coded for b in c[k])))
    (folder / "y.npy.xz").write_bytes(packed_npy(labels))
    (folder / "photo.npy.xz").write_bytes(packed_npy(np.arange(4, dtype=np.int32)))
    (folder / "files.npy.xz").write_bytes(packed_npy(np.array([b"a.png", b"b.png", b"c.png", b"d.png"])))

    def entry(array, encoding, files, **more):
        whole = {"encoding": encoding, "files": files, "shape": list(array.shape), "dtype": array.dtype.str}
        return whole | {"sha256": hashlib.sha256(array.tobytes()).hexdigest()} | more

    train = {
        "images": entry(images, "planes", ["p0.z", "p1.z", "p2.z"], order=[1, 0, 2], coef=COEFFICIENTS),
        "labels": entry(labels, "npy.xz", ["y.npy.xz"]),
        "photo": entry(np.arange(4, dtype=np.int32), "npy.xz", ["photo.npy.xz"]),
        "files": entry(np.array([b"a.png", b"b.png", b"c.png", b"d.png"]), "npy.xz", ["files.npy.xz"]),
    }
    (tmp_path / "images" / "meta.json").write_text(json.dumps({"cifar10": {"splits": {"train": train}}}))
    data = load("cifar10", root=tmp_path)
    assert torch.equal(data.inputs, torch.from_numpy(images).permute(0, 3, 1, 2))
    assert data.labels.tolist() == [0, 9, 3, 3]
    assert data.ids == ["a.png", "b.png", "c.png", "d.png"]
    assert data.extra["photo"].tolist() == [0, 1, 2, 3]
