"""The demo: annotators of different skill, the vote beside the joint model, a report."""

from __future__ import annotations

import time

import pytest
import torch

from dubito import demo
from dubito.noise import is_dominant


def test_annotators_are_as_told():
    A = demo.matrices()
    assert A.shape == (5, 10, 10)
    assert torch.allclose(A.sum(-1), torch.ones(5, 10, dtype=torch.float64))
    assert is_dominant(A.mean(0))
    data, test = demo.digits(0)
    assert data.crowd is not None
    assert (len(data), len(test), len(data.crowd.item)) == (1197, 600, 2 * 1197)
    assert not set(data.rows.tolist()) & set(test.rows.tolist())
    assert bool((data.labels == -1).all()), "the truth is for scoring only"


def test_demo_writes_its_report(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "EPOCHS", 4)
    monkeypatch.setattr(demo, "FOLDS", 2)
    said: list[str] = []
    found = demo.run(tmp_path / "demo", 0, said.append)
    assert found.report == tmp_path / "demo" / "run-0" / "report.html"
    page = found.report.read_text(encoding="utf-8")
    assert all(name in page for name in demo.SKILLS)
    assert "new digits read right: joint model" in page
    assert "data:image/png" in page
    assert len(found.rows) == 2


@pytest.mark.nightly
def test_the_joint_model_beats_the_vote_within_a_minute(tmp_path):
    began = time.monotonic()
    vote, joint = demo.run(tmp_path / "demo").rows
    assert time.monotonic() - began < 60
    assert joint.test > vote.test + 0.1
    assert joint.training > vote.training + 0.2
