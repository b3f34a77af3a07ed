"""SIGINT and SIGTERM: real signals to real processes."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dubito import checkpoint
from dubito.signals import Stopped, stop_on_signals

LOOP = """
import sys, time, torch
from dubito.runs import RunFolder
from dubito.signals import stop_on_signals
stubborn = len(sys.argv) > 2
with RunFolder(sys.argv[1], {}) as run, stop_on_signals() as stop:
    run.resume()
    print("ready", flush=True)
    for step in range(1, 100_000):
        time.sleep(0.001)
        if stop and not stubborn:
            run.save(step, {"model": {"w": torch.tensor(float(step))}}, {})
            stop.leave()
"""


@pytest.fixture(autouse=True)
def _heard() -> Iterator[None]:
    """SIGINT as at a terminal, here and in a test's processes: a shell ignores it for jobs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", LOOP, str(folder), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def interrupt(folder: Path, number: int, delay: float) -> None:
    process = start(folder)
    time.sleep(delay)
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + number, (delay, errors)
    assert "Traceback" not in errors
    found = checkpoint.load_latest(folder / "checkpoints")
    assert found is not None, delay
    assert found.tensors["model"]["w"] == found.step


@pytest.mark.rel
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_exits(tmp_path: Path, number: int) -> None:
    """Scorecard 23: SIGINT and SIGTERM: checkpoint, exit 130 / 143."""
    interrupt(tmp_path / "run", number, random.Random(number).uniform(0, 0.1))


@pytest.mark.rel
@pytest.mark.nightly
def test_twenty_signals_save_and_exit(tmp_path: Path, scorecard: Callable[..., None]) -> None:
    """Scorecard 23: 20 of 20 at random instants, printed."""
    right = 0
    for i in range(20):
        delay = random.random() * 0.2
        print(f"signal {i} after {delay:.4f} s")
        interrupt(tmp_path / str(i), (signal.SIGINT, signal.SIGTERM)[i % 2], delay)
        right += 1
    scorecard(23, signals=right)


@pytest.mark.rel
@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_second_sigint_exits_at_once(tmp_path: Path, first: int) -> None:
    """Scorecard 23: a loop that takes no notice of the flag is left by the second SIGINT."""
    process = start(tmp_path / "run", "stubborn")
    process.send_signal(first)
    time.sleep(0.2)
    assert process.poll() is None
    since = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
    assert time.monotonic() - since < 15  # of at least 20 that it would take otherwise


COMMAND = """
import atexit, time
from dubito import cli
atexit.register(lambda: (print("ends", flush=True), time.sleep(20)) if SLOW else None)
cli.app = lambda: (print("ready", flush=True), time.sleep(60))
cli.main()
"""


def command(*, slow: bool = False) -> subprocess.Popen[str]:
    code = f"SLOW = {slow}\n{COMMAND}"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.rel
def test_a_command_that_reads_or_writes_is_left_with_the_same_status() -> None:
    """Scorecard 23: SIGTERM outside a loop: no traceback, 143."""
    process = command()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (143, "")


@pytest.mark.rel
def test_a_second_sigint_while_python_shuts_down() -> None:
    """Scorecard 23: after a stop the next SIGINT is the end, without a word of what Python was doing."""
    process = command(slow=True)
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    assert process.stdout.readline() == "ends\n"
    since = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (130, "")
    assert time.monotonic() - since < 15  # of at least 20 that it would take otherwise


@pytest.mark.rel
def test_a_loop_that_was_told_to_ignore_sigint_goes_on(tmp_path: Path) -> None:
    """Scorecard 23: as `nohup dubito fit ... &` in a script: Ctrl-C passes it by, SIGTERM saves and stops it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    process = start(tmp_path / "run")
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (143, "")
    assert checkpoint.load_latest(tmp_path / "run" / "checkpoints") is not None


@pytest.mark.rel
def test_a_command_that_was_told_to_ignore_sigint_goes_on() -> None:
    """Scorecard 23: nor is SIGINT heard outside a loop, not even while Python shuts down."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    process = command(slow=True)
    process.send_signal(signal.SIGINT)
    time.sleep(0.1)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    assert process.stdout.readline() == "ends\n"
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    assert process.poll() is None
    process.kill()
    process.communicate(timeout=120)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_ignored_signal_stays_ignored(number: int) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with stop_on_signals() as stop:
            signal.raise_signal(number)
            assert signal.getsignal(number) is signal.SIG_IGN
            assert not stop
    finally:
        signal.signal(number, before)


def test_a_second_sigterm_is_patient() -> None:
    with stop_on_signals() as stop:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert stop.number == signal.SIGTERM


def test_handlers_are_put_back() -> None:
    mine = lambda number, frame: None  # noqa: E731
    before = signal.signal(signal.SIGTERM, mine)
    try:
        with contextlib.suppress(RuntimeError), stop_on_signals():
            assert signal.getsignal(signal.SIGTERM) is not mine
            raise RuntimeError("a failing loop")
        assert signal.getsignal(signal.SIGTERM) is mine
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_without_a_signal_nothing_happens() -> None:
    with stop_on_signals() as stop:
        stop.leave()
        assert not stop


def test_the_exit_status_and_the_signal_are_told() -> None:
    with stop_on_signals() as stop:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(Stopped) as caught:
            stop.leave()
    assert (caught.value.code, caught.value.signal) == (130, signal.SIGINT)


def test_other_threads_install_nothing() -> None:
    seen = []

    def body() -> None:
        with stop_on_signals() as stop:
            seen.append((signal.getsignal(signal.SIGINT), bool(stop)))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [(signal.default_int_handler, False)]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 7)])
def test_a_forked_worker_dies_of_sigterm_and_leaves_sigint_to_its_parent(number: int, status: int) -> None:
    ready, told = os.pipe()
    with stop_on_signals() as stop:
        pid = os.fork()
        if pid == 0:
            os.write(told, b"x")
            for _ in range(100):
                time.sleep(0.01)
            os._exit(7)
        os.read(ready, 1)
        os.kill(pid, number)
        os.kill(pid, number)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == status
        assert not stop
    os.close(ready)
    os.close(told)
