"""Tiny files in the published layouts, made once; no test touches the user's own cache."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest


def _script():
    path = Path(__file__).with_name("make_fixtures.py")
    spec = importlib.util.spec_from_file_location("dubito_make_fixtures", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def made():
    """The script itself, for its pixel pattern."""
    return _script()


@pytest.fixture(scope="session")
def published(tmp_path_factory, made) -> Path:
    root = tmp_path_factory.mktemp("published")
    made.make(root)
    return root


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """A cache folder and a search path of our own."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        patch.delenv("DUBITO_DATA", raising=False)
        yield folder
