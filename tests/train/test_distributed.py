"""Two processes against one, over gloo."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from several import CASES

from dubito import checkpoint
from dubito._distributed import Ranks
from dubito.runs import read_metrics, read_result

SCRIPT = str(Path(__file__).with_name("several.py"))
WAIT = 900  # seconds, for a machine with ten times as many jobs as processors


def port() -> str:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def start(job: str, folder: Path, size: int, **more: str) -> list[subprocess.Popen[str]]:
    """`size` processes with the variables that torchrun sets."""
    folder.mkdir(exist_ok=True)
    variables = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port()}
    return [
        subprocess.Popen(
            [sys.executable, SCRIPT, job, str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables, **more, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
        )
        for rank in range(size)
    ]


def end(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    said = [p.communicate(timeout=WAIT)[1] for p in processes]
    return [(p.returncode, text) for p, text in zip(processes, said)]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folders of one process and of two."""
    place = tmp_path_factory.mktemp("ranks")
    running = [start("compare", place / "one", 1), start("compare", place / "two", 2)]
    for processes in running:
        for code, said in end(processes):
            assert code == 0, said
    return place / "one", place / "two"


@pytest.mark.rel
@pytest.mark.parametrize("name", CASES)
def test_two_processes_train_as_one(
    name: str, both: tuple[Path, Path], scorecard: Callable[..., None]
) -> None:
    """Scorecard 37: float64, 20 steps, uneven and empty parts of a step: weights to 1e-6."""
    one, two = (load_file(folder / name) for folder in both)
    assert one.keys() == two.keys()
    off = (float((one[key].double() - two[key].double()).abs().max()) for key in one if one[key].numel())
    scorecard(37, weight_difference=max(off))
    for key in one:
        assert torch.allclose(one[key].double(), two[key].double(), rtol=0, atol=1e-6), key


@pytest.mark.rel
@pytest.mark.parametrize("name", CASES)
def test_two_processes_find_the_figures_of_one(name: str, both: tuple[Path, Path]) -> None:
    """Scorecard 37: figures of equal weights are exactly equal, shards uneven and empty included."""
    one, two = (json.loads((folder / "found.json").read_text(encoding="utf-8"))[name] for folder in both)
    assert one["scores"] == two["scores"]
    assert one["best"] == two["best"]
    for a, b in zip(one["history"], two["history"], strict=True):
        assert a == pytest.approx(b, rel=1e-6)


@pytest.mark.rel
def test_batch_norm_is_refused(both: tuple[Path, Path]) -> None:
    """Scorecard 37: batch norm on gloo is refused with a sentence, and welcome in one process."""
    assert not (both[0] / "said 0").exists()
    for rank in range(2):
        said = (both[1] / f"said {rank}").read_text(encoding="utf-8")
        assert said.startswith(
            "batch norm over several processes would see a share of the batch only at model."
        )


def until_saved(folder: Path) -> None:
    limit = time.monotonic() + WAIT
    while not checkpoint.steps(folder / "run" / "checkpoints"):
        assert time.monotonic() < limit
        time.sleep(0.005)


def lose(folder: Path) -> None:
    """Kill the second of two processes in the middle of the run."""
    processes = start("long", folder, 2, SLOW="0.02")
    until_saved(folder)
    processes[1].kill()
    (code, said), _ = end(processes)
    assert code == 1
    assert "another process of this run was lost" in said


def compare_to_the_end(folder: Path, other: list[subprocess.Popen[str]], place: Path) -> None:
    for processes in (start("long", folder, 2), other):
        assert [code for code, _ in end(processes)] == [0, 0]
    assert not (folder / "nobody").exists()
    results = [read_result(where / "run") for where in (place, folder)]
    assert results[0] is not None
    assert results[0] == results[1]
    assert read_metrics(folder / "run") == results[0]["history"]
    first, second = (
        sorted((where / "run" / "checkpoints").rglob("*.safetensors")) for where in (place, folder)
    )
    assert [(p.parent.name, p.name) for p in first] == [(p.parent.name, p.name) for p in second]
    assert first
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(first, second))


@pytest.mark.rel
def test_a_lost_process(tmp_path: Path) -> None:
    """Scorecard 37: a lost process ends the run with a message, and the resumed run is byte-identical."""
    alone = start("long", tmp_path / "alone", 2)
    lose(tmp_path / "lost")
    compare_to_the_end(tmp_path / "lost", alone, tmp_path / "alone")


@pytest.mark.rel
@pytest.mark.nightly
def test_a_signal_to_one_process_stops_all(tmp_path: Path) -> None:
    """Scorecards 23 and 37: the processes agree on the step at which they leave."""
    alone = start("long", tmp_path / "alone", 2)
    second = start("long", tmp_path / "stopped", 2, SLOW="0.02")
    until_saved(tmp_path / "stopped")
    second[1].send_signal(signal.SIGTERM)
    assert [code for code, _ in end(second)] == [143, 143]
    compare_to_the_end(tmp_path / "stopped", alone, tmp_path / "alone")


@pytest.mark.rel
@pytest.mark.nightly
@pytest.mark.parametrize("agents", [1, 2])
def test_under_torchrun(agents: int, tmp_path: Path, both: tuple[Path, Path]) -> None:
    """Scorecard 37: the same script under torchrun, two processes of one agent or one of each of two."""
    (tmp_path / "run").mkdir()
    at = f"127.0.0.1:{port()}"
    each = [
        f"--nnodes={agents}",
        f"--nproc_per_node={2 // agents}",
        "--rdzv_backend=c10d",
        f"--rdzv_endpoint={at}",
    ]
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *each, SCRIPT, "compare", str(tmp_path / "run")],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for _ in range(agents)
    ]
    for code, said in end(running):
        assert code == 0, said
    for name in CASES:
        one, two = load_file(both[1] / name), load_file(tmp_path / "run" / name)
        assert all(torch.equal(one[k], two[k]) for k in one), name


def test_parts_of_a_step_follow_one_another() -> None:
    rows = torch.arange(7)
    parts = [Ranks(r, 3).share(rows) for r in range(3)]
    assert torch.equal(torch.cat(parts), rows)
    assert [len(Ranks(r, 3).share(rows[:2])) for r in range(3)] == [1, 1, 0]
    assert Ranks().share(rows) is rows
