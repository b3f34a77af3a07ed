"""A process watched from outside: its resident memory and its open files, as the system counts them."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

JOBS = Path(__file__).with_name("big_jobs.py")


@dataclass
class Watched:
    """Resident bytes and open files over time, the largest resident size, and how the process ended."""

    resident: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    peak: int = 0
    seconds: float = 0.0
    status: int = 0
    said: str = ""


def _kilobytes(status: str, name: str) -> int:
    line = next((line for line in status.splitlines() if line.startswith(name)), f"{name}: 0 kB")
    return int(line.split()[1])


def _bounded() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (6 << 30, 6 << 30))


def watch(job: str, folder: Path, *, every: float = 0.05, limit: float = 900, **environment: str) -> Watched:
    """Run a job of `big_jobs` to its end and watch it."""
    found, since = Watched(), time.monotonic()
    command = [sys.executable, str(JOBS), job, str(folder)]
    variables = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", **environment}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=variables, preexec_fn=_bounded, **pipes)
    place = Path(f"/proc/{process.pid}")
    while process.poll() is None and time.monotonic() - since < limit:
        try:
            status = (place / "status").read_text(encoding="utf-8")
            found.files.append(len(list((place / "fd").iterdir())))
        except OSError:
            break
        found.resident.append(1024 * _kilobytes(status, "VmRSS"))
        found.peak = max(found.peak, 1024 * _kilobytes(status, "VmHWM"))
        time.sleep(every)
    if process.poll() is None and time.monotonic() - since >= limit:
        process.kill()
    found.said = process.communicate()[1][-2000:]
    found.status, found.seconds = process.returncode, time.monotonic() - since
    return found
