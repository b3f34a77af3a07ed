"""The two choices behind LabelMe's figure, made again without a clean label: features, and the weight of networks.

    python benchmarks/labelme_choice.py judge --processes 8      labels held out, five folds, nine forms
    python benchmarks/labelme_choice.py score --processes 8      the same forms on the test items, five seeds
    python benchmarks/labelme_choice.py summary                  the choice, and then what it is worth

Forms: features as they are, standardised, or standardised and drawn in by asinh; networks weighed against labels
(`posterior.weigh_model`) never, when training ends, or in every round. Criterion, fixed before the first line was
written: the mean log-probability of single labels of the training items that were left out of the fit,
``log sum_k q[n, k] A[r, k, y]`` with q from the network and the item's other labels. The form with the best mean of
the five folds is chosen. Test accuracy is recorded by another command and decides nothing.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import defaultdict
from functools import partial
from itertools import product
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
import torch
from crowd_joint import data_root
from torch import Tensor

from dubito._method import Stages
from dubito._random import permutation
from dubito.data import LabelledData, load
from dubito.methods import Method
from dubito.procedures import CrossFittedEM
from dubito.procedures.posterior import weigh_model
from dubito.sklearn import CrowdClassifier

HERE = Path(__file__).resolve().parents[1]
OUT = Path(os.environ.get("OUT", HERE / "results" / "labelme")) / "choice.jsonl"
FEATURES = ("raw", "standard", "asinh")
WEIGHED = ("never", "end", "always")
FOLDS = 5


class Weighing(CrossFittedEM):
    """Cross-fitted EM that weighs its networks when it is told to."""

    def __init__(self, *parts: Any, when: str, **options: Any) -> None:
        super().__init__(*parts, **options)
        self.when, self.ending = when, False

    def end(self, data: LabelledData) -> None:
        """The last posteriors."""
        self.ending = True
        super().end(data)

    def log_prior(self, log_p: Tensor, evidence: Tensor) -> Tensor:
        """Predictions, weighed or as they are."""
        weigh = self.when == "always" or (self.when == "end" and self.ending)
        return weigh_model(log_p, evidence) if weigh else log_p


def _built(when: str) -> Stages:
    return Stages(procedure=partial(Weighing, when=when), labels="all")


def inputs(kind: str) -> tuple[Any, Any, Any, Any, Any]:
    """Training and test features in one of the forms, the crowd, and what only `score` may read."""
    train, test = (load("labelme", split, root=data_root()) for split in ("train", "test"))
    X, X_test = (part.inputs.double().numpy() for part in (train, test))
    if kind != "raw":
        mean, scale = X.mean(0), X.std(0)
        scale[scale == 0] = 1.0
        X, X_test = (X - mean) / scale, (X_test - mean) / scale
    if kind == "asinh":
        X, X_test = np.arcsinh(X), np.arcsinh(X_test)
    return X, X_test, train.crowd_labels(), test.clean.numpy(), train.clean.numpy()


def fitted(X: Any, crowd: Any, when: str, seed: int) -> CrowdClassifier:
    method = Method("crossfit-em", partial(_built, when), "Cross-fitted EM.", valid=("crowd",))
    return CrowdClassifier(method, standardize=False, random_state=seed).fit(X, crowd)


def judge(job: tuple[str, str, int]) -> dict[str, Any]:
    """Mean log-probability of one fold of the labels."""
    torch.set_num_threads(1)
    features, when, fold = job
    X, _, crowd, _, _ = inputs(features)
    left = permutation(len(crowd), 0, purpose="held-out") % FOLDS == fold
    clf = fitted(X, crowd.select(~left), when, fold)
    item, who, label = (t[left].long().numpy() for t in (crowd.item, crowd.annotator, crowd.label))
    p = (clf.consensus_proba_[item] * clf.confusion_matrices_[who, :, label]).sum(1)
    return {"kind": "judge", "fold": fold, "held_out": float(np.log(np.maximum(p, 1e-9)).mean())}


def score(job: tuple[str, str, int]) -> dict[str, Any]:
    """Accuracy on the test items, and of the consensus on the training items."""
    torch.set_num_threads(1)
    features, when, seed = job
    X, X_test, crowd, gold, gold_train = inputs(features)
    clf = fitted(X, crowd, when, seed)
    right = float((clf.predict(X_test) == gold).mean())
    consensus = float((clf.consensus_ == gold_train).mean())
    return {"kind": "score", "seed": seed, "test_accuracy": right, "consensus": consensus}


def run(what: Any, processes: int, chosen: tuple[str, ...]) -> None:
    OUT.parent.mkdir(parents=True, exist_ok=True)
    forms = [f for f in product(FEATURES, WEIGHED) if not chosen or "+".join(f) in chosen]
    done = {_place(line) for line in _lines()}  # a run that was cut short goes on
    jobs = [(*form, i) for i in range(FOLDS) for form in forms if (*form, what.__name__, i) not in done]
    with Pool(processes) as pool, OUT.open("a", encoding="utf-8") as file:
        for job, found in zip(jobs, pool.imap(what, jobs)):
            line = {"benchmark": "labelme_choice", "features": job[0], "weighed": job[1], **found}
            file.write(json.dumps(line) + "\n")
            file.flush()


def _lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in OUT.read_text().splitlines()] if OUT.is_file() else []


def _place(line: dict[str, Any]) -> tuple[str, str, str, int]:
    return line["features"], line["weighed"], line["kind"], line.get("fold", line.get("seed"))


def summary() -> None:
    """Forms by the criterion, best first, with the gap to the best in errors over folds; then their scores."""
    found: dict[tuple[str, str], dict[str, dict[int, Any]]] = defaultdict(lambda: defaultdict(dict))
    for line in _lines():
        place = found[line["features"], line["weighed"]]
        place[line["kind"]][line.get("fold", line.get("seed"))] = line
    judged = {f: np.array([v["judge"][i]["held_out"] for i in sorted(v["judge"])]) for f, v in found.items()}
    order = sorted(judged, key=lambda f: -judged[f].mean())
    for form in order:
        gap = judged[order[0]] - judged[form]
        error = gap.std(ddof=1) / np.sqrt(len(gap)) if len(gap) > 1 else float("nan")
        test = [v["test_accuracy"] for v in found[form]["score"].values()]
        consensus = [v["consensus"] for v in found[form]["score"].values()]
        scores = (
            f"test {np.mean(test):.4f} (worst {min(test):.4f})  consensus {np.mean(consensus):.4f}"
            if test
            else ""
        )
        print(
            f"{'+'.join(form):18} held-out {judged[form].mean():.4f}, below the best by {gap.mean():.4f} +- "
            f"{error:.4f}   {scores}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("judge", "score", "summary"))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--forms", nargs="*", default=(), help="as asinh+end; all unless given")
    options = parser.parse_args()
    if options.what == "summary":
        summary()
    else:
        run({"judge": judge, "score": score}[options.what], options.processes, tuple(options.forms))


if __name__ == "__main__":
    main()
