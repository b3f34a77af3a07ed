"""The page of CamVid results says what the committed lines say."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "segmentation_page.py"
pytestmark = pytest.mark.skipif(not TOOL.is_file(), reason="the tools are not here")


@pytest.fixture(scope="module")
def tool():
    before = list(sys.path)
    sys.path.insert(0, str(TOOL.parent))
    yield importlib.import_module("segmentation_page")
    sys.path[:] = before


def test_up_to_date(tool):
    assert tool.PAGE.read_text(encoding="utf-8") == tool.page()


@pytest.mark.paper("collier2020 fig. 2")
def test_enough_seeds(tool):
    """Three seeds of the homoscedastic model, of temperature 1 and of the chosen temperature, on both labels."""
    for labels in ("clean", "border"):
        found = tool.cells(labels, series=tool.fullest())
        assert all(len(found[tau]) >= 3 for tau in (None, 1.0, tool.best(found)))


def test_intervals(tool):
    """Student's: 1, 2, 3 have a mean of 2 and a half-width of 4.303 / sqrt(3)."""
    assert tool.interval([1.0, 2.0, 3.0], 3, 1.0) == "2.000 ± 2.484"
    assert tool.interval([1.0], 1, 1.0) == "1.0"
