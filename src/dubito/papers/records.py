"""What a finished run leaves in its result: scores, and the analyses that its config asks for.

Each analysis of `Config.record` is one entry of the history, a mapping of plain lists:

| name | entries |
|---|---|
| curves | ``epoch``, ``train_clean``, ``train_noisy``: accuracy on the given labels of both parts |
| probabilities | ``edges``; counts of p(label) - 1/K: ``noisy_true``, ``noisy_given``, ``clean_true``, ``max`` |
| features | per group "0-1-2": ``points`` (x, y), ``label``, ``true``, ``mislabelled`` |
| residuals | ``edges`` of log10 r' S^-1 r; counts ``identity_clean``, ``identity_noisy``, ``learned_clean``, ... |
| regions | ``x``, ``y``: the axes; ``p``: rows of p(positive); ``points``, ``label``: the training set |
| separator | ``weight``, ``bias`` of the positive against the negative class |
| pixels | ``classes``; ``cases``: ``id``, ``iou``; ``image``, ``truth``, ``prediction``, ``deviation`` as text |
| confusion | ``estimated``, ``true``: matrices of the annotators; ``labels``: how many a real one gave |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from .. import metrics
from .._batches import Batches
from ..data import LabelledData
from ..errors import NotFiniteError
from ..evaluate import predict, scores
from ..losses.logistic_normal import _gaussian, _log_smoothed
from ..model import Model
from ..procedures import Plain
from . import crowds, pixels
from .configs import Config
from .prepare import Parts

BINS = 50
PER_CLASS = 200  # points of a class in a picture of features
GROUPS = ((0, 1, 2), (3, 4, 5))
SMALL = 0.25  # a residual is small below this share of the target's squared length


def scored(config: Config, model: Model, parts: Parts) -> dict[str, float]:
    """Test and validation scores, calibration, and accuracy on parts of the training set where asked for."""
    if pixels.is_pixels(config):
        return pixels.scored(config, model, parts.valid, parts.test)
    log_p, test = predict(model, parts.test).log_p, parts.test
    clean = test.labels if test.clean is None else test.clean
    if bool(log_p.isnan().any()):
        raise diverged(config)
    found = _named("test", scores(log_p, clean)) | _named("noisy_test", scores(log_p, test.labels))
    found["ece"] = metrics.ece(log_p.exp(), clean, bins=100)
    if parts.valid is not None:
        found |= _named("validation", scores(predict(model, parts.valid).log_p, parts.valid.labels))
    if "parts" in config.record and parts.train.clean is not None:
        found |= by_part(predict(model, parts.train).log_p, parts.train)
    return found


def diverged(config: Config) -> NotFiniteError:
    """What is said of a run whose predictions are not numbers."""
    settings = ", ".join(f"{k}={v}" for k, v in config.params)
    where = f"{config.method}: {settings}".rstrip(": ")
    return NotFiniteError("training diverged: predictions are not numbers", where=where)


def by_part(log_p: Tensor, train: LabelledData) -> dict[str, float]:
    """Accuracy on all, rightly and wrongly labelled training examples, against true and given labels."""
    true: Tensor = train.clean  # type: ignore[assignment]
    wrong = train.labels != true
    predicted = log_p.argmax(-1)
    found = {
        "train_full_true": _share(predicted == true),
        "train_clean_true": _share((predicted == true)[~wrong]),
    }
    if bool(wrong.any()):
        found["train_noisy_true"] = _share((predicted == true)[wrong])
        found["train_noisy_given"] = _share((predicted == train.labels)[wrong])
    return found


def analysed(
    config: Config, model: Model, parts: Parts, procedure: Plain | None = None
) -> tuple[dict[str, Any], dict[str, float]]:
    """(history, further metrics) of the analyses in the config's `record` that this run can have."""
    history: dict[str, Any] = {}
    numbers: dict[str, float] = {}
    for name in config.record:
        if name in ANALYSES:
            found, more = ANALYSES[name](config, model, parts)
            history |= {name: found} if found else {}
            numbers |= more
    if "confusion" in config.record and procedure is not None:
        found, more = confusion(config, model, parts, procedure)
        history |= {"confusion": found} if found else {}
        numbers |= more
    return history, numbers


