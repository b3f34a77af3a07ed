"""Accuracy or log-likelihood along a parameter: temperature, alpha, lambda. Means over seeds with bands.

Collier et al. 2020 figures 1, 2 and 6; Englesson et al. 2023 figure 5; Lukasik et al. 2020 figures 2 and 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..configs import Config
from ..results import Result
from ..statistics import Summary
from ._points import all_summaries, curves, runs_of
from ._style import (
    LOOKS,
    Drawing,
    band,
    curve,
    data_title,
    headings,
    legend,
    look,
    noise_title,
    seeds_text,
    sheet,
    title_of,
)

METRIC_WORDS = {
    "noisy_log_likelihood": "log-likelihood, noisy test labels",
    "noisy_accuracy": "accuracy, noisy test labels",
    "miou": "mean IoU, validation, per cent",
    "test_accuracy": "accuracy, clean test labels, per cent",
}
COLLIER = {
    "collier2020.figure1": "noisy_log_likelihood",
    "collier2020.figure2": "miou",
    "collier2020.figure6": "noisy_accuracy",
}


def draw(name: str, results: Sequence[Result], size: str, data: str | None) -> Drawing:
    """The figure of that name from its result lines."""
    runs = runs_of(name, results, size, data)
    if name in COLLIER:
        return _temperature(runs, COLLIER[name])
    return {"figure5": _sensitivity, "figure2": _alpha, "figure6": _teacher}[name.partition(".")[2]](runs)


def _number(config: Config, name: str) -> float:
    return float(config.param(name, 0.0) or 0.0)


def _plural(samples: int) -> str:
    return "sample" if samples == 1 else "samples"


def _datasets(runs: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(r.config.data for r in runs))


def _baseline(ax: Any, points: dict[float, Summary], label: str, interval: bool = False) -> None:
    """A horizontal line with a band: the one value of a method that has no such parameter."""
    summary = next(iter(points.values()))
    how = look("ce")
    ax.axhline(summary.mean, color=how.colour, linestyle=how.dash, linewidth=1.4, label=label)
    if summary.spread:
        low, high = band(summary, interval)
        ax.axhspan(low, high, color=how.colour, alpha=0.08, linewidth=0)


def _temperature(runs: Sequence[Result], metric: str) -> Drawing:
    """One panel per data set, one curve per number of training samples, plain training as a line."""
    names, interval = _datasets(runs), metric == "miou"  # the paper's band there is a bootstrapped interval
    figure, axes = sheet(1, len(names), 1.6 + 3.4 * len(names), 3.9)
    shown: list[Summary] = []
    for ax, data in zip(axes.flat, names):
        here = [r for r in runs if r.config.data == data]
        plain = curves(
            [r for r in here if r.config.method == "ce"], lambda c: c.method, lambda c: 0.0, metric
        )
        swept = [r for r in here if r.config.method != "ce" and _number(r.config, "temperature") > 0]
        found = curves(swept, lambda c: c.samples, lambda c: _number(c, "temperature"), metric)
        for place, samples in enumerate(sorted(found)):
            label = f"{samples} {_plural(samples)}" if samples else "exact integral"
            curve(ax, found[samples], LOOKS[place], label, interval=interval)
        if plain:
            _baseline(ax, plain["ce"], "plain training", interval)
        shown += all_summaries(found) + all_summaries(plain)
        ax.set_xscale("log")
        ax.set_xlabel("temperature")
        legend(ax, fontsize=7)
    axes[0, 0].set_ylabel(METRIC_WORDS[metric])
    headings(axes, [data_title(n) for n in names])
    bands = seeds_text(shown, "bootstrapped 95 % interval" if interval else "standard deviation")
    return Drawing(figure, f"Against the softmax temperature; {bands}. Samples: in training.")


def _sensitivity(runs: Sequence[Result]) -> Drawing:
    """Test accuracy of LN over temperature, one curve per lambda."""
    found = curves(runs, lambda c: _number(c, "lam"), lambda c: _number(c, "temperature"), "test_accuracy")
    figure, axes = sheet(1, 1, 5.8, 4.0)
    ax = axes[0, 0]
    for place, lam in enumerate(sorted(found)):
        curve(ax, found[lam], LOOKS[place % len(LOOKS)], f"lambda = {lam:g}")
    ax.set_xscale("log")
    ax.set_xlabel("temperature")
    ax.set_ylabel(METRIC_WORDS["test_accuracy"])
    legend(ax)
    config = runs[0].config
    where = f"{data_title(config.data)}, {noise_title(config)}"
    return Drawing(figure, f"LN on {where}; {seeds_text(all_summaries(found))}.")


def _alpha(runs: Sequence[Result]) -> Drawing:
    """Smoothing, forward and backward correction along alpha; plain training as a line."""
    names = _datasets(runs)
    figure, axes = sheet(1, len(names), 1.6 + 3.9 * len(names), 4.0)
    shown: list[Summary] = []
    for ax, data in zip(axes.flat, names):
        here = [r for r in runs if r.config.data == data]
        found = curves(here, lambda c: c.method, lambda c: _number(c, "alpha"), "test_accuracy")
        shown += all_summaries(found)
        if "ce" in found:
            _baseline(ax, found.pop("ce"), title_of("ce"))
        for place, method in enumerate(found):
            curve(ax, found[method], look(method, place), title_of(method))
        ax.axvline(here[0].config.rate, color="#bbbbbb", linewidth=0.8)
        ax.set_xlabel("alpha")
        legend(ax)
    axes[0, 0].set_ylabel(METRIC_WORDS["test_accuracy"])
    headings(axes, [data_title(n) for n in names])
    return Drawing(figure, f"{seeds_text(shown).capitalize()}. The thin line is the rate of wrong labels.")


def _teacher(runs: Sequence[Result]) -> Drawing:
    """Students' accuracy against the smoothing of their teachers."""
    found = curves(runs, lambda c: c.data, lambda c: _number(c, "alpha"), "test_accuracy")
    figure, axes = sheet(1, 1, 5.6, 3.8)
    ax = axes[0, 0]
    for place, data in enumerate(found):
        curve(ax, found[data], LOOKS[place], data_title(data))
        at_zero = found[data].get(0.0)
        if at_zero is not None:
            ax.axhline(at_zero.mean, color="#999999", linewidth=0.8)
    ax.set_xlabel("alpha of the teacher")
    ax.set_ylabel("student's accuracy, clean test labels, per cent")
    legend(ax)
    return Drawing(
        figure,
        f"{seeds_text(all_summaries(found)).capitalize()}. The thin line is a teacher without smoothing.",
    )
