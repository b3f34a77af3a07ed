"""Fixtures that every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scorecard_recorder import pytest_collection_modifyitems, pytest_configure, scorecard

__all__ = ["pytest_collection_modifyitems", "pytest_configure", "scorecard", "shared_data"]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with the real sets: the first of $DUBITO_DATA, or shared/data beside the repository."""
    named = [Path(p) for p in os.environ.get("DUBITO_DATA", "").split(os.pathsep) if p]
    for folder in [*named, Path(__file__).resolve().parents[2] / "shared" / "data"]:
        if (folder / "images" / "meta.json").is_file():
            return folder
    pytest.skip("the real sets are not on this machine (DUBITO_DATA)")
