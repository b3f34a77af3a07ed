"""The packed layout: a `meta.json` beside folders of xz-compressed arrays and predicted colour planes.

`meta.json` maps set -> splits -> split -> array -> {encoding, files, shape, dtype, sha256, order, coef}.

* ``npy.xz``: an .npy file under xz.
* ``planes``: one zlib stream of residual bytes (N, H, W) per colour plane. With the plane's coefficients c,

      pixel = (residual + clip((512 + sum_t c_t v_t) >> 10, 0, 255)) mod 256,

  v being the neighbours W, N, NW, NE, WW, NN of the same plane, and for each plane decoded before it the
  pixel itself and W, N, NW, NE. Plane k holds channel `order[k]`.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import DubitoError
from ._cache import cached_array
from ._files import LIMIT, Array, inflate, one_line, parse_npy, read_bytes
from ._labelled import IGNORED
from ._parts import Parts, Reader

_META_LIMIT = 1 << 22
_NPY_HEAD = 128


def read_meta(path: Path) -> dict[str, Any]:
    """The table of a packed folder."""
    raw = read_bytes(path, _META_LIMIT)
    try:
        meta = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise DubitoError("not readable as JSON", where=str(path), got=one_line(error)) from None
    if not isinstance(meta, dict):
        raise DubitoError("not a table of packed sets", where=str(path), got=type(meta).__name__)
    return meta


def read_packed(folder: Path, spec: dict[str, Any]) -> Array:
    """One array of a packed set, decoded once and kept in the cache."""
    try:
        shape = tuple(int(s) for s in spec["shape"])
        dtype = np.dtype(str(spec["dtype"]))
        files = [_inside(folder, str(name)) for name in spec["files"]]
        digest, encoding = str(spec["sha256"]), str(spec["encoding"])
        bytes.fromhex(digest)
    except DubitoError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise DubitoError("damaged entry of meta.json", where=str(folder), got=repr(error)) from None
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > LIMIT or dtype.kind not in "biufSU":
        raise DubitoError("absurd array", where=str(folder), got=f"{dtype} of shape {shape}")
    if encoding == "npy.xz" and len(files) == 1:
        return cached_array(digest, lambda: _read_xz(files[0], shape, dtype))
    if encoding == "planes" and len(shape) == 4:
        return cached_array(digest, lambda: _read_planes(files, shape, spec))
    raise DubitoError("unknown encoding", where=str(folder), expected="npy.xz or planes", got=encoding)


def _inside(folder: Path, name: str) -> Path:
    if Path(name).name != name:
        raise DubitoError("a packed file must lie in its set's folder", where=str(folder), got=name)
    return folder / name


def _read_xz(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    raw = inflate(path, math.prod(shape) * dtype.itemsize + _NPY_HEAD, "xz")
    array = parse_npy(raw, str(path))
    if array.shape != shape or array.dtype != dtype:
        raise DubitoError(
            "not the recorded array",
            where=str(path),
            expected=f"{dtype} {shape}",
            got=f"{array.dtype} {array.shape}",
        )
    return array


def _read_planes(files: list[Path], shape: tuple[int, ...], spec: dict[str, Any]) -> Array:
    n, height, width, channels = shape
    order, coefficients = list(spec["order"]), list(spec["coef"])
    if not len(files) == len(order) == len(coefficients) == channels or sorted(order) != list(
        range(channels)
    ):
        raise DubitoError("planes do not match the channels", where=str(files[0].parent), got=order)
    for k, row in enumerate(coefficients):
        if len(row) != 6 + 5 * k or sum(abs(int(c)) for c in row) > 1 << 20:
            raise DubitoError("damaged coefficients", where=str(files[k]), got=row)
    residuals = [
        np.frombuffer(inflate(path, n * height * width, "zlib"), np.uint8).reshape(n, height * width)
        for path in files
    ]
    return decode_planes(residuals, coefficients, order, height, width)


def decode_planes(
    residuals: list[Array], coefficients: list[list[int]], order: list[int], height: int, width: int
) -> Array:
    """Residual planes (N, H * W) -> uint8 images (N, H, W, C), all images of a chunk at once."""
    n, chunk = len(residuals[0]), 2000
    images = np.empty((n, height, width, len(order)), np.uint8)
    for start in range(0, n, chunk):
        block = slice(start, min(n, start + chunk))
        planes: list[Array] = []
        for residual, coefficient in zip(residuals, coefficients):
            packed = np.ascontiguousarray(residual[block].T).reshape(height, width, -1)
            planes.append(_decode_plane(packed, planes, coefficient))
        for plane, channel in zip(planes, order):
            images[block, :, :, channel] = plane.transpose(2, 0, 1)
    return images


def _decode_plane(residual: Array, earlier: list[Array], coefficient: list[int]) -> Array:
    """One plane (H, W, n) in int32, pixel by pixel: each needs the ones before it."""
    height, width, n = residual.shape
    plane = np.empty((height, width, n), np.int32)
    weights = np.array(coefficient, np.int32)
    total, term = np.empty(n, np.int32), np.empty(n, np.int32)
    for i in range(height):
        for j in range(width):
            if i == j == 0:
                total[:] = earlier[-1][0, 0] if earlier else 128
            else:
                values = _neighbours(plane, i, j)
                for other in earlier:
                    values += [other[i, j], *_neighbours(other, i, j)[:4]]
                total[:] = 512
                for weight, value in zip(weights, values):
                    total += np.multiply(weight, value, out=term)
                total >>= 10
                np.clip(total, 0, 255, out=total)
            np.bitwise_and(total + residual[i, j], 255, out=plane[i, j])
    return plane


def _neighbours(plane: Array, i: int, j: int) -> list[Array]:
    """W, N, NW, NE, WW, NN of a pixel, each replaced by a decoded one where the image ends."""
    west = plane[i, j - 1] if j else plane[i - 1, 0]
    north = plane[i - 1, j] if i else west
    northwest = plane[i - 1, j - 1] if i and j else (west if j else north)
    northeast = plane[i - 1, j + 1] if i and j + 1 < plane.shape[1] else north
    west2 = plane[i, j - 2] if j > 1 else west
    north2 = plane[i - 2, j] if i > 1 else north
    return [west, north, northwest, northeast, west2, north2]


def packed(name: str, void: int | None = None) -> Reader:
    """A reader of one set of a packed folder: `root/meta.json` or `root/images/meta.json`.

    Pixels labelled `void` get -100, the label that every loss ignores.
    """

    def read(root: Path, split: str) -> Parts | None:
        for folder in (root, root / "images"):
            if (folder / "meta.json").is_file():
                entry = read_meta(folder / "meta.json").get(name)
                if isinstance(entry, dict) and split in entry.get("splits", {}):
                    return _parts(folder / name, entry["splits"][split], void)
        return None

    return read


def _parts(folder: Path, entry: dict[str, dict[str, Any]], void: int | None) -> Parts:
    images = torch.from_numpy(read_packed(folder, entry["images"]))
    images = images.unsqueeze(1) if images.dim() == 3 else images.permute(0, 3, 1, 2).contiguous()
    labels = torch.from_numpy(read_packed(folder, entry["labels"])).long()
    if void is not None:
        labels = labels.masked_fill(labels == void, IGNORED)
    ids, extra = None, {}
    for key in sorted(set(entry) - {"images", "labels"}):
        array = read_packed(folder, entry[key])
        if array.dtype.kind == "S":
            ids = [text.decode("utf-8", "replace") for text in array.tolist()]
        else:
            extra[key] = torch.from_numpy(array)
    return Parts(images, labels, ids=ids, extra=extra)