Analysis = tuple[Mapping[str, Any], dict[str, float]]


def _probabilities(config: Config, model: Model, parts: Parts) -> Analysis:
    """Probability of a label minus the mean probability 1/K, on parts of the training set."""
    train = parts.train
    if train.clean is None:
        return {}, {}
    p = predict(model, train).log_p.exp()
    wrong = train.labels != train.clean
    base = 1 / p.shape[-1]

    def of(labels: Tensor) -> Tensor:
        return p.gather(-1, labels.unsqueeze(-1)).squeeze(-1) - base

    columns = {
        "noisy_true": of(train.clean)[wrong],
        "noisy_given": of(train.labels)[wrong],
        "clean_true": of(train.clean)[~wrong],
        "max": p.amax(-1) - base,
    }
    edges = torch.linspace(-base, 1 - base, BINS + 1)
    counts = {name: _counts(values, edges) for name, values in columns.items()}
    return {"edges": _rounded(edges), **counts}, {}


def _features(config: Config, model: Model, parts: Parts) -> Analysis:
    """Penultimate activations on the plane through the last layer's vectors of three classes."""
    layer = getattr(model.head, "mean", None)
    if layer is None or parts.train.clean is None:
        return {}, {}
    found = {}
    for classes in GROUPS:
        if classes[-1] >= model.num_classes:
            continue
        rows = [(parts.train.labels == c).nonzero().flatten()[:PER_CLASS] for c in classes]
        chosen = torch.cat(rows)
        if not len(chosen):  # in a handful of examples no class need occur
            continue
        part = parts.train.subset(chosen)
        h = _outputs(part, model.backbone)
        basis = plane(layer.weight.detach()[list(classes)])
        true: Tensor = part.clean  # type: ignore[assignment]
        found["-".join(map(str, classes))] = {
            "points": _rounded(h @ basis),
            "label": part.labels.tolist(),
            "true": true.tolist(),
            "mislabelled": (part.labels != true).tolist(),
        }
    return found, {}


def plane(vectors: Tensor) -> Tensor:
    """An orthonormal basis ``(F, 2)`` of the directions between three vectors ``(3, F)``."""
    differences = (vectors[1:] - vectors[:1]).T.double()
    basis: Tensor = torch.linalg.qr(differences).Q
    return basis.to(vectors.dtype)


def _residuals(config: Config, model: Model, parts: Parts) -> Analysis:
    """r' S^-1 r for S = I and for the learned covariance, clean and mislabelled examples apart."""
    train = parts.train
    if train.clean is None or not hasattr(model.head, "covariance"):
        return {}, {}
    values = dict(config.params)
    latents = _outputs(train, model.latent)
    mean, root = latents
    log_s, reference = _log_smoothed(
        train.labels, mean.shape[-1], float(values["smoothing"]), bool(values["dummy"]), mean.dtype  # type: ignore[arg-type]
    )  # fmt: skip
    target = model.tau * (log_s - reference)
    covariance = str(values["covariance"])
    wrong = train.labels != train.clean
    forms = {"identity": _gaussian(target - mean, None, 1.0, "identity")[0]}
    if covariance != "identity":
        forms["learned"] = _gaussian(target - mean, root, float(values["lam"]), covariance)[0]  # type: ignore[arg-type]
    edges = torch.linspace(-4, 4, BINS + 1)
    found: dict[str, Any] = {"edges": _rounded(edges)}
    for form, squared in forms.items():
        log10 = squared.clamp(min=1e-4, max=1e4).log10()
        found[f"{form}_clean"] = _counts(log10[~wrong], edges)
        found[f"{form}_noisy"] = _counts(log10[wrong], edges)
    small = forms["identity"] < SMALL * target.square().sum(-1)
    return found, {"noisy_small_residuals": _share(small[wrong])} if bool(wrong.any()) else {}


