"""Statements of the papers: borne out by the printed tables, and judged from results with their doubt."""

from __future__ import annotations

from itertools import product

import pytest

from dubito.errors import DubitoError
from dubito.papers import PAPERS, item, items
from dubito.papers.claims import FAILS, HOLDS, UNKNOWN, Claim, check, check_printed, claims, report
from dubito.papers.claims import _FromResults as FromResults
from dubito.papers.claims._doubts import DOUBTS
from dubito.papers.claims._parts import (
    Above,
    AnyOf,
    Beyond,
    Computed,
    LessSpread,
    Optimum,
    Ranked,
    Starred,
    Wider,
    Within,
    at,
    judge,
    significant,
)  # fmt: skip
from dubito.papers.claims._units import confusion_formulas, logistic_normal_formulas, smearing_formulas
from dubito.papers.results import Result
from dubito.papers.statistics import Summary
from dubito.papers.tables import METRICS, paper_value, table

COUNTS = {"collier2020": 10, "englesson2023": 11, "lukasik2020": 12, "tanno2019": 12}


@pytest.mark.parametrize("paper", PAPERS)
def test_the_printed_tables_bear_out_every_statement(paper):
    """Our reading of each statement, put to the numbers that the paper prints."""
    for finding in check_printed(paper):
        assert (finding.outcome, finding.fails, finding.unknown) == (HOLDS, 0, 0), finding.claim.text


@pytest.mark.parametrize("paper", PAPERS)
def test_every_statement_is_listed_and_its_cells_exist(paper):
    listed = claims(paper)
    assert {c.number for c in listed} == set(range(1, COUNTS[paper] + 1))
    empty = check(paper, [])
    assert all(f.outcome == UNKNOWN for f in empty if f.holds == 0)
    source = FromResults(paper, [], "paper")
    for claim in listed:
        for cell in _cells(claim):
            assert source.configs(cell), f"{paper} {claim.number}: no run for {cell}"
            assert cell.metric in METRICS


def test_where_dominance_holds_no_skill_of_the_sweep_is_left_out():
    """From .3 on, where groups are drawn until their mean matrix is dominant, up to .7."""
    first = next(c for c in claims("tanno2019") if c.text.startswith("Trace, GEM and MBEM beat the mean"))
    skills = {dict(p.cell.fields)["skill"]: p.bound for p in first.parts if isinstance(p, Beyond)}
    dominant = {c.skill for c in items("tanno2019")["figure3"].make("paper", None, None) if c.dominant}
    assert skills == {s: pytest.approx(100 * s) for s in dominant if s <= 0.7}
    assert min(dominant) == 0.3


def _cells(part):
    if isinstance(part, Claim | AnyOf):
        return [cell for p in part.parts for cell in _cells(p)]
    found = []
    for value in vars(part).values():
        if hasattr(value, "fields"):
            found.append(value)
        elif isinstance(value, tuple):
            found += [v for v in value if hasattr(v, "fields")]
    return found


IN_DOUBT = {
    ("lukasik2020", 9, "table5"): (12, "do not use as a target"),
    ("tanno2019", 2, "table1b"): (2, "gem accuracy contradicts"),
    ("tanno2019", 4, "table1b"): (1, "gem accuracy contradicts"),
    ("tanno2019", 5, "table1b"): (1, "gem accuracy contradicts"),
}


def test_statements_on_printed_numbers_in_doubt():
    """How many comparisons of each, and the note of the printed table that says so."""
    found = {
        (paper, claim.number, doubt.cell.item): count
        for paper, several in DOUBTS.items()
        for claim, doubt in product(claims(paper), several)
        if claim.printed and (count := sum(doubt.concerns(part) for part in claim.parts))
    }
    assert found == {place: count for place, (count, _) in IN_DOUBT.items()}
    for (paper, _, table_id), (_, words) in IN_DOUBT.items():
        assert any(words in note for note in table(f"{paper}.{table_id}")["notes"])


def test_numbers_in_doubt_are_what_is_said_of_them():
    for network in ("ResNet-32", "ResNet-56"):
        place = {"metric": "test_accuracy_percent", "dataset": "CIFAR-10", "network": network}
        distilled = paper_value("lukasik2020.table5", method="vanilla_distillation", **place)
        assert distilled.value == paper_value("lukasik2020.table7", method="ce", **place).value
    place = {"metric": "accuracy_percent", "dataset": "CIFAR-10", "labels": "one_per_image"}
    gem, plain = (paper_value("tanno2019.table1b", method=m, **place) for m in ("gem", "vanilla"))
    assert gem.value > plain.value + 3 * max(gem.spread, plain.spread)


