"""Run folders: what they hold, how they resume, what they refuse, one process at a time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from dubito import checkpoint, runs
from dubito.errors import DubitoError
from dubito.runs import RunFolder

CONFIG = {"method": "ln", "lr": 0.1}


def tree(folder: Path) -> dict[str, bytes]:
    """Every file under a folder with its bytes, the lock left out (it tells who held it last)."""
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and p.name != ".lock"
    }


def train(run: RunFolder, steps: int, stop_at: int | None = None, save_every: int = 3) -> float | None:
    """A loop in small: one number, one record per step, a checkpoint now and then."""
    found = run.resume()
    w = torch.zeros(1) if found is None else found.tensors["model"]["w"]
    for step in range(0 if found is None else found.step, steps):
        w = w * 0.9 + step
        run.log(step=step + 1, loss=float(w))
        run.log_time(step=step + 1, seconds=time.time())
        if (step + 1) % save_every == 0:
            run.save(step + 1, {"model": {"w": w}}, {"epoch": 0})
        if step + 1 == stop_at:
            return None
    run.finish({"w": float(w)})
    return float(w)


def test_a_run_folder_tells_what_was_done(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "a" / "run", CONFIG, seed=3) as run:
        train(run, 4)
    assert runs.read_config(run.path) == {"sha256": runs.config_hash(CONFIG), "config": CONFIG}
    assert [r["step"] for r in runs.read_metrics(run.path)] == [1, 2, 3, 4]
    [start] = [json.loads(line) for line in (run.path / "starts.jsonl").read_text().splitlines()]
    assert (start["pid"], start["seed"], start["from_step"]) == (os.getpid(), 3, 0)
    assert start["threads"] == torch.get_num_threads()
    assert start["versions"]["torch"] == torch.__version__
    result = runs.read_result(run.path)
    assert result is not None
    assert (result["seed"], result["config_sha256"]) == (3, run.hash)
    assert checkpoint.steps(run.checkpoints) == [3]


@pytest.mark.parametrize("stop_at", [1, 3, 4, 7, 8])
def test_a_resumed_run_has_the_same_records(tmp_path: Path, stop_at: int) -> None:
    with RunFolder(tmp_path / "once", CONFIG, seed=3) as run:
        once = train(run, 8)
    with RunFolder(tmp_path / "twice", CONFIG, seed=3) as run:
        train(run, 8, stop_at=stop_at)
        assert runs.read_result(run.path) is None
    with RunFolder(tmp_path / "twice", CONFIG, seed=3) as run:
        assert train(run, 8) == once
    one, two = tree(tmp_path / "once"), tree(tmp_path / "twice")
    assert one.keys() == two.keys()
    for name in one.keys() - {"starts.jsonl", "times.jsonl"}:
        assert one[name] == two[name], name
    assert one["times.jsonl"].count(b"\n") == 8
    assert two["starts.jsonl"].count(b"\n") == 2


def test_an_unfinished_last_line_is_cut_or_dropped(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", CONFIG) as run:
        train(run, 8, stop_at=4)
        with (run.path / "metrics.jsonl").open("ab") as file:
            file.write(b'{"step": 5, "lo')
    assert [r["step"] for r in runs.read_metrics(run.path)] == [1, 2, 3, 4]
    with RunFolder(tmp_path / "run", CONFIG) as run:
        train(run, 8)
    assert [r["step"] for r in runs.read_metrics(run.path)] == list(range(1, 9))


def test_missing_records_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with RunFolder(tmp_path / "run", CONFIG) as run:
        train(run, 8, stop_at=4)
    (run.path / "metrics.jsonl").write_bytes(b"")
    with RunFolder(tmp_path / "run", CONFIG) as run:
        run.resume()
    assert "metrics.jsonl is shorter" in caplog.text


@pytest.mark.rel
@pytest.mark.parametrize(
    "kind", ["file", "link", "dangling", "device", "pipe", "read-only", "foreign", "other run"]
)
def test_a_place_that_is_not_ours_is_refused_and_untouched(tmp_path: Path, kind: str) -> None:
    """Scorecard 30: a file, symlink, device, read-only folder, another run's folder."""
    place = tmp_path / "place"
    real = tmp_path / "real"
    real.mkdir()
    if kind == "file":
        place.write_text("mine")
    elif kind == "link":
        place.symlink_to(real)
    elif kind == "dangling":
        place.symlink_to(tmp_path / "nowhere")
    elif kind == "device":
        place = Path("/dev/null")
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "foreign":
        place.mkdir()
        (place / "thesis.tex").write_text("years")
    elif kind == "other run":
        with RunFolder(place, {**CONFIG, "lr": 0.5}) as run:
            train(run, 4)
    else:
        place.mkdir(mode=0o555)
    before = (tree(tmp_path), place.lstat().st_mode, place.lstat().st_mtime_ns)
    with pytest.raises(DubitoError, match=str(place)) as caught, RunFolder(place, CONFIG):
        pass
    assert (tree(tmp_path), place.lstat().st_mode, place.lstat().st_mtime_ns) == before
    assert not (tmp_path / "nowhere").exists()
    if kind == "other run":
        assert "lr=0.5" in str(caught.value)
        assert "choose another folder" in str(caught.value)


