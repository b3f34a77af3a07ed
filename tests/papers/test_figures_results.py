"""Pictures of made-up result lines: the right numbers at the right places, in every figure that reads results."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from dubito.errors import DubitoError
from dubito.papers import figures, item
from dubito.papers.figures import courses, histograms, skills
from dubito.papers.figures._points import curves, runs_of
from dubito.papers.results import Result
from dubito.papers.statistics import Summary

SEEDS = 2


def histogram(edges, centre, width):
    middle = (edges[1:] + edges[:-1]) / 2
    return [int(1000 * math.exp(-((m - centre) ** 2) / (2 * width**2))) for m in middle]


def confusion(config):
    if config.data == "labelme":
        return people()
    true = skills.group_of(config)
    mixed = 0.9 * true + 0.1 / true.shape[-1]
    return {"true": true.tolist(), "estimated": mixed.tolist()}


def people():
    """Nine annotators of eight classes, from sure to guessing; the last gave too few labels to be judged."""
    skill = np.linspace(0.95, 0.25, 9)
    true = [s * np.eye(8) + (1 - s) / 7 * (1 - np.eye(8)) for s in skill]
    estimated = [0.9 * m + 0.1 / 8 for m in true]
    labels = [*range(60, 20, -5), 4]
    return {
        "true": np.round(true, 4).tolist(),
        "estimated": np.round(estimated, 4).tolist(),
        "labels": labels,
    }


def features(config):
    rng = np.random.default_rng(config.seed)
    labels = np.arange(60) % 3
    wrong = rng.random(60) < config.rate
    centres = np.array([[0.0, 0.0], [4.0, 0.0], [2.0, 3.5]])
    true = (labels + wrong) % 3
    points = centres[true] + rng.normal(size=(60, 2)) * 0.5
    entries = {"points": points, "label": labels, "true": true, "mislabelled": wrong}
    return {name: values.tolist() for name, values in entries.items()}


def history(config):
    """What a run of this config might have recorded."""
    epochs = list(range(10, 101, 10))
    rises = [config.rate * (e / 100 if config.method == "het-full" else 0.1) for e in epochs]
    bins = np.linspace(-4, 4, 41)
    wrong = 0.0 if config.param("covariance") == "identity" else 1.5
    residuals = {"edges": bins.tolist()}
    for form, shift in (("identity", 0.0), ("learned", -0.7)):
        residuals[f"{form}_clean"] = histogram(bins, -1 + shift, 0.5)
        residuals[f"{form}_noisy"] = histogram(bins, wrong + shift, 0.6)
    edges = np.linspace(-0.1, 0.9, 41)
    at = {"ce": 0.85, "smooth": 0.5, "forward": 0.8, "backward": 0.7}.get(config.method, 0.5)
    parts = ("noisy_true", "noisy_given", "clean_true", "max")
    more = {"confusion": confusion(config)} if config.annotators or config.data == "labelme" else {}
    if "features" in config.record:
        more["features"] = {group: features(config) for group in ("0-1-2", "3-4-5")}
    if "separator" in config.record:
        more["separator"] = {
            "weight": [1.0, 3.0],
            "bias": 2.0 - config.weight_decay - (config.param("alpha") or 0),
        }
    return {
        **more,
        "epoch": epochs,
        "validation_accuracy": [0.6 * (1 - 0.5**i) for i in range(1, 11)],
        "validation_clean_accuracy": [0.9 - r for r in rises],
        "curves": {"epoch": epochs, "train_clean": [0.95] * 10, "train_noisy": [0.1 + r for r in rises]},
        "residuals": residuals,
        "probabilities": {"edges": edges.tolist(), **{p: histogram(edges, at, 0.15) for p in parts}},
    }


def metrics(config):
    jitter = 0.004 * config.seed
    alpha = float(config.param("alpha") or 0.0)
    tau = float(config.param("temperature") or 1.0)
    bump = {"smooth": 0.05, "forward": 0.02, "backward": -0.03}.get(config.method, 0.0)
    accuracy = 0.8 + bump + 0.05 * alpha * (2 if config.method == "backward" else 1) - jitter
    if config.annotators:
        best = {"trace": 0.03, "oracle": 0.05, "gem": -0.05}.get(config.method, -0.1)
        accuracy = min(0.99, max(0.1, config.skill * 1.6 + best)) - jitter
    if config.method == "ln":
        accuracy = 0.8 - 0.05 * abs(math.log10(tau)) - 0.03 * float(config.param("lam") or 1.0) - jitter
    hump = 0.0 if config.method == "ce" else 0.04 - 0.04 * math.log10(tau / 5) ** 2
    return {
        "test_accuracy": accuracy,
        "noisy_test_log_likelihood": -1.1 + hump - jitter,
        "noisy_test_accuracy": 0.7 + hump / 4 - jitter,
        "miou": 0.6 + hump,
        "cm_error_entry": max(0.0, 0.06 - 0.08 * config.skill) + jitter,
        "cm_error": 0.1,
    }


@cache
def lines(name: str, size: str = "small", data: str | None = None) -> tuple[Result, ...]:
    configs = item(name).make(size, data, None)
    return tuple(Result(c, metrics(c), history=history(c)) for c in configs if c.seed < SEEDS)


FROM_RESULTS = {
    "collier2020.figure1": "mnist",
    "collier2020.figure2": "camvid",
    "collier2020.figure6": "mnist",
    "englesson2023.figure4": None,
    "englesson2023.figure5": None,
    "englesson2023.figure6": None,
    "englesson2023.figure7": None,
    "englesson2023.table1-mnist": None,
    "lukasik2020.figure2": None,
    "lukasik2020.figure3": "cifar10",
    "lukasik2020.figure6": "cifar10",
    "lukasik2020.figure7": "cifar10",
    "lukasik2020.figure4": "cifar10",
    "lukasik2020.figure5": None,
    "lukasik2020.figure8": None,
    "tanno2019.figure2": None,
    "tanno2019.figure3": None,
    "tanno2019.figure4": None,
    "tanno2019.figure5": None,
    "tanno2019.figure6": None,
    "tanno2019.figure7": None,
    "tanno2019.figure11": None,
}


def axes(drawing):
    return [ax for ax in drawing.figure.axes if ax.lines or ax.patches or ax.collections]


@pytest.mark.parametrize("name", FROM_RESULTS)
def test_every_panel_of_every_figure_has_something_in_it(name):
    data = FROM_RESULTS[name]
    drawing = figures.picture(name, lines(name, data=data), size="small", data=data)
    panels = drawing.figure.axes
    assert all(ax.has_data() for ax in panels), name
    assert drawing.caption.endswith(".")
    legends = drawing.figure.legends or any(ax.get_legend() for ax in panels)
    assert legends or figures.FIGURES[name] in ("matrices", "projections", "people")


def test_every_figure_is_tested_or_drawn_without_results():
    same_code = {"lukasik2020.figure9", "tanno2019.figure9", "tanno2019.figure10", "englesson2023.figure3"}
    same_code |= {f"englesson2023.table1-{data}" for data in ("cifar10", "cifar100")}
    same_code |= {"collier2020.figure3", "collier2020.figure4"}  # tested with the runs on pixels
    assert set(figures.FIGURES) == set(FROM_RESULTS) | set(figures.DRAWINGS) | same_code


def test_a_figure_without_results_is_refused_with_the_command():
    with pytest.raises(ValueError, match=r"dubito paper run lukasik2020\.figure2"):
        figures.picture("lukasik2020.figure2", [])


def test_points_are_means_over_seeds():
    name = "lukasik2020.figure2"
    runs = runs_of(name, lines(name), "small", None)
    found = curves(
        runs, lambda c: (c.data, c.method), lambda c: c.param("alpha", 0.0) or 0.0, "test_accuracy"
    )
    point = found["cifar10", "smooth"][0.3]
    assert point.seeds == SEEDS
    assert point.mean == pytest.approx(100 * (0.8 + 0.05 + 0.05 * 0.3 - 0.002))
    drawing = figures.picture(name, lines(name), size="small")
    ax = drawing.figure.axes[1]
    drawn = {line.get_label(): line for line in ax.lines}["smoothing"]
    assert point.mean in drawn.get_ydata()


def test_the_papers_values_are_drawn_as_hollow_markers():
    name = "englesson2023.table1-mnist"
    drawing = figures.picture(name, lines(name), size="small")
    right = drawing.figure.axes[1]
    hollow = [line for line in right.lines if line.get_markerfacecolor() == "none"]
    assert any(96.54 in np.round(line.get_ydata(), 2) for line in hollow)
    assert len(hollow) == 9


def test_grey_zone_is_where_the_drawn_groups_are_not_dominant():
    runs = lines("tanno2019.figure3")
    share = skills.dominance(runs)
    assert share[0.1] == 0.0
    assert share[0.9] == 1.0
    assert all(0 <= value <= 1 for value in share.values())


def test_annotators_line_is_the_mean_diagonal():
    run = next(r for r in lines("tanno2019.figure3") if r.config.skill == 0.6)
    A = skills.group_of(run.config)
    assert float(A.diagonal(dim1=-2, dim2=-1).mean()) == pytest.approx(0.6, abs=0.02)


def test_held_out_accuracy_prefers_clean_labels_and_knows_both_layouts():
    run = lines("englesson2023.figure4")[0]
    name, xs, ys = courses.held_out(run)
    assert (name, xs[0], len(ys)) == ("validation_clean_accuracy", 10.0, 10)
    stacked = Result(run.config, {}, history={"every": 10, "test_accuracy": [0.1, 0.2]})
    assert courses.held_out(stacked) == ("test_accuracy", [10.0, 20.0], [0.1, 0.2])


def test_densities_integrate_to_one_and_leave_gaps():
    record = {"edges": [0.0, 0.5, 1.0, 2.0], "x": [1, 0, 3]}
    centres, density = histograms.densities(record, "x")
    assert centres == [0.25, 0.75, 1.5]
    assert math.isnan(density[1])
    assert density[0] * 0.5 + density[2] * 1.0 == pytest.approx(1.0)


def test_runs_without_the_analysis_are_refused():
    name = "englesson2023.figure6"
    bare = [Result(r.config, r.metrics) for r in lines(name)]
    with pytest.raises(ValueError, match="kept no residuals"):
        figures.picture(name, bare, size="small")


def test_seeds_in_words():
    from dubito.papers.figures._style import seeds_text

    one, three = Summary({0: 1.0}), Summary({0: 1.0, 1: 2.0, 2: 3.0})
    assert seeds_text([one]) == "one seed"
    assert seeds_text([three, three]) == "mean and standard deviation of 3 seeds"
    assert seeds_text([one, three]) == "mean and standard deviation of 1 to 3 seeds"


@pytest.mark.paper("tanno2019 fig. 7")
def test_skills_of_people_are_ranked_and_the_best_and_worst_are_shown():
    drawing = figures.picture("tanno2019.figure7", lines("tanno2019.figure7"), size="small")
    scatter, *matrices = drawing.figure.axes
    assert "rank correlation 1.00" in scatter.get_title()
    faint, dark = scatter.collections
    assert len(faint.get_offsets()) == 1
    x, y = np.asarray(dark.get_offsets()).T
    assert x[0] == pytest.approx(0.95, abs=1e-3)
    assert y == pytest.approx(0.9 * x + 0.1 / 8, abs=1e-3)
    titles = [
        ax.get_title().split("annotator ")[1].strip(")") for ax in matrices if "annotator" in ax.get_title()
    ]
    assert titles == ["1", "2", "7", "8"]  # the ninth is the worst, but hardly known
    assert "8 of 9 annotators" in drawing.caption
    methods = [t.get_text() for t in drawing.figure.axes[-2].get_yticklabels()]
    assert len(methods) == 8


def test_other_data_is_said_in_the_caption():
    drawing = figures.picture(
        "lukasik2020.figure3", lines("lukasik2020.figure3", data="cifar10"), size="small", data="cifar10"
    )
    assert drawing.caption.endswith("No value of the paper: other data.")
    own = figures.picture("lukasik2020.figure3", lines("lukasik2020.figure3"), size="small")
    assert "No value" not in own.caption
    with pytest.raises(DubitoError, match="a drawing"):
        figures.picture("lukasik2020.figure1", data="mnist")
    with pytest.raises(DubitoError, match="no protocol"):
        item("lukasik2020.figure5").make("smoke", "mnist", None)


def test_runs_without_regions_are_refused():
    with pytest.raises(DubitoError, match="kept no regions"):
        figures.picture("englesson2023.figure3", lines("englesson2023.figure3"), size="small")


def test_separators_are_those_of_the_lines():
    drawing = figures.picture("lukasik2020.figure5", lines("lukasik2020.figure5"), size="small")
    smoothed, penalised = ([t.get_text() for t in ax.get_legend().get_texts()] for ax in drawing.figure.axes)
    assert smoothed[:3] == [
        "clean labels, crosses at -0.50",
        "alpha 0, crosses at -0.50",
        "alpha 0.1, crosses at -0.47",
    ]
    assert penalised[-1] == "decay 1, crosses at -0.25"
    assert (len(smoothed), len(penalised)) == (6, 6)
    circles, triangles, crosses = drawing.figure.axes[0].lines[:3]
    assert max(circles.get_xdata()) < 0 < min(triangles.get_xdata())
    assert len(crosses.get_xdata()) > 0
    assert max(crosses.get_xdata()) < 0  # negatives that are called positive
    line = next(one for one in drawing.figure.axes[1].lines if one.get_label() == penalised[-1])
    assert list(line.get_ydata()) == pytest.approx([(3 - 1) / 3, -(3 + 1) / 3])