def test_a_doubt_is_seen_inside_a_comparison():
    doubt = DOUBTS["tanno2019"][0]
    gem, plain = (at("table1b", "crowd_accuracy", method=m, seed=0) for m in ("gem", "ce"))
    assert doubt.concerns(AnyOf((Above(plain, plain), Ranked(plain, (plain, gem), 1))))
    assert not doubt.concerns(Above(plain, at("table1a", "crowd_accuracy", method="gem")))
    assert not doubt.concerns(Beyond(at("table1b", "cm_error", method="gem"), 1.0))
    assert not doubt.concerns(Computed(confusion_formulas))


def results(item_id: str, metric: str, level, size: str = "paper") -> list[Result]:
    """One fake result per config for which `level(config)` is a number."""
    made = []
    entry = item(item_id)
    for config in {*entry.make(size, None, None), *(entry.search(size, None, None) if entry.search else ())}:
        value = level(config)
        if value is not None:
            made.append(Result(config, {metric: value}))
    return made


class Fixed:
    """Cells by name: at("a", "") has the values given here."""

    exact = False

    def __init__(self, **cells):
        self.cells = cells

    def values(self, cell):
        found = self.cells.get(cell.item)
        return None if found is None else dict(enumerate(found))

    def spread(self, cell):
        found = self.cells.get(cell.item)
        return None if found is None else max(found) - min(found)

    def differs(self, cell, reference):
        return {"x": True, "y": False}.get(cell.item)

    def curve(self, cell, over):
        return {float(name[1:]): dict(enumerate(v)) for name, v in self.cells.items() if name[0] == "_"}


A, B, C, D = (at(name, "") for name in "abcd")


@pytest.mark.parametrize(
    ("a", "b", "outcome"),
    [
        ((3.0, 3.1, 2.9), (1.0, 1.1, 0.9), HOLDS),
        ((1.0, 1.1, 0.9), (3.0, 3.1, 2.9), FAILS),
        ((1.0, 3.0, 2.0), (2.0, 1.0, 3.0), UNKNOWN),  # within Student's interval
        ((3.0, 3.1), (1.0, 1.1), UNKNOWN),  # two seeds
        ((3.0, 3.1, float("nan")), (1.0, 1.1, 0.9), UNKNOWN),
        (None, (1.0, 1.1, 0.9), UNKNOWN),
    ],
)
def test_above(a, b, outcome):
    source = Fixed(b=b) if a is None else Fixed(a=a, b=b)
    assert Above(A, B).decide(source) == outcome


def test_margins_differences_and_bounds():
    source = Fixed(a=(5.0, 5.1, 4.9), b=(1.0, 1.1, 0.9), c=(3.0, 3.1, 2.9), d=(2.5, 2.6, 2.4))
    assert Above(A, B, margin=3.5).decide(source) == HOLDS
    assert Above(A, B, margin=4.5).decide(source) == FAILS
    assert Wider(A, B, C, D).decide(source) == HOLDS
    assert Wider(C, D, A, B).decide(source) == FAILS
    assert Within(C, D, 1.0).decide(source) == HOLDS
    assert Within(D, C, 1.0).decide(source) == HOLDS
    assert Within(A, B, 1.0).decide(source) == Within(B, A, 1.0).decide(source) == FAILS
    assert Beyond(A, 4.0).decide(source) == HOLDS
    assert Beyond(A, 4.0, above=False).decide(source) == FAILS
    assert Ranked(A, (B, C, D), 1).decide(source) == HOLDS
    assert Ranked(C, (A, B, D), 2).decide(source) == HOLDS
    assert Ranked(D, (A, B, C), 2).decide(source) == FAILS
    assert Ranked(B, (A, C, D), 2).decide(source) == FAILS
    assert Ranked(B, (A, at("none", "")), 2).decide(source) == UNKNOWN


def test_other_parts():
    source = Fixed(a=(1.0, 2.0, 3.0), b=(1.0, 5.0, 9.0), c=(0.0, 7.0, 14.0))
    assert LessSpread(A, C).decide(source) == HOLDS  # 49 times the variance; the limit is 39
    assert LessSpread(C, A).decide(source) == FAILS
    assert LessSpread(A, B).decide(source) == LessSpread(B, A).decide(source) == UNKNOWN  # 16 times
    assert LessSpread(A, D).decide(source) == UNKNOWN
    assert Starred(at("x", ""), A).decide(source) == HOLDS
    assert Starred(at("y", ""), A).decide(source) == FAILS
    assert Starred(at("z", ""), A).decide(source) == UNKNOWN
    yes, no = Computed(lambda: True), Computed(lambda: False)
    assert AnyOf((no, yes)).decide(source) == HOLDS
    assert AnyOf((no, no)).decide(source) == FAILS
    assert AnyOf((no, Above(A, D))).decide(source) == UNKNOWN
    curve = Fixed(_1=(1.0, 1.1, 1.2), _3=(5.0, 5.1, 5.2), _4=(2.0, 2.1, 2.2))
    assert Optimum(A, "x", 2.0).decide(curve) == HOLDS
    assert Optimum(A, "x", 3.5).decide(curve) == FAILS
    assert Optimum(A, "x", 2.0, above=False).decide(curve) == FAILS
    assert Optimum(A, "x", 9.0).decide(curve) == UNKNOWN


