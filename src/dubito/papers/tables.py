"""The papers' printed numbers, read from the one file that holds them.

Nothing here is typed from memory: a cell that is not in ``paper_tables.json`` does not exist. The names used in
that file are mapped to ours by the literal dicts below.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from ..errors import DubitoError, nearest
from .configs import Config

# method in the file -> ours; "name:key=value" is a variant with that parameter.
METHODS: dict[str, dict[str, str]] = {
    "collier2020": {
        "homoscedastic": "ce",
        "het_tau1": "het",
        "het_tau_star": "het-tau",
        "coteaching": "coteaching",
        "mentornet": "mentornet",
        "bootstrap": "bootstrap",
    },
    "englesson2023": {
        "ce": "ce",
        "bitempered": "bi-tempered",
        "gce": "gce",
        "nan": "nan",
        # This paper's forward correction estimates its matrix.
        "forward": "forward:transition=estimated",
        "het": "het",
        "het_tau": "het-tau",
        "het_tau_full": "het-full",
        "ln": "ln",
    },
    "lukasik2020": {
        "ce": "ce",
        "ls": "smooth",
        "fc": "forward",
        "bc": "backward",
        "fc_patrini": "forward:transition=estimated",
        "bc_patrini": "backward:transition=estimated",
        "vanilla_distillation": "distill",
        "ls_teacher": "distill:teacher=smooth",
        "ls_student": "distill:student=smooth",
        "fc_teacher": "distill:teacher=forward",
        "fc_student": "distill:student=forward",
    },
    "tanno2019": {
        "trace": "trace",
        "no_trace": "no-trace",
        "mbem": "mbem",
        "gem": "gem",
        "single_cm": "single-cm",
        "wdn": "wdn",
        "soft_bootstrap": "bootstrap",
        "vanilla": "ce",
    },
}

DATASETS = {
    "MNIST": "mnist",
    "CIFAR-10": "cifar10",
    "CIFAR-100": "cifar100",
    "SVHN": "svhn",
    "CIFAR-10N": "cifar10n",
    "CIFAR-100N": "cifar100n",
    "Clothing1M": "clothing1m",
    "ImageNet": "imagenet",
    "Cityscapes": "cityscapes",
    "PASCAL VOC": "voc",
}
NETWORKS = {"ResNet-32": "resnet32", "ResNet-56": "resnet56", "ResNet-v2-50": "resnetv2-50"}
NOISES = {"none": "none", "symmetric": "resample", "asymmetric": "asymmetric"}
# Hyper-parameters in the file -> ours.
PARAMS = {"temperature": "temperature", "R": "rank", "lambda": "lam"} | {
    n: n for n in ("t1", "t2", "q", "sigma")
}
PER_ITEM = {"dense": 0, "one_per_image": 1}


@dataclass(frozen=True)
class Metric:
    """A number of a result file, as a paper prints it.

    Arguments:
        ours: its key in the metrics of a result.
        printed: its name in the tables' file; "" when no table prints it.
        factor: printed = factor * ours.
        where: further keys of the printed cell (the part of the training set, say).
        digits: decimals shown.
    """

    ours: str
    printed: str = ""
    factor: float = 1.0
    where: tuple[tuple[str, str], ...] = ()
    digits: int = 2
    level: bool = True  # False: the paper's scale is not certain, only orders are held against it

    @property
    def tolerance(self) -> float:
        """Two points, on the printed scale: 2 for per cent, 0.02 for shares and log-likelihoods."""
        return 0.02 * self.factor

    @property
    def is_share(self) -> bool:
        """Whether it is printed in per cent and cannot leave 0 to 100; errors of matrices reach 200."""
        return self.factor == 100.0 and not self.ours.startswith("cm_error")


def _part(ours: str, part: str, labels: str) -> Metric:
    return Metric(ours, "train_accuracy_percent", 100.0, (("part", part), ("labels", labels)))


METRICS: dict[str, Metric] = {
    # Accuracy on clean test labels.
    "test_accuracy": Metric("test_accuracy", "test_accuracy_percent", 100.0),
    "crowd_accuracy": Metric("test_accuracy", "accuracy_percent", 100.0),
    "accuracy_clean": Metric("test_accuracy", "accuracy_clean", digits=3),
    # On test labels that went through the noise (equal to the clean ones where there is none).
    "noisy_accuracy": Metric("noisy_test_accuracy", "accuracy", digits=3),
    "noisy_log_likelihood": Metric("noisy_test_log_likelihood", "log_likelihood", digits=3),
    "ece": Metric("ece", "ece_100_bins", digits=3),
    # 1/(R L^2) sum of squared differences: the normalisation that fits the printed level; and the stated one.
    "cm_error": Metric("cm_error_entry", "cm_error_x100", 100.0, level=False),
    "cm_error_stated": Metric("cm_error", "", 100.0),
    # Accuracy on parts of the training set, against true or given labels.
    "train_full_true": _part("train_full_true", "full_train", "true"),
    "train_clean_true": _part("train_clean_true", "clean_part", "true"),
    "train_noisy_true": _part("train_noisy_true", "noisy_part", "true"),
    "train_noisy_given": _part("train_noisy_given", "noisy_part", "noisy"),
    "miou": Metric("miou", "miou_percent", 100.0, (("split", "validation"),)),
    "miou_test": Metric("miou_test", "miou_percent", 100.0, (("split", "test"),)),
    "validation_accuracy": Metric("validation_accuracy", "", 100.0),
    # Share of mislabelled training examples whose residual r'r is small (below a quarter of the target's norm).
    "noisy_small_residuals": Metric("noisy_small_residuals"),
    # Largest difference between the estimated matrices and the identity; rank correlation of skills.
    "cm_from_identity": Metric("cm_from_identity", digits=3),
    "skill_correlation": Metric("skill_correlation", digits=3),
}


@dataclass(frozen=True)
class Cell:
    """One printed number: value, standard deviation over seeds, mark of significance, bold face."""

    value: Any
    spread: float | None = None
    stars: str | None = None
    bold: bool = False
    printed: str | None = None


_FACTS = ("value", "spread", "stars", "bold", "printed", "p_below", "where", "metric")


@functools.cache
def load() -> dict[str, Any]:
    """The whole file."""
    text = resources.files(__package__).joinpath("paper_tables.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


@functools.cache
def _tables() -> dict[str, Mapping[str, Any]]:
    return {table["id"]: table for table in load()["tables"]}


def table(table_id: str) -> Mapping[str, Any]:
    """One table as stored: caption, rows, columns, notes, cells."""
    if table_id not in _tables():
        raise DubitoError("no such table", got=repr(table_id), remedy=nearest(table_id, _tables()))
    return _tables()[table_id]


@functools.cache
def _index(table_id: str) -> dict[tuple[tuple[str, Any], ...], Cell]:
    cells = {}
    for cell in table(table_id)["cells"]:
        keys = {k: v for k, v in cell.items() if k not in _FACTS}
        place = tuple(sorted({**keys, "metric": cell["metric"]}.items()))
        facts = {k: cell[k] for k in ("value", "spread", "stars", "bold", "printed") if k in cell}
        cells[place] = Cell(**facts)
    return cells


def paper_value(table_id: str, *, metric: str, **row_keys: Any) -> Cell | None:
    """A printed cell by the file's own keys and names, or None where the paper has none.

    Example:
        >>> paper_value("englesson2023.table1", dataset="MNIST", method="ln", noise="asymmetric", rate=0.4,
        ...             metric="test_accuracy_percent").printed
        '96.54'
        >>> paper_value("englesson2023.table1", dataset="SVHN", method="ln", noise="asymmetric", rate=0.4,
        ...             metric="test_accuracy_percent") is None
        True
    """
    return _index(table_id).get(tuple(sorted({**row_keys, "metric": metric}.items())))


def setting(paper: str, item: str) -> Any:
    """A number of the protocol that a paper states in its text."""
    stated = {cell["item"]: cell["value"] for cell in table(f"{paper}.settings")["cells"]}
    if item not in stated:
        raise DubitoError("no such setting", where=paper, got=repr(item), remedy=nearest(item, stated))
    return stated[item]


def chosen(table_id: str, *, method: str, **row_keys: Any) -> dict[str, Any] | None:
    """The hyper-parameters that a paper chose, by our names of method and parameters; None where it gives none.

    Example:
        >>> chosen("englesson2023.table5", dataset="MNIST", noise="asymmetric", rate=0.4, method="ln")
        {'lam': 0.1, 'temperature': 0.5}
    """
    paper = table_id.partition(".")[0]
    theirs = [name for name, ours in METHODS[paper].items() if ours == method]
    wanted = {"method": theirs[0], **row_keys} if theirs else {}
    found = {}
    for cell in table(table_id)["cells"]:
        if theirs and all(cell.get(key) == value for key, value in wanted.items()):
            name = PARAMS[cell["metric"]]
            found[name] = int(cell["value"]) if name == "rank" else cell["value"]
    return dict(sorted(found.items())) or None


def method_label(config: Config) -> str:
    """The config's method as a row of a table: our name, with the parameters that make it a variant."""
    variants = [v for v in METHODS.get(config.paper, {}).values() if v.partition(":")[0] == config.method]
    fitting = [v for v in variants if _fits(config, v)]
    return max(fitting, key=len, default=config.method)


