"""Damaged, hostile and old checkpoints, and disks without room."""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dubito import _files, _sealed, checkpoint
from dubito.errors import DubitoError

FIXTURE = Path(__file__).parent / "fixtures" / "checkpoint-v1"
PROCEDURES: dict[str, tuple[str, ...]] = {
    "plain": ("model", "optimizer"),
    "coteaching": ("model", "optimizer", "model2", "optimizer2"),
    "em": ("model", "optimizer", "posteriors", "best"),
}


def save(folder: Path, step: int, groups: tuple[str, ...] = ("model", "optimizer")) -> Path:
    g = torch.Generator().manual_seed(step)
    tensors = {name: {"w": torch.randn(40, 30, generator=g), "b": torch.zeros(7)} for name in groups}
    return checkpoint.save(folder, step, tensors, {"epoch": step, "config": {"a": 1}})


def damage(path: Path, r: random.Random) -> str:
    """Flip a bit, zero a block or cut the end of a file; the bytes are sure to change."""
    data = bytearray(path.read_bytes())
    before = bytes(data)
    kind = r.choice(("flip", "flip", "zero", "cut"))
    while bytes(data) == before:
        if kind == "flip":
            data[r.randrange(len(data))] ^= 1 << r.randrange(8)
        elif kind == "zero":
            size = r.choice((1, 16, 512, 4096))
            start = r.randrange(len(data))
            data[start : start + size] = bytes(len(data[start : start + size]))
        else:
            del data[r.randrange(len(data)) :]
    path.write_bytes(data)
    return kind


def detect(tmp_path: Path, count: int, seed: int) -> dict[str, int]:
    r = random.Random(seed)
    for kind, groups in PROCEDURES.items():
        for step in (1, 2):
            save(tmp_path / kind, step, groups)
    seen = {"flip": 0, "zero": 0, "cut": 0}
    for case in range(count):
        folder = tmp_path / r.choice(list(PROCEDURES))
        latest = folder / "step-00000002"
        target = r.choice(sorted(latest.iterdir()))
        whole = target.read_bytes()
        how = damage(target, r)
        seen[how] += 1
        for use in (checkpoint.verify, checkpoint.load):
            with pytest.raises(DubitoError, match=r"step-00000002/" + target.name.replace(".", r"\.")):
                use(latest)
        found = checkpoint.load_latest(folder)
        assert found is not None, case
        assert (found.step, found.skipped[0][0]) == (1, latest), (case, how, target)
        target.write_bytes(whole)
        checkpoint.verify(latest)
    assert sum(seen.values()) == count
    assert min(seen.values()) > 0
    return {"damaged": count, "unnoticed": 0}  # the first one that is not noticed has raised


@pytest.mark.rel
def test_every_damage_is_detected(tmp_path: Path, scorecard: Callable[..., None]) -> None:
    """Scorecard 26: bit flips, zeroed blocks, truncations: 60 of 60 detected, fallback named."""
    scorecard(26, **detect(tmp_path, 60, seed=1))


@pytest.mark.rel
@pytest.mark.nightly
def test_every_damage_is_detected_in_a_thousand(tmp_path: Path, scorecard: Callable[..., None]) -> None:
    """Scorecard 26: bit flips, zeroed blocks, truncations: 1,000 of 1,000 detected, fallback named."""
    scorecard(26, **detect(tmp_path, 1000, seed=2))


@pytest.mark.rel
def test_every_bit_of_the_state_is_sealed(tmp_path: Path) -> None:
    """Scorecard 26: state.json vouches for the other files, so each of its own bytes is tried."""
    path = save(tmp_path, 1) / "state.json"
    whole = path.read_bytes()
    for i in range(len(whole)):
        path.write_bytes(whole[:i] + bytes([whole[i] ^ (1 << (i % 8))]) + whole[i + 1 :])
        with pytest.raises(DubitoError):
            checkpoint.verify(path.parent)


@pytest.mark.rel
def test_a_file_size_limit_leaves_the_last_good_one(tmp_path: Path) -> None:
    """Scorecard 27: a file-size limit while saving, in a process of its own."""
    save(tmp_path, 1)
    code = f"""
import resource, torch
from pathlib import Path
from dubito import checkpoint
resource.setrlimit(resource.RLIMIT_FSIZE, ({1 << 20}, {resource.RLIM_INFINITY}))
checkpoint.save(Path({str(tmp_path)!r}), 2, {{"model": {{"w": torch.zeros(1 << 20)}}}}, {{}})
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.returncode == 1
    message = run.stderr.strip().splitlines()[-1]
    assert "DubitoError: cannot write" in message
    assert str(tmp_path / "step-00000002") in message
    assert "4,194," in message, "the size is named"
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]
    checkpoint.verify(tmp_path / "step-00000001")


@pytest.mark.rel
def test_a_full_disk_leaves_the_last_good_one(tmp_path: Path) -> None:
    """Scorecard 27: a disk of 1 MiB that is really full (a tmpfs of its own)."""
    code = """
import sys, torch
from dubito import checkpoint
checkpoint.save("disk", 1, {"model": {"w": torch.ones(100)}}, {})
try:
    checkpoint.save("disk", 2, {"model": {"w": torch.zeros(1 << 20)}}, {})
except ValueError as error:
    print(error)
