"""Scores of masks: against loops, and exactly the same however the set is shared out."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import ndimage
from scored_masks import K, data, figures, model

from dubito import DubitoError
from dubito.metrics import ece, log_likelihood, miou
from dubito.segmentation import SegmentationScores, score_masks
from dubito.segmentation.scores import inner_border


def predicted() -> tuple[torch.Tensor, torch.Tensor]:
    with torch.no_grad():
        return model()(data().batch(torch.arange(len(data())))), data().labels


def test_against_the_metrics_of_all_pixels_at_once():
    log_p, y = predicted()
    scores = SegmentationScores(K, bins=10)
    scores.add(log_p, y)
    found = scores.results()
    assert found["mean_iou"] == pytest.approx(miou(log_p.argmax(-1), y, K, ignore_index=-100))
    assert found["log_likelihood"] == pytest.approx(log_likelihood(log_p, y), abs=1e-6)
    assert found["ece"] == pytest.approx(ece(log_p.exp(), y, bins=10), abs=1e-6)
    assert found["pixels"] == int((y >= 0).sum())


@pytest.mark.paper("collier2020 table 2")
def test_mean_iou_by_hand():
    """Accumulated over the set, not a mean over images; an absent class does not enter."""
    scores = SegmentationScores(4, boundary=0)
    sure = torch.eye(4).clamp(min=1e-3).log()
    for guess, truth in (([0, 0, 1, 1], [0, 0, 0, -100]), ([1, 1, 0, 0], [1, 1, 1, 1])):
        scores.add(sure[torch.tensor([[guess]])], torch.tensor([[truth]]))
    values, present = scores.class_iou()
    # class 0: 2 right, 3 true, 4 said (one over void does not count); class 1: 2 right, 4 true, 3 said
    assert values[:2].tolist() == pytest.approx([2 / 5, 2 / 5])
    assert present.tolist() == [True, True, False, False]
    assert scores.results()["mean_iou"] == pytest.approx(0.4)


@pytest.mark.parametrize("ignored", [-100, 255, -1])
def test_pixels_without_a_label_count_nowhere(ignored):
    """-1 (none given) and -100 are no labels whatever `ignore_index` is: the scores are those of all void."""
    log_p, y = predicted()
    assert int((y == -100).sum()) > 3
    mixed = y.clone()
    places = (y == -100).nonzero()
    mixed[tuple(places[::3].T)] = -1
    mixed[tuple(places[1::3].T)] = ignored
    wanted, found = SegmentationScores(K), SegmentationScores(K, ignore_index=ignored)
    wanted.add(log_p, y)
    found.add(log_p, mixed)
    assert found.results() == wanted.results()
    rest = replace(data(), labels=mixed)
    assert (
        score_masks(model(), rest, ignore_index=ignored).results() == score_masks(model(), data()).results()
    )
    with pytest.raises(DubitoError, match="label out of range"):
        found.add(log_p, torch.where(mixed < 0, -2, mixed))
    for wrong in (mixed.double(), mixed > 0):
        with pytest.raises(DubitoError, match="integer class indices"):
            found.add(log_p, wrong)


@pytest.mark.parametrize("d", [1, 2])
def test_boundary_by_erosion(d):
    """The inner border is what d erosions by a 3 x 3 square take away, the edge of the image included."""
    _, y = predicted()
    found = inner_border(y, K, d).numpy()
    for i in range(len(y)):
        for k in range(K):
            shape = (y[i] == k).numpy()
            inner = ndimage.binary_erosion(shape, np.ones((3, 3)), iterations=d, border_value=0)
            assert (found[i, k] == (shape & ~inner)).all()


def test_boundary_iou():
    """A square one pixel too large: the ratio of the pixels near the two outlines."""
    truth = torch.zeros(1, 20, 20, dtype=torch.int64)
    truth[:, 5:15, 5:15] = 1
    guess = torch.zeros_like(truth)
    guess[:, 4:16, 4:16] = 1
    scores = SegmentationScores(2, boundary=0.02)
    scores.add(torch.eye(2).clamp(min=1e-3).log()[guess], truth)
    # d = 1: outlines of 10 x 10 (36 pixels) and 12 x 12 (44) have nothing in common
    assert float(scores.boundary_iou()[0][1]) == 0
    assert scores.results()["mean_iou"] > 0.6


@pytest.mark.rel
@pytest.mark.parametrize("sizes", [[1, 6], [3, 4], [2, 2, 3]])
def test_parts_add_up_exactly(sizes):
    """Scorecard 37: batches of any size, merged in any order, give the same digits."""
    log_p, y = predicted()
    whole = SegmentationScores(K)
    whole.add(log_p, y)
    merged = SegmentationScores(K)
    for a, b in reversed(list(zip(log_p.split(sizes), y.split(sizes)))):
        part = SegmentationScores(K)
        part.add(a, b)
        merged = merged.merge(part)
    assert merged.results() == whole.results()


@pytest.mark.rel
def test_two_processes_score_as_one(tmp_path):
    """Scorecard 37: two processes over gloo, one of which has fewer batches, against one."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    script = str(Path(__file__).with_name("scored_masks.py"))
    running = [
        subprocess.Popen(
            [sys.executable, script, str(tmp_path / str(rank))],
            env={**os.environ, **shared, "RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in running:
        said = process.communicate(timeout=400)[1]
        assert process.returncode == 0, said
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the processes: sums over other numbers of threads round differently
    try:
        wanted = figures()
    finally:
        torch.set_num_threads(threads)
    assert [json.loads((tmp_path / str(rank)).read_text()) for rank in range(2)] == [wanted, wanted]


def test_refusals():
    scores = SegmentationScores(K)
    with pytest.raises(DubitoError, match="no labelled pixel"):
        scores.results()
    with pytest.raises(DubitoError, match="do not fit"):
        scores.add(torch.zeros(1, 2, 2, K + 1), torch.zeros(1, 2, 2, dtype=torch.int64))
    with pytest.raises(DubitoError, match="different kinds"):
        scores.merge(SegmentationScores(K + 1))
    with pytest.raises(DubitoError, match="clean masks"):
        score_masks(model(), data(), clean=True)
