"""Hyper-parameters that a search chose, as the papers choose them."""

from __future__ import annotations

from test_render import ITEM, NAME, fake

from dubito.papers import collier2020, item
from dubito.papers.choose import choose, searched
from dubito.papers.collect import collect
from dubito.papers.results import Result, read, write_result
from dubito.papers.tables import chosen


def test_own_search_replaces_the_printed_choice_only_when_finished(tmp_path):
    search = [c for c in ITEM.search("paper", None, None) if c.method == "gce" and c.rate == 0.4]
    results = [fake(c, 0.5 + (0.3 if c.param("q") == 0.1 else 0.1 * c.param("q"))) for c in search]
    for result in results:
        write_result(result, tmp_path)
    found = searched(ITEM, read(tmp_path))
    assert {params["q"] for params in found.values()} == {0.1}
    assert len(found) == 2  # symmetric and asymmetric noise of 40 per cent
    assert searched(ITEM, results[1:]) != found
    assert len(searched(ITEM, results[1:])) == 1
    table = collect(NAME, ITEM, results, own_search=True)
    cells = {(e.row[0], *e.column): e for e in table.entries}
    assert dict(cells["gce", "asymmetric", "0.4"].params) == {"q": 0.1}
    printed = chosen("englesson2023.table5", dataset="MNIST", noise="asymmetric", rate=0.3, method="gce")
    assert dict(cells["gce", "asymmetric", "0.3"].params) == printed
    assert searched(item("lukasik2020.table7"), results) == {}


def test_choice_is_the_mean_over_seeds_of_the_stated_criterion():
    made = [c for c in collier2020.TABLES["table1"].search("paper", "mnist", None) if c.method == "het-tau"]
    good = {1.0: (-1.0, -1.2), 5.0: (-0.9, -1.4)}
    results = [
        Result(
            c, {"validation_log_likelihood": good[c.param("temperature")][c.seed], "validation_accuracy": 0.1}
        )
        for c in made
        if c.param("temperature") in good and c.seed < 2
    ]
    assert [p["temperature"] for p in choose(results).values()] == [1.0]
    assert choose([Result(made[0], {"validation_accuracy": 0.5})]) == {}


def test_points_of_a_search_are_compared_on_the_seeds_that_all_have():
    made = [c for c in collier2020.TABLES["table1"].search("paper", "mnist", None) if c.method == "het-tau"]
    by_point = {(c.param("temperature"), c.seed): c for c in made}

    def chosen_from(values):
        rows = [Result(by_point[key], {"validation_log_likelihood": v}) for key, v in values.items()]
        return [p["temperature"] for p in choose(rows).values()]

    # A second seed that one point alone has would decide.
    assert chosen_from({(1.0, 0): -0.70, (1.0, 1): -0.80, (5.0, 0): -0.72}) == [1.0]
    assert chosen_from({(1.0, 0): float("nan"), (5.0, 0): -0.7}) == [5.0]
    assert chosen_from({(1.0, 0): -0.7, (5.0, 1): -0.7}) == []
