"""The memory of a step at 512 x 512 with 21 classes, in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "segmentation_memory.py"


@pytest.mark.rel
@pytest.mark.nightly
@pytest.mark.skipif(not SCRIPT.is_file(), reason="the benchmarks are not here")
@pytest.mark.parametrize("kind", ["log_probs", "latent"])
def test_under_four_gigabytes(kind, tmp_path, scorecard):
    """Scorecard 33: a batch of 512 x 512 images with 21 classes, beyond the network, below 4 GB."""
    out = tmp_path / "memory.jsonl"
    subprocess.run([sys.executable, str(SCRIPT), "--out", str(out), "--kinds", kind], check=True)
    (line,) = map(json.loads, out.read_text().splitlines())
    scorecard(33, cases=1, beyond_gb=round(line["beyond"], 2))
    assert line["beyond"] < 4.0
