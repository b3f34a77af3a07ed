"""Fixtures that every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from audited import audited, bounded
from scorecard_recorder import name_checks, pytest_configure, scorecard

__all__ = ["audited", "bounded", "pytest_configure", "scorecard", "shared_data"]

# A slow machine is no counter-example. (Whoever loads a profile of their own has thought of it.)
if settings.default is not None and settings.default.deadline is not None:
    settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("patient")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with the real sets: the first of $DUBITO_DATA, or shared/data beside the repository."""
    named = [Path(p) for p in os.environ.get("DUBITO_DATA", "").split(os.pathsep) if p]
    for folder in [*named, Path(__file__).resolve().parents[2] / "shared" / "data"]:
        if (folder / "images" / "meta.json").is_file():
            return folder
    pytest.skip("the real sets are not on this machine (DUBITO_DATA)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long tests, and those of a GPU, run only where -m names their mark: ``-m rel`` is the set of each commit."""
    name_checks(items)
    unnamed = [mark for mark in ("nightly", "gpu") if mark not in config.getoption("markexpr")]
    left = [item for item in items if any(item.get_closest_marker(mark) for mark in unnamed)]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in set(left)]
