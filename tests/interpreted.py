"""Programs whose Triton kernels run in Triton's interpreter, on a CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def run(program: str) -> None:
    """Run a program in a process of its own, with the package and its tests to import from; it must end well."""
    here = Path(__file__).resolve().parent
    folders = map(str, (here / "integrals", here / "fused", here.parent / "src"))
    path = os.pathsep.join([*folders, *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False
    )
    if "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("this Triton's interpreter does not work with this NumPy")
    assert done.returncode == 0, done.stderr
