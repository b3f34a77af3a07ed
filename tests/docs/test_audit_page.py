"""The figures on the page about audits are those of the recorded lines, and the lines show what is claimed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_page_says_what_the_lines_say():
    command = [sys.executable, str(ROOT / "tools" / "audit_page.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_cell_is_far_below_cleanlab(monkeypatch):
    """Self-confidence, confident learning and the whole pipeline; seeds of a cell averaged."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from audit_summary import newest, summary

    cells = newest(ROOT / "results" / "benchmarks" / "audit.jsonl")
    assert {m["data"] for m in cells} == {"digits", "mnist", "cifar10n"}
    assert any(m["noise"].startswith("asymmetric") for m in cells)
    found = summary(cells)
    for peer in ("self_confidence", "issues by confident_learning", "pipeline"):
        assert found[peer]["worst"] > -0.01
        assert found[peer]["interval"][0] > 0
