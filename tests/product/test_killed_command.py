"""`dubito fit` killed outright again and again: at the end every file is that of a run left alone."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from product_tables import blobs, single_table

OPTIONS = ["--method", "gce", "--folds", "3", "--epochs", "20", "--device", "cpu"]
APART = {".lock", "starts.jsonl", "times.jsonl"}  # processes and seconds, which differ every time


def start(place: Path, table: Path) -> subprocess.Popen[bytes]:
    code = "import sys; from dubito.cli import main; sys.argv[0] = 'dubito'; main()"
    command = [sys.executable, "-c", code, "fit", str(table), "--out", "run", *OPTIONS]
    place.mkdir(exist_ok=True)
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.Popen(command, cwd=place, env=variables, stdout=subprocess.DEVNULL)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and p.name not in APART
    }


def files(folder: Path) -> int:
    return sum(1 for _ in folder.rglob("*")) if folder.is_dir() else 0


@pytest.mark.rel
@pytest.mark.nightly
def test_every_file_is_the_same(tmp_path: Path, scorecard: Callable[..., None]) -> None:
    """Scorecard 22: the command as a user runs it, report and tables included; instants random and printed."""
    table, place = single_table(tmp_path / "labels.csv", blobs()), tmp_path / "place"
    assert start(place, table).wait(timeout=600) == 0
    one, kills = contents(place / "run"), 0
    shutil.rmtree(place / "run")
    for _ in range(6):
        process, seen = start(place, table), files(place / "run")
        while process.poll() is None and files(place / "run") <= seen + 2:
            time.sleep(0.01)  # until it has written something more
        delay = random.uniform(0, 0.5)
        time.sleep(delay)
        if process.poll() is None:
            print(f"SIGKILL {delay:.4f} s after file {files(place / 'run')}")
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
    assert start(place, table).wait(timeout=600) == 0
    two = contents(place / "run")
    different = [name for name in one.keys() | two.keys() if one.get(name) != two.get(name)]
    scorecard(22, kills=kills, different=len(different))
    assert kills >= 2
    assert different == []
    assert {"predictions.csv", "label_quality.csv", "report.html", "result.json"} <= one.keys()
