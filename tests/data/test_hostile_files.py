"""Hostile and damaged data files: one sentence comes out, nothing runs, nothing large is allocated."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import struct
import zipfile
import zlib

import numpy as np
import pytest

from dubito import DubitoError
from dubito.data import load, map_npy, read_npy, read_npz
from dubito.data._idx import read_idx
from dubito.data._mat import read_mat
from dubito.data._packed import read_packed

pytestmark = [pytest.mark.rel, pytest.mark.usefixtures("bounded")]
MEBI = 1 << 20


def bomb(head, machine):
    """A stream that starts as it should and goes on with a gibibyte of zeros, cheaply made."""
    start = machine.compress(head) + machine.flush(zlib.Z_FULL_FLUSH)
    block = machine.compress(bytes(16 * MEBI)) + machine.flush(zlib.Z_FULL_FLUSH)
    return start + block * 64 + machine.flush()


def idx(kind=8, sizes=(3, 2, 2), data=b"\0" * 12):
    return struct.pack(">HBB", 0, kind, len(sizes)) + struct.pack(f">{len(sizes)}I", *sizes) + data


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "truncated"),
        (b"\x00\x00\x08", "truncated"),
        (idx(kind=13), "not an idx file"),
        (b"GIF89a" + b"\0" * 50, "not an idx file"),
        (idx(sizes=(2**31, 2**31, 2**31)), "absurd idx header"),
        (idx(sizes=(2**32 - 1,)), "absurd idx header"),
        (idx(data=b"\0" * 11), "truncated|wrong unpacked size"),
        (idx(sizes=(3,) * 4)[:12], "truncated"),
        (idx(sizes=()), "not an idx file"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_idx(tmp_path, raw, message, packed):
    """Scorecard 28: idx files with absurd sizes, wrong types, or an early end."""
    path = tmp_path / ("x.gz" if packed else "x")
    path.write_bytes(gzip.compress(raw) if packed else raw)
    with pytest.raises(DubitoError, match=message):
        read_idx(path)


def test_gzip_bomb_and_damage(tmp_path):
    """Scorecard 28: 1 GiB behind a small idx header is not unpacked; cut and spoilt streams are told."""
    (tmp_path / "bomb.gz").write_bytes(bomb(idx(), zlib.compressobj(9, zlib.DEFLATED, 31)))
    with pytest.raises(DubitoError, match="wrong unpacked size"):
        read_idx(tmp_path / "bomb.gz")
    good = gzip.compress(idx(data=os.urandom(12)))
    for damaged in (good[:-9], good[:20] + b"\xff\xff" + good[22:], b"no gzip at all"):
        (tmp_path / "bad.gz").write_bytes(damaged)
        with pytest.raises(DubitoError):
            read_idx(tmp_path / "bad.gz")


def npy(head):
    text = head.encode("latin-1") if isinstance(head, str) else head
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "not an .npy array"),
        (b"\x93NUMPY\x09\x00" + b"\0" * 20, "not an .npy array"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\x7f" + b"\0" * 20, "damaged .npy header"),
        (npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n"), "Python objects"),
        (
            npy("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,), }\n"),
            "Python objects or records",
        ),
        (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2**40,), }\n"), "damaged .npy header"),
        (
            npy(f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({2**60}, 8), }}\n"),
            "does not fit the data",
        ),
        (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }\n"), "damaged .npy header"),
        (npy("__import__('os').system('touch /tmp/dubito-executed')"), "damaged .npy header"),
        (npy("(" * 30_000), "damaged .npy header"),
        (npy("{'descr': '<f8'}"), "damaged .npy header"),
        (
            npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }\n") + b"\0" * 15,
            "does not fit the data",
        ),
        (npy("{'descr': 'V4', 'fortran_order': False, 'shape': (1,), }\n") + b"\0" * 4, "records"),
    ],
)
def test_npy(tmp_path, raw, message):
    """Scorecard 28: object arrays, code in headers, absurd shapes, cut data."""
    (tmp_path / "x.npy").write_bytes(raw)
    for read in (read_npy, map_npy):
        with pytest.raises(DubitoError, match=message):
            read(tmp_path / "x.npy")
    assert not os.path.exists("/tmp/dubito-executed")


def test_npz_bombs(tmp_path):
    """Scorecard 28: a member that says 8 GiB, one that lies about its size, one of objects, no zip at all."""
    head = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (8589934592,), }\n")
    with zipfile.ZipFile(tmp_path / "big.npz", "w", zipfile.ZIP_DEFLATED) as z, z.open("x.npy", "w") as f:
        f.write(head)
        for _ in range(5):
            f.write(bytes(16 * MEBI))
    with pytest.raises(DubitoError, match="too large"):
        read_npz(tmp_path / "big.npz", limit=64 * MEBI)
    raw = bytearray((tmp_path / "big.npz").read_bytes())
    lie = struct.pack("<I", 100)
    for mark, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = raw.rfind(mark)
        raw[at + offset : at + offset + 4] = lie
    (tmp_path / "lie.npz").write_bytes(raw)
    with pytest.raises(DubitoError):
        read_npz(tmp_path / "lie.npz", limit=64 * MEBI)
    np.savez(tmp_path / "objects.npz", x=np.array([{}], object))
    with pytest.raises(DubitoError, match="Python objects"):
        read_npz(tmp_path / "objects.npz")
    (tmp_path / "none.npz").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(DubitoError, match="not a zip archive"):
        read_npz(tmp_path / "none.npz")
    np.savez(tmp_path / "y.npz", y=np.zeros(1))
    with pytest.raises(DubitoError, match="no such array"):
        read_npz(tmp_path / "y.npz", ["x"])


def mat(*elements):
    return b"MATLAB 5.0".ljust(124) + b"\x00\x01IM" + b"".join(elements)


def element(kind, data):
    return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)


def matrix(name=b"X", flags=9, dims=(2, 2), kind=2, data=b"\1\2\3\4"):
    parts = (
        (6, struct.pack("<II", flags, 0)),
        (5, struct.pack(f"<{len(dims)}i", *dims)),
        (1, name),
        (kind, data),
    )
    return element(14, b"".join(element(k, d) for k, d in parts))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "not a MATLAB 5 file"),
        (b"\x89HDF\r\n" + bytes(200), "not a MATLAB 5 file"),
        (mat(), "no such array"),
        (mat(b"\x0e\0\0\0\xff\xff\xff\x7f"), "truncated"),
        (mat(b"\x0e\0\0"), "truncated"),
        (mat(matrix(name=b"other")), "no such array"),
        (mat(matrix(dims=(2**30, 2**30))), "does not fit the data"),
        (mat(matrix(dims=(-1, -4))), "does not fit the data"),
        (mat(matrix(flags=1)), "only arrays of real numbers"),
        (mat(matrix(flags=0x809)), "only arrays of real numbers"),
        (mat(matrix(kind=99)), "only arrays of real numbers"),
        (mat(element(15, b"no zlib")), "damaged"),
        (mat(element(15, zlib.compress(matrix())[:-20])), "truncated"),
        (mat(element(15, zlib.compress(struct.pack("<II", 14, 2**31)))), "array too large"),
        (mat(element(15, zlib.compress(b"\1\2\3"))), "truncated"),
    ],
)
def test_mat(tmp_path, raw, message):
    """Scorecard 28: .mat files cut short, with absurd sizes, with cells and objects, with bad zlib data."""
    (tmp_path / "x.mat").write_bytes(raw)
    with pytest.raises(DubitoError, match=message):
        read_mat(tmp_path / "x.mat", ("X",))


def test_mat_bomb_and_the_good_one(tmp_path):
    """Scorecard 28: only as much is unpacked as the element's own tag allows."""
    bomb = zlib.compressobj(9)
    packed = (
        bomb.compress(matrix()) + b"".join(bomb.compress(bytes(16 * MEBI)) for _ in range(64)) + bomb.flush()
    )
    (tmp_path / "x.mat").write_bytes(mat(element(15, packed)))
    assert read_mat(tmp_path / "x.mat", ("X",))["X"].tolist() == [[1, 3], [2, 4]]


