"""Every public function and class of the index, with plausible and hostile arguments for each.

A call starts from plausible arguments, found by the name of the parameter, and one or two of them are replaced by
hostile ones of the kind that the annotation allows: tensors of other shapes, dtypes and values, numbers out of
every range, text, paths to nothing.
"""

from __future__ import annotations

import importlib
import inspect
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import dubito
from dubito import crowd, heads, losses, noise, papers
from dubito.data import LabelledData
from dubito.model import Model

CLASSES, FEATURES, ROWS, PEOPLE = 3, 4, 6, 2
# Plain records of values that were checked where they were made.
RECORDS = re.findall(
    r"\w+",
    """Latent Run Predictions Uncertainty Ceiling HiddenFeatureTask Interval PairedTest Reliability Triplets
    Aggregate CrowdRun Kappa Questions Summary Report Checkpoint Config Item Check Outcome Verdict DubitoError
    Head""",
)
# A step of the loop without checks of its own, optimisers that their functions make, a check of other people's code
# (it raises AssertionError by design), and what asks the network.
LEFT_OUT = ["example_losses", "RowAdam", "LARS", "check_loss", "download"]


def entry_points() -> dict[str, Callable[..., Any]]:
    """name -> callable, from the index and the public modules behind it."""
    found: dict[str, Callable[..., Any]] = {}
    for module in dubito._MODULES:
        home = importlib.import_module(f"dubito.{module}")
        public = getattr(home, "__all__", None) or [
            k for k, v in vars(home).items() if getattr(v, "__module__", "") == home.__name__ and k[0] != "_"
        ]
        for name in public:
            thing = getattr(home, name)
            if not inspect.isroutine(thing) and not inspect.isclass(thing):
                continue
            if name not in (*RECORDS, *LEFT_OUT) and thing not in found.values():
                found[f"{module}.{name}"] = thing
    return found


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def rows(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=generator())


def labels(n: int = ROWS) -> torch.Tensor:
    return torch.arange(n) % CLASSES


def probabilities() -> torch.Tensor:
    return rows(ROWS, CLASSES).softmax(-1)


def matrix() -> torch.Tensor:
    return noise.resample(CLASSES, 0.3)


def data() -> LabelledData:
    return LabelledData(rows(ROWS, FEATURES), labels())


def network() -> Model:
    with torch.random.fork_rng():
        backbone = nn.Sequential(nn.Linear(FEATURES, 5), nn.ReLU())
    return Model(backbone, heads.Point(5, CLASSES, generator=generator()))


def people() -> crowd.CrowdLabels:
    item, person = torch.arange(ROWS).repeat(PEOPLE), torch.arange(PEOPLE).repeat_interleave(ROWS)
    return crowd.CrowdLabels(item, person, labels(ROWS * PEOPLE))


