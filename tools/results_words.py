"""Names of cells, noise and parameters in plain words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dubito.papers.configs import Config
from dubito.papers.items import Item
from dubito.papers.results import Result
from dubito.papers.tables import method_label

NOISES = {
    "none": "no noise",
    "resample": "symmetric",
    "asymmetric": "asymmetric",
    "flip_to_other": "to another class",
    "class_dependent": "class dependent",
    "natural": "human labels",
    "pairwise_flippers": "pairwise flippers",
    "hammer_spammers": "hammer-spammers",
    "cifar10_annotators": "four annotators",
}
METHODS = {
    "ce": "ce (plain training)",
    "forward:transition=estimated": "forward (estimated matrix)",
    "backward:transition=estimated": "backward (estimated matrix)",
}
DATA = {
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "cifar10n": "CIFAR-10N",
    "cifar100n": "CIFAR-100N",
    "svhn": "SVHN",
    "svhn_crops": "SVHN crops",
    "camvid": "CamVid",
    "labelme": "LabelMe",
}

# Items on a public set in place of the paper's, which nobody else has.
STANDS_IN = {
    "tanno2019.figure7": "Data, annotators and network are not the paper's: LabelMe stands in, as said below. "
    "Optimiser, length of training and selection are as on its other sets."
}


def method_words(method: str) -> str:
    """ "forward (estimated matrix)"."""
    return METHODS.get(method, method)


def noise_words(config: Config) -> str:
    """ "symmetric noise, 40 %"."""
    if config.noise == "none":
        return "no noise"
    kind = NOISES.get(config.noise, config.noise)
    if config.noise == "flip_to_other":
        return f"{100 * config.rate:.0f} % moved to another class"
    if config.noise == "natural":
        return f"{kind}, {config.labels}" if config.labels else kind
    if config.annotators:
        each = "all label every item" if not config.per_item else f"{config.per_item} label per item"
        return f"{config.annotators} {kind}, skill {config.skill:g}, {each}"
    if config.matrix and not config.rate:
        return f"{kind} noise, {config.matrix}"
    return f"{kind} noise, {100 * config.rate:.0f} %"


def column_words(item: Item, column: tuple[str, ...]) -> str:
    """A column of a table."""
    if item.columns == ("noise", "rate"):
        noise, rate = column
        kind = NOISES.get(noise, noise)
        return kind if noise == "none" else f"{kind} {100 * float(rate):.0f} %"
    return " ".join(_word(name, value) for name, value in zip(item.columns, column) if value) or "all"


def row_words(item: Item, row: tuple[str, ...]) -> str:
    """A row of a table."""
    return " ".join(_word(name, value) for name, value in zip(item.rows, row) if value) or "all"


def _word(name: str, value: str) -> str:
    if name == "method":
        return method_words(value)
    if name == "data":
        return DATA.get(value, value)
    if name == "noise":
        return NOISES.get(value, value)
    return value if name in ("labels", "network") else f"{name}={value}"


def parameters(params: tuple[tuple[str, Any], ...]) -> str:
    """ "lam=0.1, temperature=0.5"; what is always the same for a method is left out."""
    hidden = {"smoothing", "covariance", "dummy", "transition"}
    shown = [(k, v) for k, v in params if k not in hidden]
    return ", ".join(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in shown)


def formats(results: Iterable[Result]) -> dict[str, set[str]]:
    """Numbers that convolutions on a GPU were computed with -> the methods that were run so."""
    found: dict[str, set[str]] = {}
    for r in results:
        kind = next((k for k in ("bfloat16", "float32") if r.on_gpu and k in r.hardware), None)
        if kind:
            found.setdefault(kind, set()).add(method_label(r.config))
    return found


def arithmetic(results: Iterable[Result]) -> str:
    """ "bfloat16", or "float32 for ln and bfloat16 for the other methods"."""
    found = sorted(formats(results).items(), key=lambda pair: len(pair[1]))
    if len(found) < 2:
        return "".join(kind for kind, _ in found)
    (few, methods), (many, _) = found
    return f"{few} for {', '.join(method_words(m) for m in sorted(methods))} and {many} for the other methods"