def test_ties_count_where_they_may():
    assert judge([0.0], exact=True) == FAILS
    assert judge([0.0], exact=True, ties=True) == HOLDS
    assert judge([0.0, 0.0, 0.0], exact=False) == FAILS
    assert judge([0.0, 0.0, 0.0], exact=False, ties=True) == HOLDS
    assert judge([-1e-4, -1e-4, -1e-4], exact=False, ties=True) == FAILS


def test_few_seeds_decide_by_students_limit():
    """Mean 3 standard errors from 0: beyond the limit of ten seeds, 2.26, and within that of three, 4.30."""
    three = [3 - 3**0.5, 3.0, 3 + 3**0.5]
    assert judge(three, exact=False) == UNKNOWN
    ten = [3 / 10**0.5 + x for x in (-1.0, 1.0) * 5]
    assert judge(ten, exact=False) == HOLDS


def test_a_difference_that_few_seeds_do_not_show_is_no_failure():
    noisy, level = Summary({0: 1.0, 1: 2.0, 2: 3.5}), Summary({0: 0.9, 1: 2.2, 2: 3.2})
    assert significant(noisy, level, 25) is None
    assert significant(noisy, level, 3) is False
    assert significant(Summary({s: 9.0 + v for s, v in noisy.values.items()}), level, 25) is True
    far = Summary({1: 12.0, 2: 13.1, 3: 13.0})
    assert significant(noisy, far, 2) is None  # two shared seeds are too few
    assert significant(noisy, None, 2) is None


def test_a_claim_from_results():
    level = {
        "trace": 0.8,
        "no-trace": 0.7,
        "mbem": 0.6,
        "gem": 0.5,
        "single-cm": 0.4,
        "wdn": 0.3,
        "bootstrap": 0.2,
    }

    def accuracy(config):
        return level.get(config.method, 0.1) + 0.001 * config.seed

    made = results("tanno2019.table1a", "test_accuracy", accuracy)
    found = {f.claim.number: f for f in check("tanno2019", made)}
    assert (found[1].outcome, found[1].holds) == (HOLDS, 7)
    assert found[2].outcome == UNKNOWN
    level["wdn"] = 0.45
    made = results("tanno2019.table1a", "test_accuracy", accuracy)
    found = {f.claim.number: f for f in check("tanno2019", made)}
    assert (found[1].outcome, found[1].fails) == (FAILS, 1)
    two = [r for r in made if r.config.seed < 2]
    assert {f.outcome for f in check("tanno2019", two) if f.claim.number == 1} == {UNKNOWN}


def test_optimum_and_marks_from_results():
    def likelihood(config):
        if config.data != "mnist" or config.method not in ("het-tau", "ce", "het"):
            return None
        tau = config.param("temperature", 1.0) if config.method != "ce" else 0.3
        noise = 0.001 * ((7 * config.seed + hash(config.method) % 5) % 5)
        return -abs(tau - 10.0) / 10 - 0.02 * config.seed - noise

    made = results("collier2020.table1", "noisy_test_log_likelihood", likelihood)
    source = FromResults("collier2020", made, "paper")
    cell = at("table1", "noisy_log_likelihood", data="mnist", method="het-tau")
    assert Optimum(cell, "temperature", 1.0).decide(source) == HOLDS
    assert Optimum(cell, "temperature", 50.0).decide(source) == FAILS
    assert Starred(cell.but(method="ce"), cell).decide(source) == HOLDS
    assert Starred(cell.but(data="svhn", method="ce"), cell.but(data="svhn")).decide(source) == UNKNOWN


def test_formulas():
    assert logistic_normal_formulas()
    assert smearing_formulas()
    assert confusion_formulas()


def test_report_and_names():
    shown = report("tanno2019", check("tanno2019", []))
    assert "cannot tell" in shown
    assert shown.count("\n") == len(claims("tanno2019")) + 1
    with pytest.raises(DubitoError, match="did you mean 'tanno2019'"):
        check("tanno2018", [])
    assert set(items("tanno2019")) >= {"table1a", "figure11"}
