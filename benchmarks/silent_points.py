"""What Collier et al. do not say about their network, tried out: plain training, CIFAR-10, noise of table 6.

    python benchmarks/silent_points.py --out lines.jsonl --workers 5 --seconds 235

One run of cross-entropy for each reading of the silent points (kind of dropout, padding of the last block, eps
of the norm, batch, start, arithmetic); all else is the protocol of `dubito.papers.collier2020`, with its early
stopping. Readings are compared by accuracy on noisy validation labels and by nothing else. A few processes share
one GPU: each takes the next reading from the list, so that one compiles while others train. A run far behind the
best one at the same epoch is stopped. Every epoch and every end is a line of its own, written at once.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
import traceback
from collections import defaultdict
from pathlib import Path
from typing import Any

FIRST = {"padded": False, "norm_eps": 1e-5, "dropout_of": "channel"}
ELEMENT = {"dropout_of": "element"}
SAME = {**ELEMENT, "padded": True}
KERAS = {**SAME, "norm_eps": 1e-3}
# name: (fields of the config, options of the network, half precision)
READINGS: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "by element, padded, eps 1e-3, norm last": ({}, {**KERAS, "norm_last": True}, True),
    "by element, padded, eps 1e-3, norm last, batch 32": ({"batch": 32}, {**KERAS, "norm_last": True}, True),
    "by element, padded, eps 1e-3, norm last, batch 64": ({"batch": 64}, {**KERAS, "norm_last": True}, True),
    "by element, padded, eps 1e-3, norm last, batch 256": (
        {"batch": 256},
        {**KERAS, "norm_last": True},
        True,
    ),
    "by element, padded, eps 1e-3, norm last, batch 32, seed 1": (
        {"batch": 32, "seed": 1},
        {**KERAS, "norm_last": True},
        True,
    ),
    "padded, batch 32": ({"batch": 32}, {"padded": True}, True),
    "by element, padded": ({}, SAME, True),
    "by element": ({}, ELEMENT, True),
    "by element, padded, eps 1e-3, batch 32": ({"batch": 32}, KERAS, True),
    "by element, padded, eps 1e-3": ({}, KERAS, True),
    "batch 32": ({"batch": 32}, {}, True),
    "padded": ({}, {"padded": True}, True),
    "by element, batch 32": ({"batch": 32}, ELEMENT, True),
    "by element, padded, eps 1e-3, batch 64": ({"batch": 64}, KERAS, True),
    "by element, padded, eps 1e-3, torch's start": ({"init": "torch"}, KERAS, True),
    "by element, padded, eps 1e-3, float32": ({}, KERAS, False),
    "by element, padded, eps 1e-3, seed 1": ({"seed": 1}, KERAS, True),
    "by element, padded, eps 1e-3, batch 32, seed 1": ({"seed": 1, "batch": 32}, KERAS, True),
    "by element, seed 1": ({"seed": 1}, ELEMENT, True),
    "float32": ({}, {}, False),
}
# Epoch -> how far behind the best at that epoch a reading may be.
GATES = {3: 0.08, 6: 0.08, 10: 0.08}


def rows(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The lines of all workers by reading; a line that is being written is left for the next look."""
    found = defaultdict(list)
    for path in sorted(folder.glob("worker-*.jsonl")):
        for text in path.read_text().splitlines(keepends=True):
            if text.endswith("\n"):
                row = json.loads(text)
                found[row["reading"]].append(row)
    return found


def table(folder: Path) -> str:
    """Readings by their best validation accuracy."""
    lines = []
    for name, seen in rows(folder).items():
        epochs = [r for r in seen if r["kind"] == "epoch"]
        if not epochs:
            continue
        best = max(epochs, key=lambda r: r["validation_accuracy"])
        ends = [r["why"] for r in seen if r["kind"] == "end"]
        course = " ".join(f"{r['validation_accuracy']:.3f}" for r in epochs)
        lines.append(
            f"{best['validation_accuracy']:.4f} (log-likelihood {best['validation_log_likelihood']:.3f}, noisy "
            f"training labels {best['train_accuracy']:.3f}) at epoch {best['epoch']:2d} of {len(epochs):2d}: "
            f"{name} [{ends[0] if ends else 'under way'}] {course}"
        )
    return "\n".join(sorted(lines, reverse=True))


def behind(folder: Path, name: str, epoch: int, accuracy: float) -> bool:
    """Whether another reading is far ahead at the same epoch."""
    others = [
        r["validation_accuracy"]
        for other, seen in rows(folder).items()
        for r in seen
        if other != name and r["kind"] == "epoch" and r["epoch"] == epoch
    ]
    return epoch in GATES and bool(others) and accuracy < max(others) - GATES[epoch]