PLAUSIBLE: dict[str, Callable[[], Any]] = {
    **{
        k: lambda: rows(ROWS, CLASSES)
        for k in ("logits", "student_logits", "teacher_logits", "mean", "z", "activations")
    },
    **{k: lambda: rows(ROWS, CLASSES).abs() for k in ("scale",)},
    **{k: lambda: rows(ROWS, FEATURES) for k in ("inputs", "features", "x")},
    **dict.fromkeys(("target", "labels", "index", "item", "true_labels"), labels),
    **dict.fromkeys(("probs", "predictions", "q"), probabilities),
    **{k: lambda: probabilities().log() for k in ("log_p", "log_probs")},
    **dict.fromkeys(("T", "matrix", "true", "estimated"), matrix),
    **{k: lambda: torch.stack([matrix()] * PEOPLE) for k in ("A", "matrices", "channel")},
    **{k: lambda: rows(ROWS).abs() for k in ("losses", "values", "ours", "other", "p_values", "weights")},
    **{k: lambda: CLASSES for k in ("num_classes",)},
    **{k: lambda: PEOPLE for k in ("num_annotators",)},
    **{k: lambda: FEATURES for k in ("in_features",)},
    **{
        k: lambda: 0.3
        for k in ("rate", "alpha", "sigma", "forget", "skill", "quantile", "lam", "threshold", "fraction")
    },
    **dict.fromkeys(("data", "valid", "dataset"), data),
    **{k: lambda: [network()] for k in ("models",)},
    "model": network,
    "crowd": people,
    "aggregate": lambda: crowd.aggregate(people()),
    "previous": lambda: crowd.aggregate(people()),
    "generator": generator,
    "parameters": lambda: list(network().named_parameters()),
    "root": lambda: rows(ROWS, CLASSES),
    "noise": lambda: rows(5, ROWS, CLASSES),
    "state": lambda: torch.tensor(0.5),
    "counts": lambda: torch.eye(CLASSES, dtype=torch.long),
    "images": lambda: rows(ROWS, 1, 8, 8),
    "annotators": lambda: torch.arange(ROWS) % PEOPLE,
    "items": lambda: torch.arange(ROWS),
    "statistic": lambda: np.mean,
    "mapping": lambda: {0: 1},
    "loss": lambda: losses.nll,
    "name": lambda: "mnist",
    "text": lambda: "gce",
    "shape": lambda: (1, 28, 28),
    "step": lambda: 3,
    "steps": lambda: 10,
    "epoch": lambda: 1,
    "size": lambda: 8,
    "seed": lambda: 0,
    "per_class": lambda: 2,
    "epochs": lambda: 1,
    "hidden": lambda: (8,),
    "at": lambda: (1, 2),
    "names": lambda: ["a", "b"],
    "obj": lambda: {"a": 1},
    "config": lambda: {"a": 1},
    "optimizer": lambda: torch.optim.Adam(network().parameters()),
    "train": lambda: lambda part: network(),
    "backbone": lambda: nn.Linear(FEATURES, 5),
    "head": lambda: heads.Point(5, CLASSES, generator=generator()),
    "weight_decay": lambda: 0.1,
    "decay": lambda: "all",
    "t": lambda: 1.2,
    "latent": lambda: heads.Latent(rows(ROWS, CLASSES)),
    "tensors": lambda: {"model": {"w": torch.zeros(3)}},
    "teacher": network,
    "params": lambda: list(network().parameters()),
    "summary": lambda: crowd.summarise(people(), crowd.aggregate(people())),
}

SPECIAL: dict[str, Callable[[], Any]] = {
    "run_id.config": lambda: next(iter(papers.item("englesson2023.table1-mnist").make("smoke", None, None))),
    "save.state": lambda: {"epoch": 1},
    "restore_optimizer.tensors": dict,
    "expected_gain.A": matrix,
    "mentornet.decay": lambda: 0.9,
    "moving_quantile.decay": lambda: 0.9,
    "SelfPaced.decay": lambda: 0.9,
}

TENSORS: list[Callable[[], torch.Tensor]] = [
    lambda: torch.empty(0),
    lambda: torch.empty(0, CLASSES),
    lambda: torch.empty(ROWS, 0),
    lambda: torch.tensor(1.0),
    lambda: torch.zeros(1, 1),
    lambda: rows(ROWS, CLASSES).fill_(float("nan")),
    lambda: rows(ROWS, CLASSES).fill_(float("inf")),
    lambda: 1e4 * rows(ROWS, CLASSES),
    lambda: rows(ROWS, CLASSES).half(),
    lambda: rows(ROWS, CLASSES).to(torch.complex64),
    lambda: rows(2, ROWS, CLASSES),
    lambda: rows(ROWS + 1, CLASSES),
    lambda: rows(ROWS, CLASSES + 1),
    lambda: torch.full((ROWS,), -1),
    lambda: torch.full((ROWS,), 99),
    lambda: labels().to(torch.uint8),
    lambda: labels().float(),
    lambda: labels() > 0,
    lambda: torch.eye(CLASSES),
    lambda: -torch.eye(CLASSES),
    lambda: torch.ones(CLASSES, CLASSES) / CLASSES,
    lambda: torch.zeros(CLASSES, CLASSES),
]
INTEGERS = [0, -1, 1, 2, 7, 10**12, -(2**63), -(10**6), 2**64 + 1]
FLOATS = [0.0, -0.0, 1.0, -1.0, 1e-320, 1e300, float("nan"), float("inf"), -float("inf"), 2.5, 1000]
TEXTS = [
    "",
    " ",
    "mean",
    "nothing like it",
    "../../etc/passwd",
    "a\nb",
    "\0",
    "é" * 300,
    "auto",
    "none",
    "<b>",
]
OTHERS = [None, object(), [], {}, (), b"x", set(), "text", 3, 2.5, [1, 2, 3], ["a"], {"a": 1}, print]


