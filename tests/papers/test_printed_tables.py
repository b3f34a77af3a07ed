"""The printed numbers are the file's, cell by cell, under the file's names and ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dubito.errors import DubitoError
from dubito.papers import PAPERS, englesson2023, items, tables
from dubito.papers.tables import METHODS, METRICS, chosen, method_label, paper_cell, paper_value, setting

CONTENT = json.loads((Path(tables.__file__).parent / "paper_tables.json").read_text())
FACTS = {"value", "spread", "stars", "bold", "printed", "p_below", "where", "metric"}
RESULTS = [t for t in CONTENT["tables"] if t["kind"] == "results"]


def test_the_shipped_file_is_the_reference(shared_data):
    reference = shared_data.parent / "paper_tables.json"
    if not reference.is_file():
        pytest.skip("the reference file is not on this machine")
    assert json.loads(reference.read_text()) == CONTENT


@pytest.mark.parametrize("table", CONTENT["tables"], ids=lambda t: t["id"])
def test_every_cell_comes_back_as_stored(table):
    assert len(table["cells"]) == table["n_cells"]
    for cell in table["cells"]:
        keys = {k: v for k, v in cell.items() if k not in FACTS}
        found = paper_value(table["id"], metric=cell["metric"], **keys)
        assert found is not None
        assert (found.value, found.spread, found.stars, found.bold, found.printed) == (
            cell["value"],
            cell["spread"],
            cell["stars"],
            cell["bold"],
            cell.get("printed"),
        )
        if isinstance(cell["value"], float) and "printed" in cell:
            assert float(cell["printed"]) == cell["value"]


@pytest.mark.parametrize("table", RESULTS, ids=lambda t: t["id"])
def test_every_printed_result_has_a_run(table):
    """Each cell of a table of results is reached by some config of our table, and by the right one."""
    home = {"englesson2023.table1": ["table1-mnist", "table1-cifar10", "table1-cifar100"]}
    ids = home.get(table["id"], [table["id"].partition(".")[2]])
    reached = {}
    for item in (items(table["paper"])[i] for i in ids):
        assert item.printed == table["id"]
        for config in item.make("paper", None, None):
            for metric in (METRICS[m] for m in item.metrics):
                cell = paper_cell(item.printed, config, metric)
                if cell is not None:
                    reached.setdefault(id(cell), (cell, config))
    # Tables over alpha print plain training once per method; our run of it stands for all.
    repeated = [c for c in table["cells"] if c.get("alpha") == 0.0 and c["method"] != "ls"]
    assert len(reached) == len(table["cells"]) - len(repeated)


def test_methods_of_every_table_are_mapped():
    for table in CONTENT["tables"]:
        if table["kind"] in ("results", "hyperparameters"):
            names = {c["method"] for c in table["cells"] if "method" in c}
            assert names <= set(METHODS[table["paper"]]), table["id"]
    for paper in PAPERS:
        assert len(set(METHODS[paper].values())) == len(METHODS[paper])


def test_labels_tell_variants_apart():
    made = items("lukasik2020")["table7"].make("smoke", None, None)
    assert {method_label(c) for c in made} == {
        "ce", "smooth", "forward", "backward", "forward:transition=estimated", "backward:transition=estimated",
    }  # fmt: skip
    made = items("lukasik2020")["table5"].make("smoke", None, None)
    assert {method_label(c) for c in made} == {
        "distill", "distill:teacher=smooth", "distill:student=smooth",
        "distill:teacher=forward", "distill:student=forward",
    }  # fmt: skip


@pytest.mark.parametrize("number", [4, 5, 6])
def test_chosen_hyper_parameters_are_the_files(number):
    table = tables.table(f"englesson2023.table{number}")
    ours = {"temperature": "temperature", "R": "rank", "lambda": "lam"}
    for cell in table["cells"]:
        keys = {k: v for k, v in cell.items() if k not in FACTS | {"method"}}
        found = chosen(table["id"], method=METHODS["englesson2023"][cell["method"]], **keys)
        assert found[ours.get(cell["metric"], cell["metric"])] == cell["value"]
    assert chosen(table["id"], dataset="MNIST", noise="symmetric", rate=0.4, method="ce") is None
    assert chosen(table["id"], dataset="SVHN", method="ln") is None


@pytest.mark.parametrize("item", ["table1-mnist", "table1-cifar10", "table1-cifar100", "table2", "table3"])
def test_tables_run_with_the_chosen_values(item):
    theirs = {v: k for k, v in tables.DATASETS.items()}
    for config in englesson2023.TABLES[item].make("paper", None, None):
        point = {k: v for k, v in config.params if k in {p for g in englesson2023.grid(config) for p in g}}
        if config.noise == "natural":
            where, keys = "table6", {"labels": config.labels}
        else:
            where = "table5" if config.noise == "asymmetric" else "table4"
            noise = {"none": "none", "resample": "symmetric", "asymmetric": "asymmetric"}[config.noise]
            keys = {"noise": noise, "rate": config.rate}
        printed = chosen(f"englesson2023.{where}", dataset=theirs[config.data], method=config.method, **keys)
        assert point == (printed or {})


def test_missing_things():
    assert (
        paper_value("collier2020.table1", dataset="CIFAR-100", method="bootstrap", metric="accuracy") is None
    )
    with pytest.raises(DubitoError, match=r"did you mean 'collier2020\.table1'"):
        paper_value("collier2020.tabel1", metric="accuracy")
    with pytest.raises(DubitoError, match="did you mean 'seeds'"):
        setting("collier2020", "seed")
    config = englesson2023.TABLES["table1-mnist"].make("smoke", None, None)[0]
    assert paper_cell("", config, METRICS["test_accuracy"]) is None
    assert paper_cell("englesson2023.table1", config, METRICS["validation_accuracy"]) is None
