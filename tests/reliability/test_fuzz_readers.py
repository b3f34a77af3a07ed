"""Files of our own formats under random damage and random forgery: they are read, or refused in one sentence.

Forgery knows the format: values of a JSON document are exchanged for hostile ones and the seals and sums are made
right again, so that what is tried is the reader behind them.
"""

from __future__ import annotations

import json
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from audited import Audited
from dubito import DubitoError, _files, _sealed, checkpoint
from dubito.crowd import CrowdLabels
from dubito.data import read_arrays, read_mask
from dubito.data._packed import read_meta, read_packed
from dubito.papers import item, results
from dubito.runs import RunFolder, read_config, read_metrics, read_result

PER_COMMIT, NIGHTLY = 20, int(os.environ.get("DUBITO_FUZZ", "700"))
VALUES = [None, True, -1, 0, 1 << 70, 1e308, float("nan"), "", "../../x", "/etc/passwd", "\0", [], {}, [[]]]
VALUES += ["a" * 5000, {"a": {"b": {}}}, [0] * 1000, -0.5, "NaN", {"__import__": "os"}, [1 << 40, 1 << 40]]


def forged(content: Any, dice: random.Random) -> Any:
    """The same document with some entries exchanged, left out or added."""
    if dice.random() < 0.15:
        return dice.choice(VALUES)
    if isinstance(content, dict) and content:
        made = dict(content)
        key = dice.choice(list(made))
        how = dice.randrange(4)
        if how == 0:
            del made[key]
        elif how == 1:
            made[dice.choice(["", "x", "../x", key + " "])] = dice.choice(VALUES)
        else:
            made[key] = forged(made[key], dice)
        return made
    if isinstance(content, list) and content:
        place = dice.randrange(len(content))
        return [*content[:place], forged(content[place], dice), *content[place + 1 :]]
    return dice.choice(VALUES)


def damaged(raw: bytes, dice: random.Random) -> bytes:
    """Some bytes exchanged, taken out or put in, mostly near the ends."""
    out = bytearray(raw)
    for _ in range(dice.choice([1, 2, 10])):
        edge = max(1, min(len(out), 300))
        place = dice.choice([dice.randrange(edge), dice.randrange(len(out) or 1), max(0, len(out) - edge)])
        how = dice.randrange(3)
        if how == 0 and out:
            out[min(place, len(out) - 1)] = dice.randrange(256)
        elif how == 1:
            del out[place : place + dice.choice([1, 8, 500])]
        else:
            out[place:place] = dice.choice(
                [b"\0" * 8, b"\xff" * 8, b"[" * 3000, b'{"a":', b"\n,;\"'", b"=1+1"]
            )
    return bytes(out)


def _text(content: Any) -> bytes:
    return json.dumps(content).encode()


def _changed_json(path: Path, dice: random.Random) -> None:
    raw = path.read_bytes()
    path.write_bytes(_text(forged(json.loads(raw), dice)) if dice.random() < 0.6 else damaged(raw, dice))


def _seal(folder: Path, state: Any) -> None:
    if isinstance(state, dict):
        (folder / "state.json").write_bytes(_sealed.seal(state))
    else:
        (folder / "state.json").write_bytes(_text(state))


def _whole_checkpoint(folder: Path) -> Path:
    tensors = {"model": {"w": torch.ones(3, 2), "b": torch.zeros(2)}, "ema": {"w": torch.ones(1)}}
    return checkpoint.save(folder, 3, tensors, {"epoch": 1, "config": {"a": [1, 2.5, "x"]}})


def forged_state(folder: Path, dice: random.Random) -> None:
    """state.json with other entries and a right seal."""
    path = _whole_checkpoint(folder / "c")
    state = {k: v for k, v in _sealed.read_state(path).items() if k != "seal"}
    _seal(path, forged(state, dice))
    checkpoint.load(path)


