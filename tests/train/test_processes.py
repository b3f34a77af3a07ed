"""Runs in processes of their own: repeated, killed, interrupted, doubled."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from short_runs import GOLDEN, NOT_GOLDEN, RUNS, machine

from dubito import checkpoint
from dubito.runs import read_metrics

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


def python(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(HERE / "short_runs.py"), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**ENVIRONMENT, **environment},
    )


class Server:
    """One process that has everything imported and forks a run when asked."""

    def __init__(self) -> None:
        self.process = python("serve")
        self.instants: list[str] = []

    def _line(self) -> int:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(self.process.communicate()[1])
        return int(line)

    def start(self, name: str, folder: Path, every: int = 1, pace: float = 0.0) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{name} {folder} {every} {pace}\n")
        self.process.stdin.flush()
        return self._line()

    def wait(self) -> int:
        return self._line()

    def finish(self, name: str, folder: Path) -> str:
        """Run to the end; the SHA-256 of all its weights."""
        self.start(name, folder, every=100)
        assert self.wait() == 0
        return (folder / ".digest").read_text(encoding="ascii")

    def stop(self, name: str, folder: Path, number: int, pace: float = 0.0) -> int:
        """A signal at a random instant after the next checkpoint; the exit status."""
        begin = latest(folder)
        pid = self.start(name, folder, pace=pace)
        limit = time.monotonic() + 600
        while latest(folder) <= begin and not (folder / ".digest").exists() and time.monotonic() < limit:
            time.sleep(0.002)
        delay = random.uniform(0, 0.02)
        time.sleep(delay)
        os.kill(pid, number)
        self.instants.append(
            f"{name}: {signal.Signals(number).name} {delay:.5f} s after step {latest(folder)}"
        )
        print(self.instants[-1])
        return self.wait()


def latest(folder: Path) -> int:
    return max(checkpoint.steps(folder / "checkpoints"), default=0)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.process.communicate(timeout=60)


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """What every short run gives in two fresh processes."""
    folder = tmp_path_factory.mktemp("digests")
    runs = [python("digests", str(folder / seed), PYTHONHASHSEED=seed) for seed in ("1", "2")]
    found = []
    for run in runs:
        output, errors = run.communicate(timeout=900)
        assert run.returncode == 0, errors
        found.append(json.loads(output))
    return found


@pytest.mark.rel
@pytest.mark.parametrize("name", RUNS)
def test_the_same_seed_in_fresh_processes(name: str, golden: list[dict[str, str]]) -> None:
    """Scorecard 20: identical SHA-256 for each procedure."""
    assert golden[0][name] == golden[1][name]


@pytest.mark.rel
def test_golden_hashes(golden: list[dict[str, str]]) -> None:
    """Scorecard 25: a change of the code changes no number, on the machine the hashes were made on.

    After a change that is meant to: ``python tests/train/short_runs.py golden``, and a note in the same commit.
    """
    known = json.loads(GOLDEN.read_text(encoding="utf-8"))
    if known["machine"] != machine():
        pytest.skip(f"made with {known['machine']}, bit-identity is not promised for {machine()}")
    assert {k: v for k, v in golden[0].items() if k not in NOT_GOLDEN} == known["weights"]


def kill(server: Server, name: str, folder: Path, times: int, scorecard: Callable[..., None]) -> int:
    """How many kills came in the middle of a save; the weights at the end are those of a run left alone."""
    alone, server.instants = server.finish(name, folder / "alone"), []
    inside = killed = 0
    for i in range(times):
        status = server.stop(name, folder / "killed", signal.SIGKILL)
        killed += status == -signal.SIGKILL
        inside += any((folder / "killed" / "checkpoints").glob(".step-*"))
        if i % 6 == 5 or i == times - 1:
            assert server.finish(name, folder / "killed") == alone
            assert read_metrics(folder / "killed") == read_metrics(folder / "alone")
            (folder / "killed").rename(folder / f"ended-{i}")
    scorecard(22, kills=killed, inside_a_save=inside, different=0, instants=server.instants)
    assert killed >= times * 2 // 3
    print(f"{name}: {inside} of {times} in the middle of a save")
    return inside


@pytest.mark.rel
@pytest.mark.parametrize("name", ["plain", "coteaching", "mentornet", "em"])
def test_two_kills_each(server: Server, name: str, tmp_path: Path, scorecard: Callable[..., None]) -> None:
    """Scorecard 22: kills at random instants on each commit, eight in all."""
    kill(server, name, tmp_path, 2, scorecard)


@pytest.mark.rel
@pytest.mark.nightly
@pytest.mark.parametrize("name", ["plain", "coteaching", "mentornet", "em", "pruning"])
def test_many_kills(server: Server, name: str, tmp_path: Path, scorecard: Callable[..., None]) -> None:
    """Scorecard 22: more than 150 kills in all, some of them in the middle of a save."""
    assert kill(server, name, tmp_path, 36, scorecard) > 0


@pytest.mark.rel
@pytest.mark.parametrize(
    ("name", "number", "status"), [("plain", signal.SIGINT, 130), ("coteaching", signal.SIGTERM, 143)]
)
def test_signals(server: Server, name: str, number: int, status: int, tmp_path: Path) -> None:
    """Scorecard 23: a checkpoint and the exit status of the signal; the run goes on from there."""
    assert server.stop(name, tmp_path / "run", number, pace=0.05) == status
    step = latest(tmp_path / "run")
    assert 0 < step < 40
    assert server.finish(name, tmp_path / "run") == server.finish(name, tmp_path / "alone")
    starts = (tmp_path / "run" / "starts.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(starts[1])["from_step"] == step


@pytest.mark.rel
@pytest.mark.nightly
@pytest.mark.parametrize("name", ["plain", "coteaching", "mentornet", "em", "pruning"])
def test_many_signals(server: Server, name: str, tmp_path: Path, scorecard: Callable[..., None]) -> None:
    """Scorecard 23: signals to training itself at random instants, 30 in all; each run goes on to the same end."""
    alone, right = server.finish(name, tmp_path / "alone"), 0
    for i in range(6):
        number, folder = (signal.SIGINT, signal.SIGTERM)[i % 2], tmp_path / str(i)
        begin = latest(folder)
        status = server.stop(name, folder, number, pace=0.05)
        assert status == 128 + number
        assert latest(folder) > begin
        assert server.finish(name, folder) == alone
        right += 1
    scorecard(23, signals=right)


@pytest.mark.rel
def test_two_processes_in_one_folder(server: Server, tmp_path: Path) -> None:
    """Scorecard 32: the second is refused and names the first."""
    pid = server.start("plain", tmp_path / "run", pace=0.05)
    while not latest(tmp_path / "run"):
        time.sleep(0.0005)
    os.kill(pid, signal.SIGSTOP)
    try:
        code = "import sys; from short_runs import RUNS, paced; RUNS['plain'](sys.argv[1], schedule=paced)"
        second = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "run")],
            capture_output=True,
            text=True,
            timeout=120,
            env={**ENVIRONMENT, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])},
        )
    finally:
        os.kill(pid, signal.SIGCONT)
    assert second.returncode == 1
    assert str(pid) in second.stderr.splitlines()[-1]
    assert server.wait() == 0
