"""Hostile pickles, as CIFAR batches and .pt files: nothing is imported or called, memory stays bounded."""

from __future__ import annotations

import os
import pickle
import struct
import zipfile

import numpy as np
import pytest
import torch

from dubito import DubitoError
from dubito.data._pickles import read_pickle
from dubito.data._zips import read_torch

pytestmark = [pytest.mark.rel, pytest.mark.usefixtures("bounded")]
MEBI = 1 << 20


class Trap:
    """Touches a file when it is unpickled by an ordinary unpickler."""

    def __init__(self, function, *arguments):
        self.made = function, arguments

    def __reduce__(self):
        return self.made


def traps(target):
    command = f"touch {target}"
    yield "os.system", Trap(os.system, command)
    yield "eval", Trap(eval, f"open({str(target)!r}, 'w')")
    yield "getattr", Trap(getattr, os, "system")
    yield "nested", {"data": [1, (2, Trap(os.system, command))], "labels": []}
    yield "load", Trap(np.load, str(target))
    yield "object array", np.array([Trap(os.system, command)], object)


@pytest.mark.parametrize("protocol", range(6))
def test_pickles_that_would_run_code(tmp_path, protocol):
    """Scorecard 28, 29: whatever a pickle names outside the allowlist is neither imported nor called."""
    target = tmp_path / "executed"
    for name, trap in traps(target):
        try:
            raw = pickle.dumps(trap, protocol)
        except (TypeError, pickle.PicklingError):
            continue
        with pytest.raises(DubitoError, match="refused to read a pickle"):
            read_pickle(raw, name)
    assert not target.exists()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b".",
        b"\x80\x02.",
        b"\x80\x09N.",
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7fN.",
        b"\x80\x02X\xff\xff\xff\x7fabc.",
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7fabc.",
        b"\x80\x02\x8a\xff" + b"\x01" * 255 + b".",
        b"\x80\x02h\x05.",
        b"\x80\x02e.",
        b"\x80\x02]Ns.",
        b"\x80\x02}]Ns.",
        b"\x80\x02})" + b"\x85" * 100_000 + b"Ns.",
        b"\x80\x02(" * 10 + b"t" * 40 + b".",
        b"\x80\x02NNR.",
        b"\x80\x02Nb.",
        b"\x80\x02Q.",
        b"\x80\x02cnumpy\ndtype\n\x8c\x02O8\x85R.",
        b"\x80\x02cnumpy\ndtype\n\x8c\x0bU9999999999\x85R.",
        b"\x80\x02cnumpy\nndarray\n)R.",
        b"\x80\x02c" + b"a" * 1000 + b".",
        b"\x80\x02c\xff\xff\nx\n.",
        b"I1\n.",
        b"\x80\x02" + b"]" * 1_100_000 + b".",
    ],
)
def test_broken_pickles(raw):
    """Scorecard 28: damaged opcodes, absurd lengths and endless nesting end in one sentence."""
    with pytest.raises(DubitoError, match="refused to read a pickle"):
        read_pickle(raw, "file")


def test_a_pickle_cannot_multiply_its_bytes():
    """Scorecard 28: recoding one text a thousand times would take a thousand times its size."""
    text = "x" * MEBI
    raw = b"\x80\x02c_codecs\nencode\nq\x00X" + struct.pack("<I", len(text)) + text.encode() + b"q\x01]q\x02"
    raw += b"h\x00h\x01\x8c\x06latin1\x86Ra" * 1000 + b"."
    with pytest.raises(DubitoError, match="more recoded bytes"):
        read_pickle(raw, "file")


def test_array_that_lies_about_its_shape():
    """Scorecard 28: shape and bytes must agree."""
    raw = pickle.dumps(np.zeros((2, 3), np.uint8), 2).replace(
        b"K\x02K\x03\x86", b"J\xff\xff\xff\x7fK\x03\x86"
    )
    with pytest.raises(DubitoError, match="bytes for an array of shape"):
        read_pickle(raw, "file")


def test_torch_files(tmp_path):
    """Scorecard 28: a .pt file that would run code, a stored size that does not fit, a strange reference."""
    target = tmp_path / "executed"
    for zipped in (True, False):
        torch.save(
            {"a": Trap(os.system, f"touch {target}")},
            tmp_path / "t.pt",
            _use_new_zipfile_serialization=zipped,
        )
        with pytest.raises(DubitoError, match="refused to read a pickle"):
            read_torch(tmp_path / "t.pt")
    assert not target.exists()
    (tmp_path / "t.pt").write_bytes(pickle.dumps([1, 2], 2))
    with pytest.raises(DubitoError, match="not a file of torch"):
        read_torch(tmp_path / "t.pt")
    with zipfile.ZipFile(tmp_path / "t.pt", "w") as z:
        z.writestr("a/data.pkl", b"\x80\x02\x8c\x07storageq\x00Q.")
    with pytest.raises(DubitoError, match="damaged reference"):
        read_torch(tmp_path / "t.pt")
    with zipfile.ZipFile(tmp_path / "t.pt", "w") as z:
        z.writestr("a/other", b"")
    with pytest.raises(DubitoError, match="not a file of torch"):
        read_torch(tmp_path / "t.pt")