def forged_tensors(folder: Path, dice: random.Random) -> None:
    """A tensor file with another header or other bytes, and a right SHA-256."""
    path = _whole_checkpoint(folder / "c")
    raw = (path / "model.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    if dice.random() < 0.6:
        header = _text(forged(json.loads(raw[8 : 8 + size]), dice))
        raw = struct.pack("<Q", dice.choice([len(header), len(header), size])) + header + raw[8 + size :]
    else:
        raw = damaged(raw, dice)
    (path / "model.safetensors").write_bytes(raw)
    state = {k: v for k, v in _sealed.read_state(path).items() if k != "seal"}
    state["files"]["model.safetensors"] = {"bytes": len(raw), "sha256": _files.sha256(raw)}
    _seal(path, state)
    checkpoint.load(path)


def damaged_checkpoint(folder: Path, dice: random.Random) -> None:
    path = _whole_checkpoint(folder / "c")
    target = dice.choice(sorted(path.iterdir()))
    target.write_bytes(damaged(target.read_bytes(), dice))
    checkpoint.load(path)


def _whole_run(folder: Path) -> Path:
    with RunFolder(folder / "r", {"lr": 0.1, "layers": [1, 2], "name": "x"}) as run:
        run.resume()
        run.log(epoch=1, loss=0.5)
        run.log(epoch=2, loss=0.25)
        run.finish({"accuracy": 0.5})
    return folder / "r"


def run_config(folder: Path, dice: random.Random) -> None:
    path = _whole_run(folder)
    _changed_json(path / "config.json", dice)
    read_config(path)
    with RunFolder(path, {"lr": 0.1, "layers": [1, 2], "name": "x"}):
        pass


def run_result(folder: Path, dice: random.Random) -> None:
    path = _whole_run(folder)
    _changed_json(path / "result.json", dice)
    read_result(path)


def run_metrics(folder: Path, dice: random.Random) -> None:
    path = _whole_run(folder) / "metrics.jsonl"
    path.write_bytes(damaged(path.read_bytes(), dice))
    read_metrics(path.parent)


def paper_results(folder: Path, dice: random.Random) -> None:
    config = next(iter(item("englesson2023.table1-mnist").make("smoke", None, None)))
    written = results.write_result(results.Result(config, {"test_accuracy": 0.5}, 1.0), folder / "results")
    _changed_json(written, dice)
    results.read(folder / "results")


def crowd_csv(folder: Path, dice: random.Random) -> None:
    rows = "task,worker,label\n" + "".join(f"t{i},w{i % 3},{i % 2}\n" for i in range(30))
    (folder / "x.csv").write_bytes(damaged(rows.encode(), dice))
    CrowdLabels.from_long(folder / "x.csv", item="task", annotator="worker", label="label")


def crowd_parquet(folder: Path, dice: random.Random) -> None:
    frame = pd.DataFrame({"task": range(30), "worker": [i % 3 for i in range(30)], "label": [0, 1] * 15})
    frame.to_parquet(folder / "x.parquet")
    raw = (folder / "x.parquet").read_bytes()
    (folder / "x.parquet").write_bytes(damaged(raw, dice))
    CrowdLabels.from_long(folder / "x.parquet", item="task", annotator="worker", label="label")


def packed_meta(folder: Path, dice: random.Random) -> None:
    import lzma

    raw = lzma.compress(np.arange(6, dtype=np.uint8).tobytes())
    (folder / "x.xz").write_bytes(raw)
    spec = {
        "files": ["x.xz"],
        "file": "x.xz",
        "shape": [6],
        "dtype": "uint8",
        "codec": "xz",
        "sha256": "0" * 64,
    }
    (folder / "meta.json").write_bytes(_text({"set": {"train": {"images": spec}}}))
    _changed_json(folder / "meta.json", dice)
    read_meta(folder / "meta.json")
    made = forged(spec, dice)
    if isinstance(made, dict):
        read_packed(folder, made)


def png_mask(folder: Path, dice: random.Random) -> None:
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8) % 5).save(folder / "m.png")
    (folder / "m.png").write_bytes(damaged((folder / "m.png").read_bytes(), dice))
    read_mask(folder / "m.png")


def arrays_file(folder: Path, dice: random.Random) -> None:
    np.savez(folder / "d.npz", x=np.random.default_rng(0).normal(size=(6, 2)), y=np.arange(6) % 2)
    (folder / "d.npz").write_bytes(damaged((folder / "d.npz").read_bytes(), dice))
    read_arrays(folder / "d.npz")


READERS: list[Callable[[Path, random.Random], None]] = [
    *(forged_state, forged_tensors, damaged_checkpoint, run_config, run_result, run_metrics, paper_results),
    *(crowd_csv, crowd_parquet, packed_meta, png_mask, arrays_file),
]


def fuzz(read: Callable[[Path, random.Random], None], tmp_path: Path, rounds: int) -> tuple[int, int]:
    """How many files were tried and how many refused; anything but DubitoError is a failure of the test."""
    refused = 0
    outside = tmp_path / "outside"
    outside.mkdir()
    for seed in range(rounds):
        folder = tmp_path / str(seed)
        folder.mkdir()
        try:
            read(folder, random.Random(f"{read.__name__} {seed}"))
        except DubitoError as error:
            refused += 1
            if "\n" in str(error):
                raise AssertionError(f"more than a sentence: {error}") from error
        except Exception as error:
            raise AssertionError(f"{read.__name__}, seed {seed}: {type(error).__name__}: {error}") from error
    assert not list(outside.iterdir())
    return rounds, refused


@pytest.mark.rel
@pytest.mark.usefixtures("bounded")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("read", READERS, ids=lambda f: f.__name__)
def test_forged_files(read: Any, tmp_path: Path, audited: Audited, scorecard: Callable[..., None]) -> None:
    """Scorecard 28: our own formats, damaged and forged."""
    tried, refused = fuzz(read, tmp_path, PER_COMMIT)
    scorecard(28, files=tried, **audited.figures())
    assert refused


@pytest.mark.rel
@pytest.mark.nightly
@pytest.mark.usefixtures("bounded")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("read", READERS, ids=lambda f: f.__name__)
def test_many_forged_files(
    read: Any, tmp_path: Path, audited: Audited, scorecard: Callable[..., None]
) -> None:
    """Scorecard 18, 28: our own formats, damaged and forged, many times."""
    tried, refused = fuzz(read, tmp_path, NIGHTLY)
    scorecard(18, examples=tried)
    scorecard(28, files=tried, **audited.figures())
    assert refused