def train(name: str, folder: Path, number: int, options: argparse.Namespace) -> None:
    """One reading from its start to its end."""
    import torch

    from dubito.evaluate import scores
    from dubito.papers import collier2020
    from dubito.papers.lane_run import LaneRun

    fields, network, half = READINGS[name]
    made = collier2020.TABLES["table6"].make("paper", "cifar10", None)
    config = next(c for c in made if c.method == "ce" and c.seed == 0)
    first = {"network_options": tuple({**FIRST, **network}.items()), "batch": 128, "init": "glorot"}
    config = dataclasses.replace(config, **{**first, **fields})
    if options.tiny:
        config = dataclasses.replace(config, train=64, validation=32, test=32, batch=16, size="smoke")
    begun = time.time()
    run = LaneRun(config, folder, root=options.root, device=options.device, first={})
    run.lane.half = run.lane.half and half
    some = run.parts.train.subset(torch.arange(min(5000, len(run.parts.train)))).to(options.device)
    pick, late = run._pick, False

    def write(**row: Any) -> None:
        head = {"benchmark": "silent_points", "reading": name, "seconds": round(time.time() - begun, 1)}
        with (folder / f"worker-{number}.jsonl").open("a") as file:
            file.write(json.dumps({**head, **row}, sort_keys=True) + "\n")

    def seen(epoch: int) -> None:
        nonlocal late
        pick(epoch)
        course = {key: values[-1] for key, values in run.notes["history"].items()}
        memory = scores(run.lane.log_probs(some), some.labels)
        write(kind="epoch", epoch=epoch, train_accuracy=memory["accuracy"], **course)
        late = not options.all and behind(folder, name, epoch, course["validation_accuracy"])

    run._pick = seen  # type: ignore[method-assign]
    for _ in run.steps(lambda: time.time() > options.end):
        if late or (options.tiny and run.lane.epoch == 1):
            break
    over = run.done and not late
    run.notes["seconds"] = time.time() - begun
    why = "ended by early stopping" if over else "far behind" if late else "cut by time"
    write(
        kind="end", why=why, best_epoch=run.best_epoch, best=run.best_score, config=config.to_json(),
        result=run.result().to_json() if over else None,
        arithmetic="bfloat16 backbone" if run.lane.half else "float32, TF32 convolutions",
    )  # fmt: skip


def worker(folder: Path, number: int, options: argparse.Namespace) -> None:
    """Take readings from the list until it is empty or the time is over."""
    import torch
    import torch._dynamo

    torch._dynamo.config.recompile_limit = 64
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    for i, name in enumerate(options.readings.split("; ") if options.readings else READINGS):
        if time.time() > options.end - (0 if options.tiny else 15) or (options.tiny and i >= 3):
            return
        try:
            os.close(os.open(folder / f"taken-{i}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        try:
            train(name, folder, number, options)
        except Exception:
            traceback.print_exc()


def main() -> None:
    """Start the workers, wait, gather their lines."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=235.0)
    parser.add_argument("--readings", help="some of the list, with '; ' between them; all if not given")
    parser.add_argument("--all", action="store_true", help="let those far behind go on")
    parser.add_argument("--root", help="folder of data sets; DUBITO_DATA if not given")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="three readings, one small epoch, on any device")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--end", type=float, default=0.0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.end = options.end or time.time() + options.seconds
    folder = options.out.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    if options.worker is not None:
        worker(folder, options.worker, options)
        return
    command = [sys.executable, __file__, *sys.argv[1:], "--end", str(options.end), "--worker"]
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "3"}
    logs = [(folder / f"log-{i}.txt").open("w") for i in range(options.workers)]
    started = [
        subprocess.Popen([*command, str(i)], env=environment, stdout=log, stderr=subprocess.STDOUT)
        for i, log in enumerate(logs)
    ]
    while any(p.poll() is None for p in started) and time.time() < options.end + 30:
        time.sleep(2)
        options.out.write_text("".join(_lines(folder)))
    for process in started:
        if process.poll() is None:
            process.kill()
    options.out.write_text("".join(_lines(folder)))
    print(table(folder), flush=True)


def _lines(folder: Path) -> list[str]:
    return [json.dumps(row, sort_keys=True) + "\n" for seen in rows(folder).values() for row in seen]


if __name__ == "__main__":
    main()
