"""Segmentation runs of Collier et al. 2020: configs, a short training on shapes, figures 3 and 4."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from dubito import DubitoError
from dubito.papers import figures, item, pixels, prepare, runner
from dubito.papers.collier_pixels import TAU, configs
from dubito.papers.results import Result
from dubito.segmentation import SegmentationModel
from dubito.segmentation.shapes import shapes


def test_protocol_of_the_paper():
    made = item("collier2020.table2").make("paper", None, None)
    assert len(made) == 2 * 3 * 25
    assert {c.param("temperature") for c in made if c.method == "het-tau"} == {TAU} == {0.05}
    assert {(c.network, c.steps, c.lr, c.batch) for c in made} == {("smp:DeepLabV3Plus", 30_000, 1e-3, 16)}
    assert {dict(c.network_options)["output_stride"] for c in made} == {16}
    assert {(c.samples, c.eval_samples) for c in made if c.method != "ce"} == {(1000, 1000)}
    small = item("collier2020.table2").make("small", "voc", None)
    assert {(c.steps, c.seed) for c in small} == {(3_000, s) for s in range(3)}
    assert {c.steps for c in item("collier2020.table2").make("smoke", "voc", None)} == {3}


def test_the_curve_covers_temperatures_from_a_hundredth_to_ten():
    made = item("collier2020.figure2").make("paper", "camvid", None)
    taus = {c.param("temperature") for c in made if c.method == "het-tau"}
    assert min(taus) == 0.01
    assert max(taus) == 10.0
    assert {0.05, 1.0} < taus
    with pytest.raises(DubitoError, match="no protocol"):
        list(configs("camvidd"))


@pytest.fixture(scope="module")
def trained():
    """Three short runs on shapes, scored and pictured."""
    made = item("collier2020.figure3").make("smoke", "shapes", None)
    made = [dataclasses.replace(c, train=8, validation=2, test=6, steps=2, batch=4) for c in made]
    return [runner.run(c, device="cpu") for c in made]


def test_a_run_is_scored_by_mean_iou(trained):
    for result in trained:
        assert 0 < result.metrics["miou"] < 1
        assert 0 < result.metrics["miou_test"] < 1
        assert result.metrics["test_log_likelihood"] < 0
        assert len(result.history["pixels"]["cases"]) == 6


def test_scores_are_those_of_the_whole_set():
    config = dataclasses.replace(next(iter(configs("shapes"))), train=8, validation=5, test=3)
    parts = prepare.parts(config)
    model = prepare.model(config, (3, 48, 64), 4).eval()
    assert isinstance(model, SegmentationModel)
    found = pixels.judge(model, parts.valid)
    with torch.no_grad():
        log_p = model(parts.valid.batch(torch.arange(5)))
    y, guess = parts.valid.labels.numpy(), log_p.argmax(-1).numpy()
    ious = [((y == k) & (guess == k)).sum() / max(1, ((y == k) | (guess == k)).sum()) for k in range(4)]
    seen = [((y == k) | (guess == k)).any() for k in range(4)]
    assert found["mean_iou"] == pytest.approx(np.mean([v for v, s in zip(ious, seen) if s]))
    expected = log_p.double().numpy()[(*np.indices(y.shape), y)].mean()
    assert found["log_likelihood"] == pytest.approx(expected, rel=1e-5)


def test_border_noise_changes_training_masks_alone():
    config = next(iter(configs("shapes")))
    noisy = dataclasses.replace(config, noise="border", rate=2.0, train=10)
    parts = prepare.parts(noisy)
    wrong = (parts.train.labels != parts.train.clean).double().mean()
    assert 0.01 < wrong < 0.3
    assert parts.valid.clean is None


def as_lines(trained):
    """The results as those of the item's own smoke runs."""
    made = item("collier2020.figure3").make("smoke", "shapes", None)
    return [Result(c, r.metrics, history=r.history) for c, r in zip(made, trained)]


@pytest.mark.parametrize(("number", "columns"), [(3, 5), (4, 6)])
def test_pictures_from_result_lines(trained, number, columns):
    drawing = figures.picture(f"collier2020.figure{number}", as_lines(trained), size="smoke", data="shapes")
    shown = [ax for ax in drawing.figure.axes if ax.images]
    assert len(shown) == (4 * 5 if number == 3 else 8 * 6)
    titles = [ax.get_title() for ax in shown[:columns]]
    assert titles[:2] == (["input", "truth"] if number == 3 else ["input", "segmentation"])
    assert "2 best and the 2 worst" in drawing.caption
    assert "No value of the paper" in drawing.caption


def test_truth_and_prediction_are_drawn_as_they_are(trained):
    drawing = figures.picture("collier2020.figure3", as_lines(trained), size="smoke", data="shapes")
    from dubito.segmentation import pictures

    test = shapes(60, purpose="test")
    drawn = next(ax for ax in drawing.figure.axes if ax.get_title() == "truth").images[0].get_array()
    truths = [pictures.coloured(test.labels[i], 4) for i in range(6)]
    assert any(np.array_equal(drawn, t) for t in truths)


def test_runs_without_pictures_are_refused(trained):
    bare = [Result(r.config, r.metrics) for r in as_lines(trained)]
    with pytest.raises(DubitoError, match="kept no pictures"):
        figures.picture("collier2020.figure4", bare, size="smoke", data="shapes")
    plain = [r for r in as_lines(trained) if r.config.method == "ce"]
    with pytest.raises(DubitoError, match="has a variance"):
        figures.picture("collier2020.figure4", plain, size="smoke", data="shapes")