def alternatives(annotation: str) -> list[str]:
    """The members of a union, as written: ``"Tensor | tuple[int | str, ...]"`` has two."""
    found, depth = [""], 0
    for letter in annotation:
        depth += (letter in "[(") - (letter in "])")
        if letter == "|" and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return [text.strip() for text in found]


def of_kind(kind: str, dice: random.Random, folder: Path) -> list[Callable[[], Any]]:
    """How to make hostile values of one member of a union; empty for kinds that have none."""
    if kind in ("Tensor", "Array", "Labels", "Any") or kind.startswith("np.ndarray"):
        return [lambda: dice.choice(TENSORS)()]
    if kind in ("int", "Counter", "PerItem"):
        return [lambda: dice.choice(INTEGERS)]
    if kind in ("float", "Number", "Rate"):
        return [lambda: dice.choice(FLOATS)]
    if kind == "str" or kind.startswith("Literal"):
        return [lambda: dice.choice(TEXTS)]
    if "PathLike" in kind or kind == "Path":
        return [lambda: dice.choice([folder / "absent", folder, Path("/dev/null"), "\0", "", "x" * 5000])]
    if kind == "bool":
        return [lambda: dice.choice([True, False])]
    if kind.startswith("tuple[int") or kind.startswith("Sequence[int"):
        return [lambda: dice.choice([(), (0,), (-1,), (1, 2, 3), (10**12,), (7,) * 9])]
    if kind.startswith("tuple[float") or kind.startswith("Sequence[float"):
        return [lambda: dice.choice([(), (0.0,), (float("nan"),) * 3, (-1.0, 2.0), (1e300,) * 3])]
    return []


def hostile(annotation: str, dice: random.Random, folder: Path) -> tuple[Any, bool]:
    """A value of the annotated kind, or one time in ten of any other; and whether it is of another."""
    kinds = [make for kind in alternatives(annotation) for make in of_kind(kind, dice, folder)]
    if not kinds or dice.random() < 0.1:
        return dice.choice(OTHERS), True
    return dice.choice(kinds)(), False


def plausible(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """A value that the name and the annotation of a parameter suggest; None where there is no such thing."""
    name, kinds = parameter.name, alternatives(str(parameter.annotation))
    if f"{function.__name__}.{name}" in SPECIAL:
        return SPECIAL[f"{function.__name__}.{name}"]()
    found = PLAUSIBLE[name]() if name in PLAUSIBLE else None
    if isinstance(found, torch.Tensor) and not any(
        "Tensor" in k or k in ("Any", "Array", "Labels") for k in kinds
    ):
        return None
    if (isinstance(found, str) and "str" not in kinds) or (isinstance(found, int) and "int" not in kinds):
        return None
    return None if callable(found) and kinds == ["Tensor"] else found


def arguments(
    function: Callable[..., Any], dice: random.Random, folder: Path
) -> tuple[dict[str, Any], list[str], bool]:
    """Arguments for one call, the names of the hostile ones, and whether any is of a type nobody asked for."""
    given: dict[str, Any] = {}
    foreign = False
    parameters = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    for p in parameters:
        if p.default is p.empty or dice.random() < 0.2:
            if "PathLike" in str(p.annotation):
                given[p.name] = folder / "absent"
            elif (made := plausible(function, p)) is not None:
                given[p.name] = made
            elif p.default is not p.empty:
                given[p.name] = p.default
            else:
                given[p.name], other = hostile(str(p.annotation), dice, folder)
                foreign = foreign or other
    names = [p.name for p in parameters]
    bad = dice.sample(names, min(len(names), dice.choice([0, 1, 1, 1, 2])))
    for p in parameters:
        if p.name in bad:
            given[p.name], other = hostile(str(p.annotation), dice, folder)
            foreign = foreign or other
    return given, bad, foreign
