"""Which method for which noise: ranking, sentences and pictures from made-up results."""

from __future__ import annotations

import dataclasses
import importlib
import json
from pathlib import Path

import pytest

from dubito.papers import item
from dubito.papers.results import Result
from test_results_pages import made

TOOLS = Path(__file__).resolve().parents[1] / "tools"
pytestmark = pytest.mark.skipif(not (TOOLS / "results_which.py").is_file(), reason="the tools are not here")


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module


def test_ranking_first_level_in_doubt_below(tool):
    results = made(ce=80.0, ln=96.5, gce=96.5, nan=92.0)
    moved = []
    for r in results:
        value, seed = r.metrics["test_accuracy"], r.config.seed
        if r.config.method == "gce":
            value += (-0.004, 0.0, 0.002)[seed]
        if r.config.method == "nan":
            value += (-0.08, 0.05, 0.03)[seed]
        moved.append(dataclasses.replace(r, metrics={**r.metrics, "test_accuracy": value}))
    (place,) = tool("results_groups").places(moved)
    standings = {m.name: m.standing for m in place.methods}
    assert standings == {"ln": "first", "gce": "level", "nan": "in doubt", "ce": "below"}
    assert place.plain.name == "ce"
    assert place.picked.name == "gce"  # noisy validation cannot tell it from ln, so the test must not choose
    data = json.loads(tool("results_which_words").which_method_data({"englesson2023": moved}))
    assert [m["method"] for m in data[0]["methods"]] == [m.name for m in place.methods]


def test_the_summary_says_who_is_first_and_where_seeds_are_too_few(tool):
    page = tool("results_which").which_method
    three = made(ce=80.0, ln=96.5)
    first = "- MNIST, asymmetric noise, 40 %: ln is first; +16.50 points over plain training"
    assert f"{first} (16.50 to 16.50).\n" in page({"englesson2023": three})
    one = [r for r in three if r.config.seed == 0]
    assert f"{first}. Too few seeds to be sure.\n" in page({"englesson2023": one})
    assert "ce (plain training) is first; that is plain training." in page(
        {"englesson2023": made(ce=80.0, ln=70.0)}
    )


def at_rates(*rates: float, **accuracy: tuple[float, ...]) -> list[Result]:
    """The results of `made` at several rates, with an accuracy for each."""
    found = []
    for place, rate in enumerate(rates):
        for r in made(**{name: values[place] for name, values in accuracy.items()}):
            found.append(dataclasses.replace(r, config=dataclasses.replace(r.config, rate=rate)))
    return found


def test_the_summary_joins_the_rates_of_a_kind_of_noise(tool):
    results = at_rates(0.2, 0.3, 0.4, ce=(90.0, 85.0, 80.0), ln=(95.0, 96.0, 97.0), gce=(99.0, 96.0, 81.0))
    text = tool("results_which").which_method({"englesson2023": results})
    assert "- MNIST, asymmetric, 3 rates: gce is first at 20 and 30 %, ln is first at 30 and 40 %; " in text
    assert "the first is +9.0 to +17.0 points over plain training." in text


def test_the_summary_says_how_well_noisy_labels_choose(tool):
    """Validation accuracy is half the test accuracy in `made`; turned round at one of the places it is misled."""
    results = at_rates(0.2, 0.4, ce=(90.0, 80.0), ln=(95.0, 97.0))
    text = tool("results_which").which_method({"englesson2023": results})
    assert "with one label per item at 2 of 2 places (mean loss 0.00 points, at most 0.00)." in text
    misled = [
        dataclasses.replace(r, metrics={**r.metrics, "validation_accuracy": -r.metrics["test_accuracy"]})
        if r.config.rate == 0.2 else r
        for r in results
    ]  # fmt: skip
    text = tool("results_which").which_method({"englesson2023": misled})
    assert "with one label per item at 1 of 2 places (mean loss 2.50 points, at most 5.00)." in text
    silent = [dataclasses.replace(r, metrics={"test_accuracy": r.metrics["test_accuracy"]}) for r in results]
    assert "was not recorded" in tool("results_which").which_method({"englesson2023": silent})


def test_the_picture_of_gains_shows_every_method_at_every_place(tool):
    results = at_rates(0.2, 0.4, ce=(90.0, 80.0), ln=(95.0, 97.0), gce=(99.0, 79.0))
    drawing = tool("results_which_picture").picture(tool("results_groups").places(results), False)
    (ax,) = drawing.figure.axes
    assert [t.get_text() for t in ax.get_yticklabels()] == ["ln", "gce"]  # by mean gain
    assert [t.get_text() for t in ax.get_xticklabels()] == [
        "MNIST: asymmetric 20 %",
        "MNIST: asymmetric 40 %",
    ]
    cells = {(t.get_text(), t.get_position(), t.get_fontweight()) for t in ax.texts}
    assert cells == {
        ("+5.0", (0, 0), "normal"), ("+9.0", (0, 1), "bold"),
        ("+17.0", (1, 0), "bold"), ("-1.0", (1, 1), "normal"),
    }  # fmt: skip
    assert tool("results_which_picture").picture(tool("results_groups").places(results), True) is None


def test_methods_in_other_arithmetic_are_named_and_equal_means_are_first_together(tool):
    made = item("englesson2023.table1-mnist").make("paper", None, None)
    place = [c for c in made if (c.seed, c.noise, c.rate) == (0, "resample", 0.4)]
    kinds = {"ce": "bfloat16", "gce": "bfloat16", "ln": "float32"}
    runs = [
        Result(c, {"test_accuracy": 0.9}, hardware=f"H200, convolutions in {kinds[c.method]}")
        for c in place
        if c.method in kinds
    ]
    words = tool("results_words")
    assert words.arithmetic(runs) == "float32 for ln and bfloat16 for the other methods"
    assert words.arithmetic(runs[:1]) == "bfloat16"
    (place,) = tool("results_groups").places(runs)
    assert {m.standing for m in place.methods} == {"first"}
