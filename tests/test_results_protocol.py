"""The pages say which command makes their runs, how the protocol is read, and how many cells agree in all."""

from __future__ import annotations

import dataclasses
import importlib
import re
import shlex
from pathlib import Path

import pytest
import torch

from dubito.errors import DubitoError
from dubito.heads import Point
from dubito.model import Model
from dubito.papers import PAPERS, item
from dubito.papers.choose import chosen
from dubito.papers.configs import run_id
from dubito.papers.jobs import Job
from dubito.papers.readings import READINGS
from dubito.papers.results import Result
from dubito.procedures import GeneralisedEM

TOOLS = Path(__file__).resolve().parents[1] / "tools"
pytestmark = pytest.mark.skipif(
    not (TOOLS / "results_protocol.py").is_file(), reason="the tools are not here"
)


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module


def runs_of(command: str) -> set[str]:
    """The runs that a printed command means, read as the command line reads it."""
    words = shlex.split(command)
    assert words[:3] == ["dubito", "paper", "run"]
    options = {
        words[i]: words[i + 1] for i, word in enumerate(words) if word in ("--size", "--data", "--out")
    }
    overrides = [w for w in words[4:] if "=" in w]
    job = Job(words[3], options.get("--size", "paper"), options.get("--data"), None, overrides, Path("x"))
    return {run_id(c) for c in job.configs()}


def results(name: str, size: str = "paper", data: str | None = None, **changes) -> list[Result]:
    configs = [
        c for c in item(name).make(size, data, None) if c.seed < 2 and c.item == name.partition(".")[2]
    ]
    changed = [dataclasses.replace(c, **changes) for c in configs[:4]]
    return [Result(c, {"test_accuracy": 0.9}, hardware="a GPU, bfloat16 backbone") for c in changed]


@pytest.mark.parametrize(
    ("name", "size", "data", "changes"),
    [
        ("tanno2019.figure3", "small", None, {}),
        ("lukasik2020.table7", "paper", "mnist", {"steps": 500}),
        ("englesson2023.table1-mnist", "paper", None, {}),
    ],
)
def test_the_command_of_a_section_makes_its_runs(tool, name, size, data, changes):
    made = results(name, size, data, **changes)
    (section, *_) = tool("results_cells").sections(name.partition(".")[0], made)
    command = tool("results_protocol").command(section)
    assert {r.id for r in section.runs} <= runs_of(command)
    assert "--streams" in command


def test_size_and_data_are_options_not_fields():
    """As fields they would keep the length, the augmentation and the rest of another protocol."""
    configs = item("tanno2019.figure3").make("paper", None, None)
    with pytest.raises(DubitoError, match="use --size small"):
        chosen(configs, ["size=small"])
    with pytest.raises(DubitoError, match="use --data cifar10"):
        chosen(configs, ["data=cifar10"])
    assert chosen(configs, ["data=mnist"]) == configs, "values that runs have are picked"


def test_every_paper_says_how_it_is_read(tool):
    assert set(READINGS) == set(PAPERS)
    for paper in PAPERS:
        lines = list(tool("results_protocol").readings(paper))
        assert lines[0] == "## How the protocol is read"
        assert len(lines) > 5


@pytest.mark.parametrize(("size", "asked", "epoch"), [("paper", 100, 1_080), ("small", 20, 1_080)])
def test_rounds_that_are_shorter_than_an_epoch_are_as_few_as_the_readings_say(size, asked, epoch):
    """Tanno et al. figure 5 has rounds of 1,000 steps, and EM ends a round between epochs only."""
    config = max(
        (c for c in item("tanno2019.figure5").make(size, None, None) if c.method == "gem"),
        key=lambda c: c.param("rounds"),
    )
    assert (config.param("rounds"), config.train // config.batch) == (asked, epoch)
    epochs = -(-config.steps // epoch)
    em = GeneralisedEM(Model(torch.nn.Identity(), Point(2, 2)), rounds=asked)
    em.epochs = epochs
    rounds = sum(em.round_ends(e) for e in range(epochs)) + 1  # the last ends with the run
    (said,) = (line for line in READINGS["tanno2019"] if "round ends between epochs" in line)
    assert f"{rounds}" in re.findall(r"\d+", said)
    assert rounds == epochs < asked


def test_agreement_counts_every_judged_cell_once_and_names_wide_spread(tool):
    def cells(**accuracy):
        configs = [c for c in item("englesson2023.table1-mnist").make("paper", None, None) if c.seed < 3]
        at = [c for c in configs if (c.noise, c.rate) == ("asymmetric", 0.4) and c.method in accuracy]
        return [
            Result(c, {"test_accuracy": accuracy[c.method][0] + accuracy[c.method][1] * (c.seed - 1)})
            for c in at
        ]

    # The paper: plain training 80.31 ± 1.81, LN 96.54 ± 1.20, GCE 79.81 ± 1.46.
    found = tool("results_cells").sections(
        "englesson2023", cells(ce=(0.803, 0.001), ln=(0.92, 0.03), gce=(0.60, 0.001))
    )
    (text,) = tool("results_verdicts").agreement({"englesson2023": found})
    assert "3, of which 2 agree (67 %), 1 of them only because our spread is wide" in text
    assert "englesson2023 2 of 3; lukasik2020 0 of 0" in text
    assert list(tool("results_verdicts").agreement({})) == ["No cell is judged yet: that takes three seeds."]


def test_cells_of_an_earlier_reading_are_named_beside_the_count(tool):
    """Another reading of the silent points, taken up after a failure, does not make the failure vanish."""
    configs = [c for c in item("collier2020.table6").make("paper", "cifar10", None) if c.seed < 3]
    plain = [c for c in configs if c.method == "ce"]
    old = [dataclasses.replace(c, batch=77) for c in plain]
    made = [Result(c, {"test_accuracy": 0.796}) for c in plain] + [
        Result(c, {"test_accuracy": 0.6}) for c in old
    ]
    found = tool("results_cells").sections("collier2020", made)
    (text,) = tool("results_verdicts").agreement({"collier2020": found})
    assert "beside them): 1, of which 1 agree (100 %)" in text
    assert "Not counted: 1 of earlier readings of what a paper leaves open, of which 0 agree." in text
