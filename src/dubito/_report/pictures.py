"""Thumbnails as data URIs: arrays are encoded as PNG, encoded pictures are recognised by their first bytes."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np

from ..errors import DubitoError

MAGIC = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
MOST_BYTES = 1 << 18
MOST_SIDE = 64


def data_uri(picture: Any, where: str) -> str:
    """A ``data:`` address for a thumbnail.

    Arguments:
        picture: bytes of a PNG, JPEG, GIF or WebP of at most 256 KiB; or pixels (H, W), (H, W, 1), (H, W, 3) or
            (H, W, 4), uint8 or floats within [0, 1], of which every n-th is taken down to 64 a side.

    Example:
        >>> data_uri(np.zeros((2, 2), dtype=np.uint8), "thumbnail")[:22]
        'data:image/png;base64,'
    """
    data = (
        bytes(picture)
        if isinstance(picture, (bytes, bytearray, memoryview))
        else png(_pixels(picture, where))
    )
    kind = next((k for magic, k in MAGIC.items() if data.startswith(magic)), None)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "image/webp"
    if kind is None or len(data) > MOST_BYTES:
        raise DubitoError(
            "cannot show this thumbnail",
            where=where,
            expected=f"a PNG, JPEG, GIF or WebP of at most {MOST_BYTES:,} bytes",
            got=f"{len(data):,} bytes that begin with {data[:8]!r}",
        )
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


def _pixels(picture: Any, where: str) -> np.ndarray[Any, Any]:
    if hasattr(picture, "detach"):
        picture = picture.detach().cpu().numpy()
    a = np.asarray(picture)
    if a.ndim == 2:
        a = a[:, :, None]
    if a.ndim != 3 or a.shape[2] not in (1, 3, 4) or 0 in a.shape or a.dtype.kind not in "fui":
        raise DubitoError(
            "cannot show this thumbnail",
            where=where,
            expected="pixels (H, W), (H, W, 1), (H, W, 3) or (H, W, 4)",
            got=f"{a.dtype} of shape {a.shape}",
        )
    step = max(1, -(-max(a.shape[:2]) // MOST_SIDE))
    a = a[::step, ::step]
    if a.dtype.kind == "f":
        a = np.clip(np.nan_to_num(a), 0, 1) * 255 + 0.5
    out: np.ndarray[Any, Any] = np.clip(a, 0, 255).astype(np.uint8)
    return out


def png(a: np.ndarray[Any, Any]) -> bytes:
    """(H, W, 1 | 3 | 4) bytes as a PNG file."""
    H, W, C = a.shape
    head = struct.pack(">IIBBBBB", W, H, 8, {1: 0, 3: 2, 4: 6}[C], 0, 0, 0)
    lines = np.concatenate([np.zeros((H, 1), np.uint8), a.reshape(H, W * C)], 1)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    chunks = [struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in parts]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
