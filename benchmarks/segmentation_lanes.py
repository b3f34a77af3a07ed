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
from segmentation_networks import model_of
from segmentation_steps import Lane, Sets, kind_of

from segmentation import append, done, jobs, name_of, stamp


def affordable(args: argparse.Namespace, sets: Sets, waiting: list[dict[str, Any]]) -> tuple[int, list[Lane]]:
    """The largest number of steps of those given with which all jobs should end in time, and the lanes that were
    built to find out: some steps of each kind of compact model are timed."""
    if len(args.steps) == 1:
        return args.steps[0], []
    count: dict[tuple[Any, ...], int] = {}
    first: dict[tuple[Any, ...], dict[str, Any]] = {}
    for job in waiting:
        if job["network"] == "compact":
            count[kind_of(job)] = count.get(kind_of(job), 0) + 1
            first.setdefault(kind_of(job), job)
    lanes, cost = [], 0.0
    for kind, job in first.items():
        try:
            lanes.append(Lane(job, sets, max(args.steps), args.few))
            took = _step_seconds(lanes[-1], min(max(args.steps), 15))
        except Exception:  # the other kinds are worth having all the same
            print("could not build", kind, traceback.format_exc(), flush=True)
            waiting[:] = [other for other in waiting if kind_of(other) != kind]
            continue
        print(kind, count[kind], "runs,", f"{1e3 * took:.2f} ms a step", flush=True)
        cost += 0.85 * count[kind] * took  # several at once fill gaps
    left = args.until - time.time() - sum(count.values()) * args.scoring - args.rest
    fitting = [steps for steps in sorted(args.steps) if steps * cost <= left]
    steps = fitting[-1] if fitting else min(args.steps)
    print(f"one step of every run {cost:.3f} s, {left:.0f} s left: {steps} steps", flush=True)
    for lane in lanes:
        lane.count = steps
    return steps, lanes


def _step_seconds(lane: Lane, turns: int) -> float:
    with lane.place():
        lane.set(lane.job)
        float(lane.loss)
    begun = time.perf_counter()
    for _ in zip(range(turns), lane.run()):
        pass
    with lane.place():
        float(lane.loss)  # waits
    return (time.perf_counter() - begun) / turns


def _wait(args: argparse.Namespace, waiting: list[dict[str, Any]]) -> None:
    """Import what takes long, then wait until another process is done."""
    if waiting:
        model_of(waiting[0])
    print("waiting", flush=True)
    while not args.after.exists() and time.time() < args.until:
        time.sleep(0.2)


def train(args: argparse.Namespace, device: str) -> None:
    """All jobs, so many at a time; lanes whose run is over are taken by the next job of their kind."""
    sets, have = Sets(args.folder, args.few, device), done(args.out)
    idle: dict[tuple[Any, ...], list[Lane]] = {}
    waiting = [job for job in plan(args) if name_of(job) not in have]
    if args.after is not None:
        _wait(args, waiting)
    steps_each, built = affordable(args, sets, waiting)
    for lane in built:
        idle.setdefault(lane.kind, []).append(lane)
    lengths = {"compact": steps_each, "deeplab": args.deep_steps}
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
    if args.points is not None:
        kept = [job | ({"points": args.points} if job["upsample"] != "log_probs" else {}) for job in kept]
    return sorted((job for job in kept if args.network in (None, job["network"])), key=stage)


def _second_deep(job: dict[str, Any]) -> bool:
    """The first seed of DeepLabv3+ was trained by `segmentation.py`."""
    return job["labels"] == "border" and job["seed"] >= 1 and job["tau"] in (None, 1.0, 0.05)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("camvid"))
    parser.add_argument("--out", type=Path, default=Path("results/segmentation/camvid.jsonl"))
    parser.add_argument(
        "--steps", type=int, nargs="+", default=[1200], help="of several the most that can end in time"
    )
    parser.add_argument(
        "--scoring", type=float, default=0.4, help="seconds that a run takes besides its steps"
    )
    parser.add_argument("--rest", type=float, default=25.0, help="seconds for everything else")
    parser.add_argument("--deep-steps", type=int, default=600)
    parser.add_argument("--network", choices=["compact", "deeplab"], help="only this one")
    parser.add_argument("--after", type=Path, help="a file to wait for once the first weights are made")
    parser.add_argument(
        "--points", type=int, help="quasi-random points in place of the integral at full size"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--few", type=int, help="so many images and a tiny network, to try the script")
    parser.add_argument("--plan", type=Path, help="lines of jobs in place of the usual ones")
    parser.add_argument(
        "--until", type=float, default=float("inf"), help="when all must have ended, in Unix time"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    train(args, "cuda" if torch.cuda.is_available() else "cpu")


if __name__ == "__main__":
    main()
