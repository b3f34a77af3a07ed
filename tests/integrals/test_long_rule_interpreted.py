"""The rule of thousands of nodes in Triton's interpreter, on a CPU: the numbers of the same rule in plain torch."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed"),
]

PROGRAM = """
import torch
from dubito.integrals import quick, triton_all

g = torch.Generator().manual_seed(0)
for classes, nodes in ((11, 2048), (21, 1024), (3, 8192)):
    mean, grad = 2 * torch.randn(3, classes, generator=g), torch.randn(3, classes, generator=g)
    scale = (1.2 * torch.randn(3, classes, generator=g) - 1).exp()
    tau = torch.full((3, 1), 0.05)
    assert triton_all._long(classes, nodes)
    log_p, error, low, step = triton_all.forward(mean, scale, tau, nodes)
    right, said, first, distance = quick._forward(nodes, mean, scale, tau)
    assert float((log_p - right).abs().max()) < 5e-5
    assert float((error - said).abs().max()) < 1e-5 + 0.01 * float(said.max())
    got = triton_all.backward(mean, scale, tau, log_p, low, step, grad, nodes)
    for a, b in zip(got, quick._backward(nodes, mean, scale, tau, right, first, distance, grad)):
        assert float((a - b).abs().max()) < 1e-4 * float(b.abs().max())
"""


def test_against_the_rule_in_torch():
    source = Path(__file__).resolve().parents[2] / "src"
    path = os.pathsep.join([str(source), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=False
    )
    if "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("this Triton's interpreter does not work with this NumPy")
    assert done.returncode == 0, done.stderr
