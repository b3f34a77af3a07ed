"""Configs: plain, hashable, equal to their JSON; sizes change only what they may."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest

from dubito.backbones import NETWORKS
from dubito.errors import DubitoError
from dubito.papers import PAPERS, Config, item, items, paper, run_id
from dubito.papers.configs import SMOKE_MAY_CHANGE, identity, override, pairs
from dubito.papers.items import choice_key
from dubito.papers.results import read

ALL = [(p, i) for p in PAPERS for i in items(p)]


def test_every_table_and_figure_is_there():
    tables = {
        "collier2020": ["table1", "table2", "table3", "table4", "table5", "table6"],
        "englesson2023": ["table1-mnist", "table1-cifar10", "table1-cifar100", "table2", "table3"],
        "lukasik2020": ["table2", "table3", "table4", "table5", "table7"],
        "tanno2019": ["table1a", "table1b"],
    }
    # NAN's row once more, as the paper's code has it.
    tables["englesson2023"][3:3] = ["table1-mnist-nan", "table1-cifar10-nan"]
    figures = {"collier2020": 6, "englesson2023": 7, "lukasik2020": 9, "tanno2019": 11}
    for name in PAPERS:
        assert list(paper(name).TABLES) == tables[name]
        assert list(paper(name).FIGURES) == [f"figure{i + 1}" for i in range(figures[name])]
        for key, entry in items(name).items():
            assert entry.id == key
            assert entry.hours >= 0
            assert entry.title


@pytest.mark.parametrize(("name", "key"), ALL)
def test_json_round_trip_and_identity(name, key):
    made = items(name)[key].make("small", None, None)
    assert len({run_id(c) for c in made}) == len(made)
    for config in made[:: max(1, len(made) // 20)]:
        text = json.dumps(config.to_json())
        assert Config.from_json(json.loads(text)) == config
        canonical = json.dumps(identity(config), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert run_id(config) == hashlib.sha256(canonical.encode()).hexdigest()
        hash(config)


@pytest.mark.parametrize(("name", "key"), ALL)
def test_smoke_equals_paper_but_for_what_it_may_change(name, key):
    entry = items(name)[key]

    def rest(config: Config, grid: set[str]) -> str:
        fields = {k: v for k, v in config.to_json().items() if k not in SMOKE_MAY_CHANGE}
        fields["params"] = {k: v for k, v in config.params if k not in grid}
        return json.dumps(fields, sort_keys=True)

    for make in filter(None, (entry.make, entry.search)):
        whole, little = make("paper", None, None), make("smoke", None, None)
        searched = {"temperature", "rank", "lam", "q", "sigma", "t1", "t2", "lambda2", "burn_in"}
        grid = (
            searched if make is entry.search or key in ("figure1", "figure2", "figure5", "figure6") else set()
        )
        assert {rest(c, grid) for c in little} == {rest(c, grid) for c in whole}
        assert all(c.size == "smoke" and c.batch <= 32 and c.seed == 0 for c in little)
        assert all(c.train <= (256 if c.balanced else 64) for c in little)
        assert {c.size for c in whole} <= {"paper"}


@pytest.mark.parametrize(("name", "key"), ALL)
def test_small_keeps_networks_noise_and_methods(name, key):
    def core(c: Config) -> tuple:
        return (
            c.data,
            c.noise,
            c.rate,
            c.network,
            c.method,
            c.optimizer,
            c.schedule,
            c.milestones,
            c.selection,
        )

    entry = items(name)[key]
    small, whole = entry.make("small", None, None), entry.make("paper", None, None)
    assert {core(c) for c in small} == {core(c) for c in whole}
    assert len(small) <= len(whole)


@pytest.mark.parametrize(("name", "key"), ALL)
def test_networks_exist(name, key):
    for config in items(name)[key].make("smoke", None, None):
        assert config.network in NETWORKS or config.network.partition(":")[0] in (
            "torchvision",
            "smp",
            "unet",
        )


@pytest.mark.parametrize(
    ("full", "data"),
    [
        ("englesson2023.table3", "cifar10"),
        ("englesson2023.table2", "mnist"),
        ("englesson2023.figure4", "mnist"),
        ("englesson2023.figure7", "mnist"),
        ("lukasik2020.table7", "cifar10"),
        ("lukasik2020.table3", "mnist"),
        ("lukasik2020.figure9", "cifar10"),
        ("collier2020.table1", "mnist"),
        ("collier2020.table2", "camvid"),
        ("tanno2019.figure3", "cifar10"),
    ],
)
def test_data_override(full, data):
    made = item(full).make("smoke", data, None)
    assert {c.data for c in made} == {data}


@pytest.mark.parametrize("full", ["englesson2023.table1-mnist", "lukasik2020.table3", "tanno2019.table1a"])
def test_unknown_data_and_size_are_refused(full):
    with pytest.raises(DubitoError, match="no protocol"):
        item(full).make("paper", "minst", None)
    with pytest.raises(DubitoError, match="size"):
        item(full).make("tiny", None, None)


@pytest.mark.parametrize(
    "full", ["englesson2023.figure3", "lukasik2020.figure5", "tanno2019.figure7", "tanno2019.figure2"]
)
def test_analyses_refuse_data_that_they_cannot_be_made_on(full):
    with pytest.raises(DubitoError, match="no protocol"):
        item(full).make("smoke", "cifar100n", None)


def test_a_search_replaces_the_printed_choice():
    entry = item("englesson2023.table1-mnist")
    ln = next(c for c in entry.make("smoke", None, None) if c.method == "ln" and c.rate == 0.4)
    made = entry.make("smoke", None, {choice_key(ln): {"lam": 7.0}})
    changed = [c for c in made if c.param("lam") == 7.0]
    assert [(c.noise, c.rate) for c in changed] == [(ln.noise, ln.rate)]


def test_search_shares_its_first_seed_with_the_table():
    """The chosen point of the search is the table's run with seed 0."""
    entry = item("englesson2023.table1-mnist")
    searched = {run_id(c) for c in entry.search("paper", None, None)}
    first = [c for c in entry.make("paper", None, None) if c.seed == 0 and c.method in ("gce", "ln", "nan")]
    assert {run_id(c) for c in first} <= searched


