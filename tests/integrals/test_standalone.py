"""The file to lift: on its own feet, and equal to the library."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest
import softmax_rows as families
import torch

import dubito.integrals.standalone as standalone
from dubito.integrals import expected_softmax_nll

SOURCE = Path(standalone.__file__)


def test_imports_torch_and_nothing_else():
    tree = ast.parse(SOURCE.read_text())
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(node.module.split(".")[0])
    assert names <= {"__future__", "math", "typing", "torch"}


def test_works_as_a_copy(tmp_path):
    copy = tmp_path / "lifted.py"
    copy.write_text(SOURCE.read_text())
    spec = importlib.util.spec_from_file_location("lifted", copy)
    lifted = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lifted)
    nll, error = lifted.expected_softmax_nll(torch.zeros(1, 2), torch.ones(1, 2), torch.tensor([1]))
    assert float(nll) == pytest.approx(0.6931472, abs=1e-6)
    assert float(error) < 1e-8


@pytest.mark.rel
@pytest.mark.parametrize(
    ("kind", "tau"),
    [
        ("ordinary", 0.0),
        ("ordinary", 0.5),
        ("ordinary", 20.0),
        ("lognormal", 0.3),
        ("extreme", 0.3),
        ("far", 1.0),
    ],
)
def test_equals_the_library(kind, tau):
    """Scorecard 9: two codes that share a formula and nothing else agree in value and gradients."""
    mean, scale, temperature, target = families.rows(kind, tau, 4, 4)
    inputs = [x.requires_grad_() for x in (mean, scale, temperature)]
    one, error = standalone.expected_softmax_nll(mean, scale, target, temperature)
    two = expected_softmax_nll(mean, scale, target, temperature=temperature, reduction="none")
    off = (one - two).detach().abs()
    assert float(off.max()) < 2e-8
    assert bool((off <= error + 2e-8).all())
    for k, (a, b) in enumerate(zip(*(torch.autograd.grad(x.sum(), inputs) for x in (one, two)))):
        if k == 2 and tau == 0:
            continue  # the derivative in the temperature vanishes there
        size = b.abs().amax(-1, keepdim=True)
        assert float(((a - b).abs() / (size + 1e-6)).max()) < 1e-5
