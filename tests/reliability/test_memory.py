"""Memory of large jobs, as the system counts it, in processes of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from watched import watch

GIGABYTE = 10**9
needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@needs_proc
@pytest.mark.rel
@pytest.mark.nightly
@pytest.mark.parametrize(("job", "gigabytes"), [("segmentation", 4), ("classes", 4), ("crowd", 2)])
def test_largest_resident_size(
    job: str, gigabytes: int, tmp_path: Path, scorecard: Callable[..., None]
) -> None:
    """Scorecard 33: 512x512x21 pixels, 1,000 classes x 200 annotators, 10 million labels: 4, 4 and 2 GB."""
    seen = watch(job, tmp_path / "run")
    assert seen.status == 0, seen.said
    print(f"{job}: {seen.peak / GIGABYTE:.2f} GB in {seen.seconds:.0f} s")
    scorecard(33, **{f"{job}_GB": round(seen.peak / GIGABYTE, 3)})
    assert 0 < seen.peak < gigabytes * GIGABYTE
