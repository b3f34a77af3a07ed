"""Arguments that random calls found to end in somebody else's exception, or in no end at all; each by name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import nn

from dubito import DubitoError, backbones, heads, integrals, links, losses, optim
from dubito.data import LabelledData, augment, from_torch
from dubito.evaluate import evaluate, predict
from dubito.model import Model
from dubito.procedures import CrossFittedEM, DoctorHeads
from dubito.segmentation.scores import SegmentationScores

NONE = torch.zeros(2, 0)
Y = torch.tensor([0, 1])


def model() -> Model:
    return Model(nn.Identity(), heads.Point(4, 3))


CASES: dict[str, tuple[Callable[[], object], str]] = {
    "no classes: tempered softmax": (lambda: losses.tempered_softmax(NONE, 1.2), "no classes"),
    "no classes: softmax": (lambda: links.log_softmax(NONE, 2.0), "no classes"),
    "no classes: bi-tempered": (lambda: losses.bi_tempered(NONE, NONE), "no classes"),
    "no classes: likelihood": (lambda: losses.nll(NONE, NONE), "no classes"),
    "integers: tempered softmax": (lambda: losses.tempered_softmax(Y.view(1, 2), 1.2), "floating"),
    "integers: expected sigmoid": (lambda: integrals.expected_sigmoid(Y, 1.0), "floating"),
    "a scale beyond float32": (lambda: integrals.expected_log_sigmoid(torch.zeros(2), 1e300), "out of range"),
    "complex draws": (
        lambda: integrals.sampled_log_softmax(torch.zeros(3), torch.ones(3), torch.zeros(2, 3) + 1j),
        "noise must be real",
    ),
    "a number for labels": (lambda: LabelledData(torch.zeros(2, 3), torch.tensor(1)), "no axis"),
    "a number for clean labels": (
        lambda: LabelledData(torch.zeros(2, 3), Y, clean=torch.tensor(1)),
        "differ in length",
    ),
    "items that are no pairs": (lambda: from_torch(torch.zeros(3, 1)), r"dataset\[0\]"),
    "a window of less than nothing": (
        lambda: augment(torch.zeros(2, 1, 4, 4), Y, seed=0, epoch=0, pad=1, size=-1),
        "no such crop",
    ),
    "more folds than networks": (lambda: CrossFittedEM(model(), folds=10**12), "folds"),
    "one fold": (lambda: CrossFittedEM(model(), folds=1), "folds"),
    "a negative number of annotators": (lambda: DoctorHeads(4, 3, num_annotators=-1), "too small"),
    "more classes than counts": (lambda: SegmentationScores(10**12), "there must be a class"),
    "a rate that grows without bound": (lambda: optim.polynomial(3, 3, power=-1.0), "power"),
    "batches of nothing": (
        lambda: evaluate(model(), LabelledData(torch.zeros(2, 4), Y), batch_size=0),
        "batch",
    ),
    "batches of less": (lambda: predict(model(), LabelledData(torch.zeros(2, 4), Y), batch_size=-1), "batch"),
    "no widths": (lambda: backbones.CNN4(filters=()), "four"),
    "blocks without end": (lambda: backbones.EncoderDecoder(3, blocks=10**12), "no such decoder"),
}


@pytest.mark.rel
@pytest.mark.parametrize("name", CASES)
def test_refused(name: str, scorecard: Callable[..., None]) -> None:
    """Scorecard 13: refused in one sentence of ours, at once."""
    call, words = CASES[name]
    with pytest.raises(DubitoError, match=words) as refused:
        call()
    assert "\n" not in str(refused.value)
    scorecard(13, cases=1)


@pytest.mark.rel
def test_tolerance_that_cannot_be_met() -> None:
    """Scorecard 9, 13: what can be reached is reached in time, and the report says that it is less."""
    reports: list[integrals.Report] = []
    mean = torch.randn(64, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for tol in (1e-320, 1e-9):
        integrals.expected_log_softmax(mean, 0.5, tol=tol, report=reports.append)
    assert [r.reached for r in reports] == [False, True]
    assert reports[0].error is not None
    assert float(reports[0].error.max()) < 1e-10


@pytest.mark.rel
def test_a_first_progress_bar_leaves_the_generator_alone() -> None:
    """Scorecard 24: libraries that draw numbers when they are imported do it unseen."""
    script = (
        "import random; before = random.getstate()\n"
        "from dubito._loop.progress import Progress\n"
        "from dubito.crowd import _render\n"
        "with Progress(1, True): pass\n"
        "assert random.getstate() == before"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
