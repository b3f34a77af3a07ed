"""Crowds: speed, memory and accuracy beside crowd-kit and cleanlab, as ratios in one run.

    python benchmarks/crowd.py speed        Dawid-Skene and the vote on 1M items x 5 labels
    python benchmarks/crowd.py quality      label quality on 100k items x 5 labels
    python benchmarks/crowd.py accuracy     every labels-only set, one default for all of ours
    python benchmarks/crowd.py sparse       10k items, 5 labels each, 100 to 10,000 annotators

Peers are installed beside us (`pip install 'dubito[bench]'`). Runs of ours and theirs alternate, medians are
compared, and each measurement is appended to results/benchmarks/crowd.jsonl ($OUT where set). The real sets are
found through DUBITO_DATA or in shared/data beside the repository.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dubito.crowd import CrowdLabels, aggregate, label_quality, majority_vote

HERE = Path(__file__).resolve().parents[1]
SETS = (
    *("bluebird", "d_sentiment", "labelme", "music_labels", "product", "relevance"),
    *("rte", "sentiment_text", "sp_amt", "weather_cf", "weather_cf_amt"),
)


def record(kind: str, **facts: Any) -> None:
    """Append one raw line and show it."""
    line = {
        "benchmark": "crowd",
        "kind": kind,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 2),
        "versions": {n: _version(n) for n in ("dubito", "torch", "numpy", "crowd-kit", "cleanlab")},
        **facts,
    }
    path = Path(os.environ.get("OUT", HERE / "results" / "benchmarks")) / "crowd.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def timed(call: Callable[[], Any]) -> tuple[float, float, float]:
    """Seconds, MB by which the peak of the process grew meanwhile, and CPU seconds of all threads."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    start, busy = time.perf_counter(), time.process_time()
    kept = call()
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    grown = _status("VmHWM") - before
    del kept
    return seconds, grown, busy


