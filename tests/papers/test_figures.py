"""Pictures that need no results: what they compute, how they are saved, and that nothing global changes."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import torch

from dubito import losses, targets
from dubito.papers import figures
from dubito.papers.figures import _style, hidden_causes, logistic_normal, regions, smearing


@pytest.mark.parametrize("name", figures.DRAWINGS)
def test_drawings_are_written_as_svg_and_png(name, tmp_path):
    svg, png = figures.draw(name, [], tmp_path, size="smoke")
    assert (svg.name, png.name) == (f"{name}.svg", f"{name}.png")
    assert ET.parse(svg).getroot().tag.endswith("svg")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert png.stat().st_size > 10_000


def test_the_same_picture_is_the_same_file_and_no_setting_is_left_changed(tmp_path):
    import matplotlib

    before, state = dict(matplotlib.rcParams), torch.random.get_rng_state()
    numpy_state = np.random.get_state()[1].copy()
    first = figures.draw("tanno2019.figure8", [], tmp_path / "a")
    second = figures.draw("tanno2019.figure8", [], tmp_path / "b")
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]
    assert dict(matplotlib.rcParams) == before
    assert torch.equal(torch.random.get_rng_state(), state)
    assert (np.random.get_state()[1] == numpy_state).all()


def test_unknown_names_and_sizes_are_refused():
    with pytest.raises(ValueError, match=r"lukasik2020\.figure1"):
        figures.picture("lukasik2020.figure01")
    with pytest.raises(ValueError, match="unknown size"):
        figures.picture("lukasik2020.figure1", size="huge")


def test_curves_differ_in_dash_and_marker_and_colour():
    for looks in (
        _style.LOOKS,
        [_style.METHOD_LOOKS[m] for m in ("ce", "ln", "gce", "nan", "het", "het-tau")],
    ):
        for attribute in ("colour", "dash", "marker"):
            assert len({str(getattr(look, attribute)) for look in looks}) == len(looks)


@pytest.mark.paper("englesson2023 eq. 25", "englesson2023 eq. 26")
def test_target_logits_are_the_inverse_of_the_smoothed_labels():
    t = 0.1
    p = logistic_normal.centred_softmax(logistic_normal.target_logits(t))
    assert p == pytest.approx((1 - t) * np.eye(3) + t / 3)


@pytest.mark.paper("englesson2023 eq. 7", "englesson2023 eq. 9")
def test_the_drawn_ellipse_points_at_the_given_label_and_reaches_it():
    residual = np.array([-2.0, 3.5])
    root = logistic_normal.root_covariance(residual)
    sigma = root @ root.T
    assert residual @ np.linalg.solve(sigma, residual) == pytest.approx(1.0)
    values, vectors = np.linalg.eigh(sigma)
    assert abs(vectors[:, -1] @ residual) == pytest.approx(np.linalg.norm(residual))
    assert values[-1] == pytest.approx(residual @ residual)
    for radius, points in zip(logistic_normal.RADII, logistic_normal.ellipses(np.ones(2), root)):
        away = points - 1
        distance = np.einsum("ni,ni->n", away, np.linalg.solve(sigma, away.T).T)
        assert distance == pytest.approx(radius**2)


@pytest.mark.paper("englesson2023 eq. 21", "englesson2023 eq. 23")
@pytest.mark.parametrize("lam", [0.5, 2.0])
def test_attenuation_is_the_value_at_the_best_attainable_variance(lam):
    c = np.linspace(0, 3, 30_001)
    s2 = (c**2 + lam) ** 2
    for r in (0.1, 0.4, 0.6, 1.9, 2.1, 4.0):
        best = s2[np.argmin(r**2 / s2 + np.log(s2))]
        assert logistic_normal.attenuated(np.array([r]), lam)[0] == pytest.approx(r**2 / best, abs=2e-3)


@pytest.mark.paper("lukasik2020 eq. 1", "lukasik2020 eq. 4", "lukasik2020 eq. 5")
def test_the_drawn_losses_are_the_librarys():
    alpha, v = 0.4, torch.linspace(-5, 5, 11, dtype=torch.float64)
    logits = torch.stack([torch.zeros_like(v), v], -1)
    y = torch.ones(11, dtype=torch.int64)
    T = torch.full((2, 2), alpha / 2, dtype=torch.float64) + (1 - alpha) * torch.eye(2, dtype=torch.float64)
    expected = {
        "standard": losses.nll(logits, y, reduction="none"),
        "smoothing": losses.nll(logits, targets.smooth(y, 2, alpha, dtype=v.dtype), reduction="none"),
        "backward": losses.nll(
            logits, targets.smear(y, targets.backward_matrix(T)), reduction="none"
        ),
        "forward": -torch.log(torch.softmax(logits, -1) @ T)[:, 1],
    }  # fmt: skip
    for name, loss in smearing.losses(alpha).items():
        assert loss(v.numpy()) == pytest.approx(expected[name].numpy()), name


def test_hidden_inputs_make_the_noise_that_is_told():
    task, seen, missing = hidden_causes.example(20_000)
    told, found, error = hidden_causes.observed_noise(task)
    assert len(told) == 10
    assert all(abs(a - b) < 4 * e for a, b, e in zip(told, found, error))
    values = task.features[:, 0]
    assert float(missing[:, 0].double().mean()) == pytest.approx(hidden_causes.MISSING, abs=0.02)
    assert float(values[missing[:, 0]].mean()) > float(values[~missing[:, 0]].mean()) + 0.5
    assert bool((seen[:, 0][missing[:, 0]] == 0).all())


def test_ln_leaves_wrong_labels_unfitted_where_plain_training_follows_them():
    spot = regions.Reduced(width=96, steps=500, points=300)
    fits = {}
    for method in regions.METHODS:
        found = regions.trained("two-moons", method, spot)
        p, points = np.asarray(found["p"]), np.asarray(found["points"])
        across = np.abs(np.asarray(found["x"])[None] - points[:, :1]).argmin(1)
        up = np.abs(np.asarray(found["y"])[None] - points[:, 1:]).argmin(1)
        predicted, wrong = p[up, across] > 0.5, np.asarray(found["wrong"])
        fits[method] = float((predicted == np.asarray(found["label"]))[wrong].mean())
    assert fits["ln"] < fits["ce"] - 0.1


def test_decision_regions_say_that_they_are_reduced():
    drawing = figures.picture("englesson2023.figure3", size="smoke")
    assert "Reduced: two hidden layers of 48" in drawing.caption
    assert len([ax for ax in drawing.figure.axes if ax.lines]) == 4
    with pytest.raises(ValueError, match="no results"):
        figures.picture("englesson2023.figure3")


def test_bands_are_one_standard_deviation_wide():
    from dubito.papers.statistics import Summary

    _, axes = _style.sheet(1, 1, 3, 3)
    _style.curve(
        axes[0, 0], {1.0: Summary({0: 1.0, 1: 3.0}), 2.0: Summary({0: 5.0, 1: 5.0})}, _style.LOOKS[0], "x"
    )
    (band,) = axes[0, 0].collections
    corners = band.get_paths()[0].vertices
    assert corners[:, 1].min() == pytest.approx(2 - math.sqrt(2))
    assert corners[:, 1].max() == pytest.approx(5.0)
