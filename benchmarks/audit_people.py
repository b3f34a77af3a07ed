"""How calibrated is p_wrong where every image has three human labels? CIFAR-10N, `audit` of a crowd.

    python benchmarks/audit_people.py PROBS    a folder with cifar10n_random1_patches_0.npz (audit_features.py)

The three label slots of CIFAR-10N count as three annotators, 8,000 images drawn by a seed. The probabilities are
out of fold: the model saw no label of the image that it judges. Lines go to results/benchmarks/audit_people.jsonl.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
from audit_scores import code, reliability

HERE = Path(__file__).resolve().parents[1]
LINES = HERE / "results" / "benchmarks" / "audit_people.jsonl"
SLOTS = ("random1", "random2", "random3")
IMAGES = 8000


def measure(probs: Any, seed: int) -> dict[str, Any]:
    from sklearn.metrics import average_precision_score

    from dubito import CrowdLabels, audit, data

    sets = [data.load("cifar10n", "train", labels=name) for name in SLOTS]
    true = sets[0].clean.numpy()  # type: ignore[union-attr]
    some = np.sort(np.random.default_rng(seed).choice(len(true), IMAGES, False))
    given = np.stack([s.labels.numpy()[some] for s in sets], 1)
    item, slot = np.divmod(np.arange(given.size), len(SLOTS))
    names = [str(k) for k in range(10)]
    crowd = CrowdLabels(
        [str(i) for i in item],
        [SLOTS[s] for s in slot],
        [names[k] for k in given.ravel()],
        classes=names,
        item_ids=[str(i) for i in range(IMAGES)],
    )
    found = audit(crowd, probs[some])
    wrong = np.asarray(found.given) != true[some][np.array([int(i) for i in found.ids])]
    error, bins = reliability(found.p_wrong, wrong)
    return {
        "seed": seed,
        "code": code(),
        "labels": len(wrong),
        "noise_rate": round(float(wrong.mean()), 4),
        "estimated_rate": round(found.noise_rate.value, 4),
        "average_precision": round(float(average_precision_score(wrong, found.p_wrong)), 4),
        "calibration_error": round(error, 4),
        "bins": bins,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("probs", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for seed in range(options.seeds):
        with np.load(options.probs / f"cifar10n_random1_patches_{seed}.npz") as kept:
            facts = measure(kept["probs"].astype(np.float64), seed)
        when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        line = {"benchmark": "audit_people", "date": when, "python": platform.python_version(), **facts}
        with LINES.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