def test_equal_numbers_are_one_run_and_defaults_do_not_count():
    config = item("englesson2023.table1-mnist").make("paper", None, None)[0]
    assert run_id(dataclasses.replace(config, rate=0)) == run_id(dataclasses.replace(config, rate=0.0))
    assert "momentum" not in identity(config)
    assert run_id(dataclasses.replace(config, momentum=0.9)) != run_id(config)
    assert run_id(dataclasses.replace(config, seed=1)) != run_id(config)
    assert pairs({"b": 1, "a": 2}) == pairs({"a": 2, "b": 1})


def test_override():
    config = item("englesson2023.table1-mnist").make("paper", None, None)[-1]
    assert override(config, "epochs", "3").epochs == 3
    assert override(config, "lam", "0.25").param("lam") == 0.25
    assert override(config, "dummy", "false").param("dummy") is False
    assert override(config, "milestones", "0.5+0.75").milestones == (0.5, 0.75)
    assert override(config, "method", "ce").method == "ce"
    for key, text, match in (
        ("epoch", "3", "did you mean 'epochs'"),
        ("epochs", "3.5", "a whole number"),
        ("lr", "fast", "a number"),
        ("nesterov", "yes", "true or false"),
    ):
        with pytest.raises(DubitoError, match=match):
            override(config, key, text)


def test_refusals():
    base = {"paper": "p", "item": "t", "data": "mnist", "network": "mlp", "method": "ce"}
    with pytest.raises(DubitoError, match="either epochs or steps"):
        Config(**base)
    with pytest.raises(DubitoError, match="either epochs or steps"):
        Config(**base, epochs=1, steps=1)
    with pytest.raises(DubitoError, match="did you mean 'smoke'"):
        Config(**base, epochs=1, size="smok")
    with pytest.raises(DubitoError, match="did you mean 'epochs'"):
        Config.from_json({**base, "epoch": 1})
    with pytest.raises(DubitoError, match="did you mean 'englesson2023'"):
        items("englesson")
    with pytest.raises(DubitoError, match=r"did you mean 'englesson2023\.table2'"):
        item("englesson2023.tabel2")


@pytest.mark.rel
@pytest.mark.parametrize(
    ("full", "position", "digits"),
    [
        ("englesson2023.table1-mnist", -1, "c80e1c4b4ed04f85"),
        ("collier2020.table1", 150, "9a84f2f092b22e9a"),
        ("lukasik2020.table7", 7, "3b9948644b7539ad"),
        ("tanno2019.table1a", 0, "ac153e451710f1f7"),
    ],
)
def test_names_of_runs_do_not_change(full, position, digits):
    """Scorecard 25: finished runs keep their names, so that nobody repeats them by accident."""
    assert run_id(item(full).make("paper", None, None)[position])[:16] == digits


def test_published_runs_belong_to_their_items():
    """A change of a protocol would make them runs of nothing; those below are of earlier readings or shortened."""
    root = Path(__file__).resolve().parents[2] / "results"
    if not root.is_dir():
        pytest.skip("the results are not here")
    apart: dict[str, int] = {}
    for name in PAPERS:
        made = {
            c.cell
            for entry in items(name).values()
            for make in filter(None, (entry.make, entry.search))
            for size in ("paper", "small")
            for c in make(size, None, None)
        }
        for result in read(root / name):
            if result.config.cell not in made:
                home = f"{name}.{result.config.item}"
                apart[home] = apart.get(home, 0) + 1
    assert apart == {
        "collier2020.table6": 15,
        "englesson2023.figure3": 4,
        "lukasik2020.table7": 18,
        "tanno2019.figure6": 6,
        "tanno2019.figure7": 8,
    }