print(checkpoint.load_latest("disk").step, checkpoint.steps("disk"))
"""
    mount = 'mkdir disk && mount -t tmpfs -o size=1m none disk && exec "$@"'
    enter = ["unshare", "-rm", "sh", "-c"]
    if subprocess.run([*enter, mount, "sh", "true"], cwd=tmp_path, capture_output=True).returncode:
        pytest.skip("cannot mount a small disk here")
    (tmp_path / "disk").rmdir()
    run = subprocess.run(
        [*enter, mount, "sh", sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    sentence, after = run.stdout.strip().splitlines()
    assert "disk/step-00000002" in sentence
    assert "4,194," in sentence
    assert "the disk is full" in sentence
    assert after == "1 [1]"


@pytest.mark.rel
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("failing", range(5))
def test_a_disk_that_fails_at_each_instant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int, code: int
) -> None:
    """Scorecard 27: the disk fails at the n-th flush: the sentence comes and the last good one verifies."""
    good = save(tmp_path, 1)
    calls = iter(range(100))
    real = os.fsync

    def fsync(fd: int) -> None:
        if next(calls) == failing:
            raise OSError(code, os.strerror(code))
        real(fd)

    monkeypatch.setattr(_files.os, "fsync", fsync)
    room = (
        r"\d bytes to be written, got [^(]*; choose"
        if code == errno.EIO
        else r"room for [\d,]+ bytes.* free\)"
    )
    with pytest.raises(DubitoError, match=rf"cannot write at .*step-00000002.*{room}"):
        save(tmp_path, 2)
    checkpoint.verify(good)
    found = checkpoint.load_latest(tmp_path)
    assert found is not None
    assert not list(tmp_path.glob(".*"))


def reseal(path: Path, **changes: Any) -> None:
    """A forged state.json with a valid seal: seals stop accidents, checks of meaning have to stop authors."""
    state = _sealed.read_state(path)
    state.pop("seal")
    (path / "state.json").write_bytes(_sealed.seal({**state, **changes}))


@pytest.mark.rel
@pytest.mark.parametrize(
    "name", ["../../secret.safetensors", "/etc/passwd", "sub/x.safetensors", "x.pkl", ""]
)
def test_files_outside_the_checkpoint_are_never_opened(tmp_path: Path, name: str) -> None:
    """Scorecard 28: path traversal in a sealed list of files."""
    path = save(tmp_path, 1)
    reseal(path, files={name: {"bytes": 1, "sha256": "0" * 64}})
    with pytest.raises(DubitoError, match="not a file of a checkpoint"):
        checkpoint.load(path)


def forge(path: Path, data: bytes) -> None:
    (path / "model.safetensors").write_bytes(data)
    reseal(path, files={"model.safetensors": {"bytes": len(data), "sha256": _files.sha256(data)}})


def header(text: bytes, body: bytes = b"") -> bytes:
    return struct.pack("<Q", len(text)) + text + body


@pytest.mark.rel
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04cos\nsystem\n(Vtouch /tmp/never\ntR.",
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 1 << 40) + b"{}",
        header(b"[" * 200_000),
        header(b'{"w":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4]}}', bytes(4)),
        header(b'{"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}', bytes(4)),
        header(b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}', bytes(4)),
        header(b'{"w":{"dtype":"X","shape":[1],"data_offsets":[0,4]}}', bytes(4)),
        header(b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(400)),
    ],
    ids=lambda data: repr(data[:12]),
)
def test_forged_tensor_files_give_one_sentence(tmp_path: Path, data: bytes) -> None:
    """Scorecard 28: pickles, absurd headers and shapes under a valid SHA-256."""
    path = save(tmp_path, 1)
    forge(path, data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DubitoError, match=r"model\.safetensors"):
        checkpoint.load(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


@pytest.mark.rel
def test_forged_states_give_one_sentence(tmp_path: Path) -> None:
    """Scorecard 28: bottomless JSON, later formats, wrong types, links, all sealed."""
    path = save(tmp_path, 1)
    for changes in ({"format": 2}, {"format": "1"}, {"step": 7}, {"step": "1"}, {"best": 1}, {"files": []}):
        shutil.rmtree(path)
        save(tmp_path, 1)
        reseal(path, **changes)
        with pytest.raises(DubitoError, match=r"state\.json"):
            checkpoint.load(path)
    deep = b'{"a":' + b"[" * 100_000 + b',\n "seal": "'
    (path / "state.json").write_bytes(deep + _files.sha256(deep).encode() + b'"\n}\n')
    with pytest.raises(DubitoError, match="not valid JSON"):
        checkpoint.load(path)
    (path / "state.json").unlink()
    (path / "state.json").symlink_to("/etc/hostname")
    with pytest.raises(DubitoError, match="symbolic link"):
        checkpoint.load(path)


@pytest.mark.rel
def test_the_checkpoint_of_format_1_loads() -> None:
    """Scorecard 31: a checkpoint written when format 1 was new."""
    found = checkpoint.load_best(FIXTURE)
    assert found is not None
    assert (found.step, found.skipped) == (41, ())
    assert found.state["config"] == {"method": "ln", "lr": 0.25}
    assert (found.state["epoch"], found.state["seed"], found.state["score"]) == (4, 11, float("-inf"))
    assert set(found.tensors) == {"model", "optimizer", "posteriors", "ema"}
    assert torch.equal(found.tensors["posteriors"]["q"], torch.tensor([[0.25, 0.75]], dtype=torch.float64))
    net = torch.nn.Linear(2, 3)
    net.load_state_dict(found.tensors["model"])
    # Adam's first step moves each weight by the rate, 0.25, against a positive gradient.
    expected = torch.arange(6.0).reshape(3, 2) / 8 - 0.25
    torch.testing.assert_close(net.weight.detach(), expected, atol=1e-6, rtol=0)
    assert found.tensors["ema"]["weight"].dtype == torch.bfloat16
    adam = torch.optim.Adam(net.parameters())
    checkpoint.restore_optimizer(adam, found.tensors["optimizer"], found.state["optimizer"])
    assert adam.param_groups[0]["lr"] == 0.25
    assert adam.state[net.weight]["step"] == 1
