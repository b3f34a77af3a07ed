"""Every example in a docstring is run."""

import doctest
import importlib
import pkgutil

import pytest

import dubito

# Kernels need a package that only GPU builds of torch bring; their module says so when it is imported.
MODULES = [
    found.name
    for found in pkgutil.walk_packages(dubito.__path__, "dubito.")
    if "triton" not in found.name and found.name != "dubito.__main__"
]
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@pytest.mark.parametrize("name", MODULES)
def test_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=FLAGS)
    assert failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder()
    examples = sum(
        len(test.examples) for name in MODULES for test in finder.find(importlib.import_module(name), name)
    )
    assert examples >= 100