def _fits(config: Config, variant: str) -> bool:
    _, _, option = variant.partition(":")
    key, _, value = option.partition("=")
    return not option or str(config.param(key, "")) == value


def paper_cell(table_id: str, config: Config, metric: Metric) -> Cell | None:
    """What the paper prints where this config belongs, or None."""
    if not table_id or not metric.printed:
        return None
    keys = _keys(table_id, config)
    return (
        None
        if keys is None
        else paper_value(table_id, metric=metric.printed, **{**keys, **dict(metric.where)})
    )


def _keys(table_id: str, config: Config) -> dict[str, Any] | None:
    """The file's keys for a config, for the keys that this table has."""
    paper = table_id.partition(".")[0]
    inverse = {ours: theirs for theirs, ours in METHODS[paper].items()}
    needed, methods = _shape(table_id)
    method, alpha = inverse.get(method_label(config)), config.param("alpha", 0.0)
    if method == "ce" and "ce" not in methods:
        method = "ls"  # Tables over alpha print plain training as smoothing by nothing.
    labels = config.labels or {per: name for name, per in PER_ITEM.items()}.get(config.per_item, "")
    values = {
        "dataset": {ours: theirs for theirs, ours in DATASETS.items()}.get(config.data),
        "method": method,
        "noise": {ours: theirs for theirs, ours in NOISES.items()}.get(config.noise),
        "rate": config.rate,
        "labels": labels,
        "network": {ours: theirs for theirs, ours in NETWORKS.items()}.get(config.network),
        "alpha": alpha,
        "covariance": config.param("covariance", "full"),
        "dummy_class": config.param("dummy", True),
    }
    keys = {key: values.get(key) for key in needed}
    return None if any(value is None for value in keys.values()) else keys


@functools.cache
def _shape(table_id: str) -> tuple[frozenset[str], frozenset[str]]:
    """The keys of a table's cells that a config answers (parts and splits belong to metrics), and its methods."""
    cells = table(table_id)["cells"]
    keys = frozenset(key for cell in cells for key in cell if key not in _FACTS) - {"part", "split"}
    return keys, frozenset(cell["method"] for cell in cells if "method" in cell)
