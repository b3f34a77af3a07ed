"""Tables and finished runs that several tests look at."""

from __future__ import annotations

from pathlib import Path

import pytest
from product_tables import FAST, LONGER, Blobs, blobs, crowd_table, dubito, single_table


@pytest.fixture(scope="session")
def three() -> Blobs:
    return blobs()


@pytest.fixture(scope="session")
def table(tmp_path_factory, three) -> Path:
    return single_table(tmp_path_factory.mktemp("single") / "labels.csv", three)


@pytest.fixture(scope="session")
def crowd(tmp_path_factory, three) -> Path:
    return crowd_table(tmp_path_factory.mktemp("crowd") / "crowd.csv", three)


@pytest.fixture(scope="session")
def trained(tmp_path_factory, table) -> Path:
    """A finished run; tests that change it take a copy."""
    out = tmp_path_factory.mktemp("runs") / "single"
    dubito("fit", table, "--out", out, "--method", "gce", *FAST)
    return out


@pytest.fixture(scope="session")
def trained_crowd(tmp_path_factory, crowd) -> Path:
    out = tmp_path_factory.mktemp("runs") / "crowd"
    dubito("fit", crowd, "--out", out, "--method", "trace", *LONGER)
    return out
