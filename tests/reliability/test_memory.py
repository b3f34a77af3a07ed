"""Memory of large jobs, as the system counts it, in processes of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from watched import watch

GIGABYTE = 10**9
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def largest_resident_size(job: str, folder: Path) -> float:
    """In gigabytes."""
    seen = watch(job, folder, limit=3600)
    assert seen.status == 0, seen.said
    print(f"{job}: {seen.peak / GIGABYTE:.2f} GB in {seen.seconds:.0f} s")
    assert seen.peak > 0
    return round(seen.peak / GIGABYTE, 3)


@pytest.mark.rel
@pytest.mark.nightly
def test_segmentation(tmp_path: Path, scorecard: Callable[..., None]) -> None:
    """Scorecard 33: steps on images of 512 x 512 pixels and 21 classes, with and without noise in the head."""
    found = largest_resident_size("segmentation", tmp_path / "run")
    scorecard(33, segmentation_GB=found)
    assert found < 4


@pytest.mark.rel
@pytest.mark.nightly
def test_many_classes(tmp_path: Path, scorecard: Callable[..., None]) -> None:
    """Scorecard 33: 1,000 classes and 200 annotators over a pool of low rank."""
    found = largest_resident_size("classes", tmp_path / "run")
    scorecard(33, classes_GB=found)
    assert found < 4


@pytest.mark.rel
@pytest.mark.nightly
def test_many_labels(tmp_path: Path, scorecard: Callable[..., None]) -> None:
    """Scorecard 33: 10 million labels of a crowd to a consensus."""
    found = largest_resident_size("crowd", tmp_path / "run")
    scorecard(33, crowd_GB=found)
    assert found < 2
