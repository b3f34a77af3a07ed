"""Short runs of every procedure, in processes of their own.

    python short_runs.py digests FOLDER       run all of them, print {name: SHA-256 of the weights} as JSON
    python short_runs.py serve                fork a process for every line "NAME FOLDER EVERY PACE"
    python short_runs.py golden               write golden.json anew, after a change that is meant to change numbers

The server has imported everything and trained nothing, so that a run starts within milliseconds; each one is a real
process, to be killed by a real signal.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from small import PACE, crowd, network, paced, problem, scenes

from dubito import channels, heads, losses, optim, penalties, targets
from dubito._identity import digest
from dubito.procedures import (
    CoTeaching,
    CrossFittedEM,
    Distillation,
    DoctorHeads,
    DoctorNet,
    GeneralisedEM,
    ModelBootstrappedEM,
    Plain,
    Pruning,
    SelfPaced,
    SparseAnnotators,
    Teacher,
)
from dubito.segmentation import Pixels
from dubito.train import Run, fit

GOLDEN = Path(__file__).with_name("golden.json")


def _run(*, model: dict[str, Any] | None = None, people: bool = False, **options: Any) -> Callable[..., Run]:
    def start(out: Path | str | None = None, **more: Any) -> Run:
        made = {k: v() if k == "channel" else v for k, v in (model or {}).items()}
        settings = {
            "epochs": 5,
            "batch_size": 8,
            "seed": 1,
            "device": "cpu",
            "progress": False,
            **options,
            **more,
        }
        data = crowd(60) if people else problem(60)
        return fit(network(dropout=0.2, **made), data, valid=problem(40, seed=3), out=out, **settings)

    return start


def _pixels(out: Path | str | None = None, *, people: int = 0, **more: Any) -> Run:
    """Segmentation of small scenes, by one or by several annotators."""
    settings = {"epochs": 3, "batch_size": 4, "seed": 1, "device": "cpu", "progress": False, **more}
    data, model = scenes(people=people)
    return fit(model, data, procedure=Pixels, out=out, **settings)


RUNS: dict[str, Callable[..., Run]] = {
    "plain": _run(procedure=Plain),
    "coteaching": _run(procedure=partial(CoTeaching, rate=0.3, ramp=3)),
    "mentornet": _run(procedure=partial(SelfPaced, rate=0.3, burn_in=1)),
    "em": _run(procedure=partial(GeneralisedEM, rounds=3), people=True),
    "pruning": _run(procedure=partial(Pruning, start=2, every=1), loss=losses.gce, select="best"),
    "smooth": _run(target=partial(targets.smooth, alpha=0.1), ema=0.9, optimizer=optim.sgd, clip=1.0),
    "label noise": _run(target=partial(targets.label_noise, sigma=0.3), batching="stream"),
    "logistic-normal": _run(
        loss=partial(losses.logistic_normal_nll, lam=0.5), model={"head": heads.LogisticNormal}
    ),
    "heteroscedastic": _run(model={"head": heads.Diagonal, "integration": "mc", "samples": 4}),
    "annotators": _run(
        model={"channel": partial(channels.AnnotatorConfusion, 4, 3)}, people=True, penalty=penalties.trace
    ),
    "sparse annotators": _run(
        model={"channel": partial(channels.AnnotatorConfusion, 4, 3, sparse=True)},
        procedure=SparseAnnotators,
        people=True,
        penalty=penalties.trace,
        optimizer=optim.row_adam,
    ),
    "mbem": _run(procedure=partial(ModelBootstrappedEM, rounds=3), people=True),
    "cross-fitted em": _run(procedure=partial(CrossFittedEM, rounds=3), people=True),
    "doctor net": _run(
        model={"head": partial(DoctorHeads, num_annotators=4)}, procedure=DoctorNet, people=True
    ),
    "distillation": _run(procedure=partial(Distillation, teacher=Teacher(network(seed=5)))),
    "pixels": _pixels,
    "pixels of annotators": partial(_pixels, people=3),
}
NOT_GOLDEN = ("heteroscedastic", "pixels")  # their integral may be computed in another, equally exact, way


def machine() -> dict[str, str]:
    """What bit-identity is promised for: torch, instruction set and processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    processor = next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown"
    )
    capability = torch.backends.cpu.get_cpu_capability()
    return {"torch": torch.__version__, "capability": capability, "processor": processor}


def digests(folder: Path, names: tuple[str, ...] = tuple(RUNS)) -> dict[str, str]:
    return {name: digest(RUNS[name](folder / name).procedure.state_dict()) for name in names}


def serve() -> None:
    """Fork a process per line; tell its number, then (as "ended") its exit status."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    for line in sys.stdin:
        name, folder, every, pace = line.split()
        pid = os.fork()
        if pid == 0:
            try:
                PACE["seconds"] = float(pace)
                run = RUNS[name](folder, checkpoint_every=int(every), schedule=paced)
                (Path(folder) / ".digest").write_text(digest(run.procedure.state_dict()), encoding="ascii")
            except SystemExit as left:
                os._exit(int(left.code or 0))
            except BaseException as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "serve":
        serve()
    elif sys.argv[1] == "golden":
        import tempfile

        with tempfile.TemporaryDirectory() as place:
            names = tuple(name for name in RUNS if name not in NOT_GOLDEN)
            content = {"machine": machine(), "weights": digests(Path(place), names)}
        GOLDEN.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    else:
        print(json.dumps(digests(Path(sys.argv[2]))))
