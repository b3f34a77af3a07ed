"""What a sweep costs beside its runs: wall time of many one-minute runs against a minute times their number.

    python benchmarks/sweep.py                      local processes (target: below 2 %)
    python benchmarks/sweep.py --ray                tasks of a Ray cluster on this machine

A run waits for its length and writes its result, so that only the work of the sweep is added: starting workers,
importing torch there, locks, files, the driver's rounds. One line is appended to results/benchmarks/sweep.jsonl
($OUT/sweep.jsonl where that is set).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import tempfile
import time
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from dubito.papers.cluster import sweep_on_ray
from dubito.papers.configs import Config
from dubito.papers.results import Result, provenance, write_result
from dubito.papers.sweep import sweep

HERE = Path(__file__).resolve().parents[1]


def wait(config: Config, *, out: Path, seconds: float) -> None:
    """A run of a known length, in a worker that has torch loaded as a real one has."""
    import torch  # noqa: F401

    time.sleep(seconds)
    write_result(Result(config, {"test_accuracy": 0.5}, seconds), out)
    (out / f"cpu-{os.getpid()}.txt").write_text(str(time.process_time()))


def loaded() -> float:
    """Processor seconds of the server that workers are forked from: it loads torch for all of them."""
    server = getattr(forkserver._forkserver, "_forkserver_pid", None)
    if server is None:
        return 0.0
    fields = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def configs(count: int) -> list[Config]:
    base: dict[str, Any] = {"paper": "englesson2023", "item": "waiting", "data": "mnist", "network": "mlp"}
    return [Config(**base, method="ce", epochs=1, seed=seed) for seed in range(count)]


def measure(runs: int, workers: int, seconds: float, ray: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        shared: dict[str, Any] = {"run": wait, "options": {"seconds": seconds}}
        started = time.monotonic()
        if ray:
            import ray as library

            library.init(num_cpus=workers, log_to_driver=False, include_dashboard=False)
            found = sweep_on_ray(configs(runs), folder, **shared)
            library.shutdown()
        else:
            found = sweep(configs(runs), folder, workers=workers, **shared)
        wall = time.monotonic() - started
        beside = loaded() + sum(float(p.read_text()) for p in Path(folder).glob("cpu-*.txt"))
    assert len(found.finished) == runs
    ideal = seconds * -(-runs // workers)
    spent = time.process_time()
    return {
        "benchmark": "sweep",
        "back_end": "ray" if ray else "processes",
        "runs": runs,
        "workers": workers,
        "seconds_of_a_run": seconds,
        "wall": round(wall, 2),
        "ideal": ideal,
        "overhead": round(wall / ideal - 1, 5),
        "driver_cpu_seconds": round(spent, 2),
        "worker_cpu_seconds": round(beside, 2),  # runs only wait: all of it is the sweep's
        "cpu_overhead": round(
            (spent + beside) / (runs * seconds), 5
        ),  # does not depend on who else is at work
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--ray", action="store_true")
    given = parser.parse_args()
    line = measure(given.runs, given.workers, given.seconds, given.ray)
    commit, dirty = provenance()
    line |= {
        "commit": commit,
        "dirty": dirty,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "hardware": f"{platform.machine()} CPU, {os.cpu_count()} cores",
        "load": round(os.getloadavg()[0], 1),
    }
    folder = Path(os.environ.get("OUT", HERE / "results" / "benchmarks"))
    with (folder / "sweep.jsonl").open("a") as f:
        f.write(json.dumps(line) + "\n")
    print(json.dumps(line))


if __name__ == "__main__":
    main()
