"""Promises about whole runs, kept in processes of their own: repeated, killed, interrupted, doubled."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from .. import checkpoint
from ..errors import DubitoError
from ..runs import RunFolder
from ._card import Check, Outcome

SEED = 5


def _start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "dubito.verify.tiny", str(folder), str(SEED)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _finish(folder: Path) -> str:
    """The SHA-256 that a run prints; what it said instead if it failed."""
    output, errors = _start(folder).communicate(timeout=300)
    return output.strip() or errors.strip()[-200:]


def _is_digest(text: str) -> bool:
    return len(text) == 64


def repeated(folder: Path) -> Outcome:
    """The same seed in two fresh processes gives the same weights, bit for bit."""
    one, two = _finish(folder / "one"), _finish(folder / "two")
    return Outcome(f"{one[:12]} and {two[:12]}", _is_digest(one) and one == two)


def killed(folder: Path) -> Outcome:
    """A run that was killed outright and resumed ends with the weights of one that was left alone."""
    alone = _finish(folder / "alone")
    kills = _stop(folder / "killed", signal.SIGKILL, times=3)
    resumed = _finish(folder / "killed")
    same = _is_digest(alone) and alone == resumed
    return Outcome(f"{alone[:12]} and {resumed[:12]} after {kills} kills", same and kills > 0)


def _stop(folder: Path, number: int, times: int) -> int:
    """Send a signal to a run, once it has saved something more, at a random instant; how often it was running."""
    sent = 0
    for _ in range(times):
        process = _start(folder)
        begin = _latest(folder)
        while process.poll() is None and _latest(folder) <= begin:
            time.sleep(0.002)
        time.sleep(random.uniform(0, 0.02))
        sent += process.poll() is None
        process.send_signal(number)
        process.communicate(timeout=300)
    return sent


def _latest(folder: Path) -> int:
    return max(checkpoint.steps(folder / "checkpoints"), default=0)


def interrupted(folder: Path) -> Outcome:
    """SIGINT and SIGTERM: a checkpoint, then exit status 130 and 143."""
    found = []
    for number in (signal.SIGINT, signal.SIGTERM):
        process = _start(folder / str(number))
        while process.poll() is None and not _latest(folder / str(number)):
            time.sleep(0.002)
        process.send_signal(number)
        process.communicate(timeout=300)
        found.append(process.returncode)
        checkpoint.load_latest(folder / str(number) / "checkpoints")
    return Outcome(f"exit status {found[0]} and {found[1]}", found == [130, 143])


def doubled(folder: Path) -> Outcome:
    """A second run in the same folder is refused, and told which process holds it."""
    with RunFolder(folder / "run", {}):
        code = "import sys; from dubito.runs import RunFolder; RunFolder(sys.argv[1], {}).__enter__()"
        second = subprocess.run(
            [sys.executable, "-P", "-c", code, str(folder / "run")],
            capture_output=True,
            text=True,
            timeout=300,
        )
    said = second.stderr.strip().splitlines()[-1:] or ["nothing"]
    named = f"{DubitoError.__name__}: another process" in said[0]
    return Outcome("refused, holder named" if named else said[0], named and second.returncode == 1)


CHECKS = (
    Check(20, "the same seed gives the same weights in fresh processes", "identical SHA-256", repeated),
    Check(22, "a killed run resumes to the same weights", "identical SHA-256", killed),
    Check(23, "SIGINT and SIGTERM save and exit", "exit status 130 and 143", interrupted),
    Check(32, "one process per run folder", "the second refuses and names the first", doubled),
)