def _regions(config: Config, model: Model, parts: Parts) -> Analysis:
    """p(positive) on a grid around the training points."""
    inputs: Tensor = parts.train.inputs[parts.train.rows]  # type: ignore[index]
    low, high = inputs.amin(0) - 0.3, inputs.amax(0) + 0.3
    x, y = (torch.linspace(float(low[i]), float(high[i]), 60) for i in range(2))
    grid = torch.cartesian_prod(y, x).flip(-1)
    data = LabelledData(grid.to(inputs), torch.zeros(len(grid), dtype=torch.int64, device=inputs.device))
    p = predict(model, data).log_p.exp()[:, 1].view(60, 60)
    marks = {"points": _rounded(inputs), "label": parts.train.labels.tolist()}
    return {"x": _rounded(x), "y": _rounded(y), "p": _rounded(p), **marks}, {}


def _separator(config: Config, model: Model, parts: Parts) -> Analysis:
    layer: Any = model.head.mean
    weight, bias = layer.weight.detach().double(), layer.bias.detach().double()
    return {"weight": (weight[1] - weight[0]).tolist(), "bias": float(bias[1] - bias[0])}, {}


def confusion(config: Config, model: Model, parts: Parts, procedure: Plain) -> Analysis:
    """Matrices of the annotators beside the true ones, and their distance; none where none is estimated."""
    estimated = estimated_matrices(model, procedure)
    true = crowds.true_matrices(config, parts.train)
    if estimated is None or true is None or estimated.shape != true.shape:
        return ({} if estimated is None else {"estimated": _rounded(estimated)}), {}
    error = metrics.confusion_error(estimated, true)
    eye = torch.eye(model.num_classes, dtype=torch.float64)
    skills = [m.diagonal(dim1=1, dim2=2).mean(1) for m in (estimated, true)]
    numbers = {
        "cm_error": error,
        "cm_error_entry": error / model.num_classes,
        "cm_from_identity": float((estimated - eye).abs().max()),
        "skill_correlation": rank_correlation(*skills),
    }
    found: dict[str, Any] = {"estimated": _rounded(estimated), "true": _rounded(true)}
    if not config.annotators and parts.train.crowd is not None:
        found["labels"] = torch.bincount(parts.train.crowd.annotator, minlength=len(true)).tolist()
    return found, numbers


def estimated_matrices(model: Model, procedure: Plain) -> Tensor | None:
    """``A[r, true, observed]`` of a channel, or as an EM procedure has counted them."""
    counted = getattr(procedure, "matrices", None)
    if isinstance(counted, Tensor):
        return counted.detach().double().cpu()
    if model.channel is None or not hasattr(model.channel, "log_matrices"):
        return None
    found: Tensor = model.channel.log_matrices()  # type: ignore[operator]
    return found.detach().double().exp().cpu()


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Spearman's correlation, ties by order; NaN for fewer than two."""
    ranks = torch.stack([v.argsort().argsort().double() for v in (a, b)])
    return float(torch.corrcoef(ranks)[0, 1]) if len(a) > 1 else float("nan")


ANALYSES: dict[str, Callable[[Config, Model, Parts], Analysis]] = {
    "probabilities": _probabilities,
    "features": _features,
    "residuals": _residuals,
    "regions": _regions,
    "separator": _separator,
    "pixels": lambda config, model, parts: (pixels.pictured(config, model, parts.test), {}),
}


@torch.no_grad()
def _outputs(data: LabelledData, function: Callable[[Tensor], Any]) -> Any:
    """A function of all inputs, batch by batch: a tensor, or (mean, root) of a latent."""
    found = [function(batch.x) for batch in Batches(data).all()]
    if isinstance(found[0], Tensor):
        return torch.cat(found)
    return tuple(torch.cat([getattr(latent, name) for latent in found]) for name in ("mean", "root"))


def _named(prefix: str, found: Mapping[str, float]) -> dict[str, float]:
    return {f"{prefix}_{name}": value for name, value in found.items()}


def _share(right: Tensor) -> float:
    return float(right.double().mean()) if right.numel() else float("nan")


def _counts(values: Tensor, edges: Tensor) -> list[int]:
    counts: list[int] = torch.histogram(values.float().cpu(), edges)[0].long().tolist()
    return counts


def _rounded(values: Tensor) -> Any:
    return values.double().round(decimals=4).cpu().tolist()
