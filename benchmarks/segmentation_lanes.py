"""The runs of `segmentation.py` as captured steps on streams of one process, for a GPU to itself.

    python benchmarks/segmentation.py prepare --folder camvid
    python benchmarks/segmentation_lanes.py --folder camvid --out results/segmentation/camvid.jsonl

One line of JSON per run, appended as it ends; runs that have a line already are left out.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from segmentation_steps import Lane, Sets, kind_of, warm

from segmentation import append, done, jobs, name_of, stamp


def train(args: argparse.Namespace, device: str) -> None:
    """All jobs, so many at a time; lanes whose run is over are taken by the next job of their kind."""
    sets, have = Sets(args.folder, args.few, device), done(args.out)
    idle: dict[tuple[Any, ...], list[Lane]] = {}
    lengths = {"compact": args.steps, "deeplab": args.deep_steps}
    waiting = [job for job in plan(args) if name_of(job) not in have]
    running: list[tuple[Lane, Iterator[None], float]] = []
    note = partial(print, flush=True)
    lasted: dict[tuple[Any, ...], float] = {}
    begun, steps = time.perf_counter(), 0
    while waiting or running:
        while waiting and len(running) < args.at_once:
            job, since = waiting.pop(0), time.perf_counter()
            if time.time() + 1.1 * lasted.get(kind_of(job), 0.0) > args.until:
                continue  # it would not end in time
            try:
                several = idle.setdefault(kind_of(job), [])
                lane = several.pop() if several else Lane(job, sets, lengths[job["network"]], args.few)
                with lane.place():
                    lane.set(job)
                running.append((lane, lane.run(), since))
            except Exception:
                note("could not begin", name_of(job), traceback.format_exc())
        if not running:
            return
        for entry in list(running):
            lane, run, since = entry
            if next(run, 0) is None:
                steps += 1
                continue
            running.remove(entry)
            trained = time.perf_counter() - since
            try:
                line = lane.finish()
            except Exception:
                note("failed", name_of(lane.job), traceback.format_exc())
                continue
            took = {"train_seconds": round(trained, 2), "seconds": round(time.perf_counter() - since, 2)}
            lasted[lane.kind] = took["seconds"]
            append(args.out, {**line, **took, **stamp(device), "workers": 1, "lanes": args.at_once})
            idle.setdefault(lane.kind, []).append(lane)
            spent = time.perf_counter() - begun
            told = {k: line[k] for k in ("loss", "missed")} | {"test": line["test"]["mean_iou"]}
            note(f"{spent:.1f} s, {steps} steps, {len(running)} others run:", name_of(lane.job), told, took)


def plan(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The jobs in order: what the question is about with all seeds, full size, the rest of the curve, DeepLab."""
    if args.plan is not None:
        return [json.loads(line) for line in args.plan.read_text().splitlines()]
    found = jobs(tuple(range(args.seeds)))

    def stage(job: dict[str, Any]) -> int:
        if job["network"] != "compact":
            return 3
        if job["upsample"] != "log_probs":
            return 1
        return 0 if job["tau"] in (None, 1.0, 0.05, 2.0) else 2

    kept = [job for job in found if job["network"] == "compact" or _second_deep(job)]
    return sorted(kept, key=stage)


def _second_deep(job: dict[str, Any]) -> bool:
    """The first seed of DeepLabv3+ was trained by `segmentation.py`."""
    return job["labels"] == "border" and job["seed"] >= 1 and job["tau"] in (None, 1.0, 0.05)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("camvid"))
    parser.add_argument("--out", type=Path, default=Path("results/segmentation/camvid.jsonl"))
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--deep-steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--few", type=int, help="so many images and a tiny network, to try the script")
    parser.add_argument("--plan", type=Path, help="lines of jobs in place of the usual ones")
    parser.add_argument(
        "--until", type=float, default=float("inf"), help="when all must have ended, in Unix time"
    )
    parser.add_argument("--warm", action="store_true", help="only compile the kernels")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.warm:
        warm()
        return
    torch.backends.cudnn.benchmark = True
    train(args, "cuda" if torch.cuda.is_available() else "cpu")


if __name__ == "__main__":
    main()