def _status(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    return float("nan")


def simulated(items: int, annotators: int, classes: int, each: int, seed: int = 0) -> tuple[Any, ...]:
    """One-coin annotators of skill Beta(4, 1.5), errors uniform; truth, and the three columns."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(classes, size=items)
    skill = rng.beta(4, 1.5, size=annotators)
    item = np.repeat(np.arange(items), each)
    # `each` different annotators per item: a random start and a random stride through them.
    stride = rng.integers(1, annotators // each, size=items)
    who = (rng.integers(annotators, size=items)[:, None] + np.arange(each) * stride[:, None]) % annotators
    who = who.ravel()
    right = rng.random(items * each) < skill[who]
    other = (truth[item] + rng.integers(1, classes, size=items * each)) % classes
    return truth, item, who, np.where(right, truth[item], other)


def alternate(ours: Callable[[], Any], theirs: Callable[[], Any], repeats: int) -> dict[str, Any]:
    """Run both in turn and compare medians."""
    rows = [(timed(ours), timed(theirs)) for _ in range(repeats)]
    mine, peer = ([r[i][0] for r in rows] for i in (0, 1))
    busy = [[r[i][2] for r in rows] for i in (0, 1)]
    return {
        "ours_s": mine,
        "theirs_s": peer,
        "ours_cpu_s": busy[0],
        "theirs_cpu_s": busy[1],
        "cpu_ratio": statistics.median(busy[1]) / statistics.median(busy[0]),
        "ratio": statistics.median(peer) / statistics.median(mine),
        "ours_mb": max(r[0][1] for r in rows),
        "theirs_mb": max(r[1][1] for r in rows),
    }


def show(name: str, found: dict[str, Any], target: str) -> None:
    record("speed", work=name, target=target, **found)
    mine, peer = statistics.median(found["ours_s"]), statistics.median(found["theirs_s"])
    print(
        f"{name:58} ours {mine:8.3f} s {found['ours_mb']:6.0f} MB   "
        f"theirs {peer:8.3f} s {found['theirs_mb']:6.0f} MB   "
        f"ratio {found['ratio']:6.1f} (CPU seconds {found['cpu_ratio']:6.1f})   target {target}",
        flush=True,
    )


def speed(items: int, repeats: int) -> None:
    import pandas as pd
    from crowdkit.aggregation import DawidSkene, MajorityVote

    _, item, who, label = simulated(items, 1000, 10, 5)
    frame = pd.DataFrame({"task": item, "worker": who, "label": label})
    crowd = CrowdLabels(item, who, label)
    del item, who, label
    size = f"{items:,} x 5, 1,000 annotators"
    show(
        f"vote, {size}",
        alternate(lambda: aggregate(crowd, "vote"), lambda: MajorityVote().fit_predict(frame), repeats),
        ">= 20",
    )

    def ours(steps: int) -> Any:
        return aggregate(crowd, "dawid-skene", strength=0, iterations=steps, tolerance=0)

    def theirs(steps: int) -> Any:
        return DawidSkene(n_iter=steps, tol=0).fit(frame)

    whole = alternate(lambda: ours(5), lambda: theirs(5), repeats)
    show(f"Dawid-Skene, 5 steps with set-up, {size}", whole, "-")
    short = alternate(lambda: ours(1), lambda: theirs(1), repeats)
    step: dict[str, Any] = {
        key: [(a - b) / 4 for a, b in zip(sorted(whole[key]), sorted(short[key]))]
        for key in ("ours_s", "theirs_s", "ours_cpu_s", "theirs_cpu_s")
    }
    for name, clock in (("ratio", "s"), ("cpu_ratio", "cpu_s")):
        step[name] = statistics.median(step[f"theirs_{clock}"]) / statistics.median(step[f"ours_{clock}"])
    memory = {"ours_mb": whole["ours_mb"], "theirs_mb": whole["theirs_mb"]}
    show(f"Dawid-Skene, per step, {size}", {**step, **memory}, ">= 25, <= 400 MB")
    hierarchical = [timed(lambda: aggregate(crowd, iterations=10, tolerance=0))[0] for _ in range(2)]
    record("speed", work=f"default model, 10 steps, {size}", ours_s=hierarchical)
    print(f"default model (hierarchical), 10 steps with set-up: {min(hierarchical):.2f} s")


def quality(items: int) -> None:
    from cleanlab.multiannotator import get_label_quality_multiannotator

    truth, item, who, label = simulated(items, 1000, 10, 5)
    crowd = CrowdLabels(item, who, label)
    table = np.full((items, 1000), np.nan)
    table[item, who] = label
    probs = np.full((items, 10), 0.3 / 9)
    probs[np.arange(items), np.where(np.random.default_rng(1).random(items) < 0.8, truth, 0)] = 0.7

    def ours() -> Any:
        return label_quality(crowd, aggregate(crowd), probs=probs)

    def theirs() -> Any:
        return get_label_quality_multiannotator(table, probs, verbose=False)

    show(f"label quality, {items:,} x 5, 1,000 annotators", alternate(ours, theirs, 1), ">= 50")


def data_folder() -> Path:
    named = [Path(p) for p in os.environ.get("DUBITO_DATA", "").split(os.pathsep) if p]
    for folder in [*named, HERE.parent / "shared" / "data"]:
        if (folder / "crowd").is_dir():
            return folder / "crowd"
    raise SystemExit("the real sets are not on this machine (DUBITO_DATA)")


def load(name: str) -> tuple[CrowdLabels, Any, Any]:
    with np.load(data_folder() / name / f"{name}.npz") as file:
        truth = (file["truth"] if "truth" in file else file["y_train"]).astype(np.int64)
        columns = [file[k].astype(np.int64) for k in ("item", "worker", "label")]
    classes = int(max(columns[2].max(), truth.max())) + 1
    return CrowdLabels(*columns, classes=classes, item_ids=len(truth), duplicates="keep"), truth, columns


def accuracy(draws: int) -> None:
    import pandas as pd
    from crowdkit.aggregation import GLAD, DawidSkene, OneCoinDawidSkene

    peers = {
        "DS": lambda f: DawidSkene(n_iter=100, tol=1e-5).fit_predict(f),
        "one-coin": lambda f: OneCoinDawidSkene(n_iter=100, tol=1e-5).fit_predict(f),
        "GLAD": lambda f: GLAD(n_iter=20).fit_predict(f),
    }
    print(f"{'set':15} {'vote':>7} " + " ".join(f"{p:>9}" for p in peers) + f" {'ours':>9} {'- best':>8}")
    hits: list[tuple[Any, Any]] = []
    worst = 0.0
    for name in SETS:
        crowd, truth, columns = load(name)
        gold = truth >= 0
        frame = pd.DataFrame(dict(zip(("task", "worker", "label"), columns)))
        votes = [majority_vote(crowd, seed=s)[0].numpy() for s in range(20)]
        row = {"vote": float(np.mean([(v[gold] == truth[gold]).mean() for v in votes]))}
        for peer, call in peers.items():
            if peer == "GLAD" and len(crowd) > 12_000:
                continue
            answer = call(frame).reindex(np.arange(len(truth))).fillna(-1).to_numpy()
            row[peer] = float((answer[gold] == truth[gold]).mean())
            if peer == "DS":
                theirs = answer[gold] == truth[gold]
        ours = aggregate(crowd).codes.numpy()[gold] == truth[gold]
        row["ours"] = float(ours.mean())
        best = max(v for k, v in row.items() if k != "ours")
        worst = min(worst, row["ours"] - best)
        hits.append((ours.astype(float), theirs.astype(float)))
        record(
            "accuracy", set=name, items=int(gold.sum()), **{k.replace("-", "_"): v for k, v in row.items()}
        )
        cells = " ".join(f"{row[p]:9.4f}" if p in row else " " * 9 for p in peers)
        print(
            f"{name:15} {row['vote']:7.4f} {cells} {row['ours']:9.4f} {row['ours'] - best:8.4f}", flush=True
        )
    rng = np.random.default_rng(0)
    gain = float(np.mean([(a - b).mean() for a, b in hits]))
    again = np.zeros(draws)
    for a, b in hits:
        d = a - b
        again += np.array([d[rng.integers(len(d), size=len(d))].mean() for _ in range(draws)]) / len(hits)
    low, high = (float(q) for q in np.quantile(again, [0.025, 0.975]))
    record("accuracy", set="mean", gain_over_ds=gain, low=low, high=high, worst_against_best=worst)
    print(f"mean gain over crowd-kit's Dawid-Skene {gain:.4f}, 95 % paired bootstrap {low:.4f} to {high:.4f}")
    print(f"worst distance from the best simple method on any set {worst:.4f} (target >= -0.01)")


def sparse() -> None:
    import pandas as pd
    from crowdkit.aggregation import DawidSkene

    for annotators in (100, 1000, 10_000):
        truth, item, who, label = simulated(10_000, annotators, 10, 5)
        crowd = CrowdLabels(item, who, label)
        frame = pd.DataFrame({"task": item, "worker": who, "label": label})
        peer = DawidSkene(n_iter=20).fit_predict(frame).reindex(np.arange(10_000)).to_numpy()
        row = {
            "vote": float(
                np.mean([(majority_vote(crowd, seed=s)[0].numpy() == truth).mean() for s in range(5)])
            ),
            "crowd_kit_ds": float((peer == truth).mean()),
            **{
                m.replace("-", "_"): float((aggregate(crowd, m).codes.numpy() == truth).mean())
                for m in ("auto", "dawid-skene", "one-coin", "skill")
            },
        }
        record("sparse", annotators=annotators, **row)
        print(f"{annotators:6} annotators  " + "  ".join(f"{k} {v:.4f}" for k, v in row.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", default=["speed", "quality", "accuracy", "sparse"])
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for part in args.parts:
        if part == "speed":
            speed(args.items, args.repeats)
        elif part == "quality":
            quality(args.items // 10)
        elif part == "accuracy":
            accuracy(2000)
        elif part == "sparse":
            sparse()
        else:
            parser.error(f"unknown part {part!r}")


if __name__ == "__main__":
    main()
