"""The commands, as a user types them."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from dubito.errors import DubitoError
from dubito.papers import PAPERS, item, items
from dubito.papers.audit import audit, cells
from dubito.papers.choose import chosen
from dubito.papers.commands import _names, app
from dubito.papers.jobs import Job, execute
from dubito.papers.listing import listing, results_of
from dubito.papers.results import Result, read

NAME = "englesson2023.table1-mnist"
SMOKE = item(NAME).make("smoke", None, None)


def invoke(*words: object, fails: bool = False) -> str:
    done = CliRunner().invoke(app, [str(w) for w in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert (done.exit_code != 0) == fails, done.output
    return done.output


def test_help_imports_nothing_heavy():
    code = (
        "import sys, dubito.papers.commands\n"
        "sys.exit(any(m in sys.modules for m in ('torch', 'numpy', 'sklearn', 'matplotlib')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_list_names_every_item_with_its_cost():
    shown = listing(results_of(None, needed=False))
    for name in PAPERS:
        assert all(f"{name}.{key} " in shown for key in items(name))
    assert invoke("list") == shown
    line = next(x for x in shown.splitlines() if x.startswith(NAME))
    assert line.split()[1:5] == ["405", "243", "81", "20"]
    assert 0.1 < float(line.split()[5]) < 20  # published runs took far less than the estimate
    assert next(x for x in listing().splitlines() if x.startswith(NAME)).split()[5] == "-"


def test_run_then_table(tiny_data, tmp_path):
    picked = ("method=ce", "noise=asymmetric", "rate=0.4")
    words = ("run", NAME, *picked, "--out", tmp_path, "--size", "smoke", "--root", tiny_data)
    assert "1 finished, 0 failed" in invoke(*words)
    assert len(read(tmp_path)) == 1
    assert "1 run, 1 finished before" in invoke(*words)
    shown = invoke("table", NAME, "--results", tmp_path, "--size", "smoke", "--methods", "ce,ln")
    assert "80.31" in shown
    assert "not judged" in shown
    assert "gce" not in shown
    assert "cannot tell" in invoke("check", "englesson2023", "--results", tmp_path, "--size", "smoke")


def test_the_published_table_prints_beside_the_papers_numbers():
    shown = invoke("table", NAME)
    assert "judged cells agree" in shown
    assert "96.54" in shown
    for form in ("markdown", "latex", "csv", "html"):
        assert "96.54" in invoke("table", NAME, "--form", form, "--methods", "ln")


def test_unknown_names_are_met_with_the_nearest():
    for words, close in (
        (("table", "englesson2023.table1-minst"), "table1-mnist"),
        (("table", "englesson2032.table1"), "englesson2023"),
        (("run", NAME, "methd=ce"), "method"),
        (("run", NAME, "--size", "smok"), "smoke"),
        (("table", NAME, "--form", "markdwon"), "markdown"),
        (("check", "lukasik"), "lukasik2020"),
        (("run", NAME, "--methods", " , "), "no method is named"),
        (("check", "temperature"), "no such paper"),  # a study has runs, but no statements
        (("table", "lukasik2020"), "table2, table3, .* figure9"),
        (("table", "lukasik2020.figure1"), "a drawing .* dubito paper figure lukasik2020.figure1"),
        (("run", "lukasik2020.figure1"), "a drawing .* dubito paper figure lukasik2020.figure1"),
        (("audit", "--item", "englesson2023.table1-minst", "--dry"), "table1-mnist"),
        (("audit", "--level", "1.5", "--dry"), "between 0 and 1"),
        (("run", NAME, "--size", "smoke", "--device", "tpu", "--out", "/nowhere"), "unknown device"),
        (
            ("run", NAME, "--size", "smoke", "--root", "/nowhere", "--out", "/nowhere"),
            "no such folder of data",
        ),
        (("table", "lukasik2020.table7", "--reference", "ce"), "rows of this table are not methods"),
    ):
        with pytest.raises(DubitoError, match=close):
            invoke(*words)


def test_methods_that_are_not_there_are_refused_once_and_before_any_run(tmp_path):
    """They once crashed in every run of the table, and were empty rows of a table."""
    (tmp_path / "own.py").write_text("x = 1\n")
    for command in ("run", "table"):
        with pytest.raises(DubitoError, match="did you mean 'gce'"):
            invoke(command, NAME, "--methods", "ce,gcee", "--size", "smoke")
    with pytest.raises(DubitoError, match="has no method 'mine'"):
        invoke(
            "run", NAME, "--methods", f"{tmp_path}/own.py:mine", "--size", "smoke", "--out", tmp_path / "o"
        )
    (tmp_path / "own.py").write_text(
        "from dubito.methods import Method, Stages\n"
        "def stages(power: float = 1.0) -> Stages:\n    return Stages()\n"
        "mine = Method('mine', stages, '')\n"
    )
    for wrong in (f"{tmp_path}/own.py:mine:pwer=2.0", "gce:pwer=0.5"):
        with pytest.raises(DubitoError, match="has no parameter 'pwer'"):
            invoke("run", NAME, "--methods", wrong, "--size", "smoke", "--out", tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_another_rate_is_no_second_name_of_runs_without_one():
    changed = chosen(SMOKE, ["method=ce", "rate=0.35"])
    assert {(c.noise, c.rate) for c in changed} == {("resample", 0.35), ("asymmetric", 0.35)}
    for wrong, close in ((["noise=none", "rate=0.35"], "rate=0.35"), (["batch=-3"], "a batch")):
        with pytest.raises(DubitoError, match=close):
            chosen(SMOKE, wrong)


def test_choices_pick_runs_or_set_values():
    assert {c.method for c in chosen(SMOKE, ["method=ce,ln"])} == {"ce", "ln"}
    assert {c.rate for c in chosen(SMOKE, ["rate=0.2,0.4"])} == {0.2, 0.4}
    assert {c.lr for c in chosen(SMOKE, ["method=ce", "lr=0.01,0.1"])} == {0.01, 0.1}
    assert {c.seed for c in chosen(SMOKE, ["seed=0..24"])} == set(range(25))
    assert {c.method for c in chosen(SMOKE, ["q=0.55"])} == {"gce"}
    assert {c.param("dummy") for c in chosen(SMOKE, ["dummy=true"])} == {True}
    for wrong in ("seed", "seed=", "seed=4..2", "epochs=many"):
        with pytest.raises(DubitoError):
            chosen(SMOKE, [wrong])
    assert _names("ce, ln:covariance=diagonal,lam=2,mine.py:mine") == [
        "ce", "ln:covariance=diagonal,lam=2", "mine.py:mine"
    ]  # fmt: skip


def test_streams_and_processes_give_the_same_table(tiny_data, tmp_path):
    """Stacked and lane runs against the plain loop, on the CPU; methods that draw no random numbers."""
    made = [
        *chosen(SMOKE, ["method=ce,gce", "noise=asymmetric", "rate=0.4"]),
        *chosen(item("englesson2023.table1-cifar10").make("smoke", None, None), ["method=ce", "rate=0.8"]),
    ]
    small = {"train": 24, "validation": 8, "test": 8, "batch": 12}
    configs = [dataclasses.replace(c, **small, epochs=1) for c in made]
    execute(configs, tmp_path / "a", streams=True, root=tiny_data, device="cpu", say=list)
    execute(configs, tmp_path / "b", root=tiny_data, device="cpu", say=list)
    one, other = ({r.id: r.metrics for r in read(tmp_path / name)} for name in "ab")
    assert len(one) == len(other) == 3
    for name, metrics in one.items():
        assert metrics["test_log_likelihood"] == pytest.approx(other[name]["test_log_likelihood"], rel=1e-3)


@pytest.mark.nightly
def test_a_search_chooses_by_noisy_validation(tiny_data, tmp_path):
    said: list[str] = []
    job = Job(NAME, "smoke", None, ["gce"], ["noise=asymmetric", "rate=0.1"], tmp_path)
    assert len(job.searches()) == 2
    assert not job.run(search=True, workers=1, root=tiny_data, device="cpu", say=said.append)
    results = read(tmp_path)
    best = max((r for r in results), key=lambda r: r.metrics["validation_accuracy"])
    lines = [x for x in said if x.startswith("chosen for mnist")]
    assert len(lines) == 1
    assert f"q={best.config.param('q')}" in lines[0]


def test_audit_holds_one_new_seed_against_the_published_ones(tmp_path):
    base = next(c for c in item(NAME).make("paper", None, None) if c.method == "gce")
    published = [
        Result(dataclasses.replace(base, seed=s), {"test_accuracy": v})
        for s, v in enumerate((0.97, 0.98, 0.975))
    ]
    said: list[str] = []
    for value, inside in ((0.976, True), (0.5, False)):

        def again(config, value=value, **_: object) -> Result:
            assert config.seed == 3
            return Result(config, {"test_accuracy": value})

        kept = tmp_path / "audit.jsonl"
        assert audit(published, choice=1, run=again, out=kept, say=said.append) is inside
    assert "OUTSIDE" in said[-1]
    lines = [json.loads(line) for line in kept.read_text().splitlines()]
    assert [line["inside"] for line in lines] == [True, False]
    assert lines[0]["value"] == pytest.approx(97.6)
    mean, sd, t = 97.5, 0.5, 9.92484  # of three seeds; Student's t with two degrees of freedom at .995
    assert lines[0]["low"] == pytest.approx(mean - t * sd * (1 + 1 / 3) ** 0.5, abs=1e-3)
    assert len(cells(published)) == 1
    with pytest.raises(DubitoError, match="nothing to audit"):
        audit(published[:2])
    with pytest.raises(DubitoError, match="cannot write at"):  # before the run, which would raise as well
        audit(published, run=lambda *_, **__: 1 / 0, out=tmp_path / "absent" / "audit.jsonl", say=said.append)


def test_audit_command_names_a_published_cell():
    assert NAME in invoke("audit", "--item", NAME, "--choice", 5, "--dry")