def spec(tmp_path, **changes):
    data = np.arange(6, dtype=np.uint8)
    whole = {"encoding": "npy.xz", "files": ["x.npy.xz"], "shape": [6], "dtype": "uint8", "sha256": "00" * 32}
    raw = io.BytesIO()
    np.save(raw, data)
    (tmp_path / "x.npy.xz").write_bytes(lzma.compress(raw.getvalue()))
    return whole | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"files": ["../x.npy.xz"]}, "must lie in its set's folder"),
        ({"files": ["/etc/passwd"]}, "must lie in its set's folder"),
        ({"files": ["gone.xz"]}, "no such file"),
        ({"shape": [1 << 40]}, "absurd array"),
        ({"shape": [-6]}, "absurd array"),
        ({"dtype": "O"}, "absurd array"),
        ({"shape": [5]}, "wrong unpacked size"),
        ({"shape": [1000]}, "wrong unpacked size"),
        ({"dtype": "int8"}, "not the recorded array"),
        ({"encoding": "zip"}, "unknown encoding"),
        ({"sha256": "../../x"}, "damaged entry"),
        ({"shape": None}, "damaged entry"),
        ({}, "not the recorded one"),
        (
            {"encoding": "planes", "shape": [1, 2, 3, 1], "order": [1], "coef": [[0] * 6]},
            "planes do not match",
        ),
        (
            {"encoding": "planes", "shape": [1, 2, 3, 1], "order": [0], "coef": [[0] * 5]},
            "damaged coefficients",
        ),
        ({"encoding": "planes", "shape": [1, 2, 3, 1], "order": [0], "coef": [[0] * 6]}, "damaged zlib data"),
    ],
)
def test_packed(tmp_path, changes, message):
    """Scorecard 28: paths out of the folder, absurd shapes, wrong sums, damaged streams."""
    with pytest.raises(DubitoError, match=message):
        read_packed(tmp_path, spec(tmp_path, **changes))


@pytest.mark.parametrize("text", ["[1]", "{", "[" * 100_000, '{"mnist": 3}'])
def test_packed_table(tmp_path, text):
    """Scorecard 28: a damaged meta.json."""
    (tmp_path / "meta.json").write_text(text)
    with pytest.raises(DubitoError):
        load("mnist", root=tmp_path)


def test_xz_bomb(tmp_path):
    """Scorecard 28: a gibibyte under xz in the place of six numbers."""
    whole = spec(tmp_path)
    (tmp_path / "x.npy.xz").write_bytes(lzma.compress(bytes(16 * MEBI), preset=0) * 64)
    with pytest.raises(DubitoError, match="wrong unpacked size"):
        read_packed(tmp_path, whole)
    (tmp_path / "x.npy.xz").write_bytes(bz2.compress(b"other"))
    with pytest.raises(DubitoError, match="damaged xz data"):
        read_packed(tmp_path, whole | {"shape": [7]})
