"""The page of the expected softmax says what its generator and the committed lines say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "softmax_page.py"
pytestmark = pytest.mark.skipif(not TOOL.is_file(), reason="the tools are not here")


def test_the_page_is_up_to_date():
    done = subprocess.run([sys.executable, str(TOOL), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
