"""Small sets for the tests of the papers."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_sets


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory) -> Path:
    """The sets of the papers in their published layouts, a few hundred examples each."""
    root = tmp_path_factory.mktemp("tiny")
    tiny_sets.write(root)
    return root