@pytest.mark.rel
@pytest.mark.parametrize("name", ["checkpoints", "metrics.jsonl", "result.json", ".lock"])
def test_links_inside_a_run_folder_are_not_followed(tmp_path: Path, name: str) -> None:
    """Scorecard 30: a planted link would let a run write outside its folder."""
    with RunFolder(tmp_path / "run", CONFIG) as run:
        run.resume()
    outside = tmp_path / "outside"
    outside.mkdir() if name == "checkpoints" else outside.write_text("mine")
    (run.path / name).unlink(missing_ok=True)
    (run.path / name).symlink_to(outside)
    with pytest.raises(DubitoError), RunFolder(run.path, CONFIG) as run:
        train(run, 4)
    assert not list(outside.iterdir()) if name == "checkpoints" else outside.read_text() == "mine"


def test_a_place_under_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DubitoError, match=r"cannot write at .*file/run: got Not a directory"):
        RunFolder(tmp_path / "file" / "run", CONFIG).__enter__()


def test_a_record_that_does_not_fit_leaves_no_half_line(tmp_path: Path) -> None:
    code = f"""
import resource
from dubito.runs import RunFolder
with RunFolder({str(tmp_path / "run")!r}, {CONFIG!r}) as run:
    run.resume()
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
    for step in range(100):
        run.log(step=step, loss=0.5)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "metrics.jsonl" in done.stderr.splitlines()[-1]
    assert "DubitoError: cannot write" in done.stderr
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes().endswith(b"}\n")
    assert len(runs.read_metrics(tmp_path / "run")) == 4


def test_a_configuration_edited_by_hand_is_refused(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", CONFIG) as run:
        pass
    file = run.path / "config.json"
    file.write_text(file.read_text().replace("0.1", "0.2"))
    with pytest.raises(DubitoError, match="changed after the run began"), RunFolder(run.path, CONFIG):
        pass


def test_the_first_difference_is_named_to_its_leaf(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "one", {"data": {"name": "a.csv", "rows": 3}, "seed": 0}):
        pass
    other = {"data": {"name": "b.csv", "rows": 3}, "seed": 0}
    with (
        pytest.raises(DubitoError, match=r"data\.name=a\.csv instead of b\.csv"),
        RunFolder(tmp_path / "one", other),
    ):
        pass


def test_checkpoints_of_another_run_are_refused(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "one", CONFIG) as one:
        train(one, 4)
    with RunFolder(tmp_path / "two", {"other": 1}) as two:
        os.rename(one.checkpoints, two.checkpoints)
        with pytest.raises(DubitoError, match="another configuration"):
            two.resume()


HOLD = """
import sys, time
from dubito.runs import RunFolder
with RunFolder(sys.argv[1], {"method": "ln", "lr": 0.1}):
    print("held", flush=True)
    time.sleep(60)
"""


@contextlib.contextmanager
def holder(path: Path):  # type: ignore[no-untyped-def]
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.rel
def test_the_second_process_refuses_and_names_the_first(tmp_path: Path) -> None:
    """Scorecard 32: two processes on one run folder; a killed one frees it at once."""
    with holder(tmp_path / "run") as process:
        with (
            pytest.raises(DubitoError, match=rf"process {process.pid} on {socket.gethostname()} since 20"),
            RunFolder(tmp_path / "run", CONFIG),
        ):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        with RunFolder(tmp_path / "run", CONFIG) as run:
            train(run, 4)


@pytest.mark.rel
def test_the_lock_also_holds_within_a_process_and_is_released(tmp_path: Path) -> None:
    """Scorecard 32: a second run in the same process is a second run too."""
    with (
        RunFolder(tmp_path / "run", CONFIG),
        pytest.raises(DubitoError, match=f"process {os.getpid()}"),
        RunFolder(tmp_path / "run", CONFIG),
    ):
        pass
    with RunFolder(tmp_path / "run", CONFIG) as run:
        run.log(step=1)
    with pytest.raises(DubitoError, match="closed"):
        run.log(step=2)


@pytest.mark.rel
def test_a_forked_worker_does_not_keep_the_lock(tmp_path: Path) -> None:
    """Scorecard 32: an orphaned loader worker must not stand in the way of resuming."""
    run = RunFolder(tmp_path / "run", CONFIG)
    run.__enter__()
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(told, b"x")
        time.sleep(30)
        os._exit(0)
    try:
        assert os.read(ready, 1) == b"x"
        run.__exit__(None, None, None)
        with RunFolder(tmp_path / "run", CONFIG):
            pass
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(ready)
        os.close(told)
