"""An estimator for labels of several annotators, with the interface of scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Generator, Tensor, nn

from . import optim
from ._crowd_posteriors import Judged, judge, questions
from ._crowd_rows import aligned, is_table, one_annotator, same_items, table_classes
from ._estimator_splits import groups_of
from ._estimators import network, seed_of, standardised, statistics
from .backbones import MLP
from .compose import train_method
from .crowd import CrowdLabels, Questions
from .data import LabelledData
from .data._alike import GROUP
from .data._labelled import Triplets
from .errors import DubitoError
from .evaluate import predict
from .methods import Method, parse

Array = np.ndarray[Any, Any]

FEWEST_EPOCHS, FEWEST_STEPS = 100, 800


class CrowdClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier and the annotators it learns from, by any method for crowds of `dubito.methods`.

    The default is cross-fitted EM around a linear model, which starts at 0, with strong weight decay: for a few
    thousand examples described by features. Features are standardised, and then drawn in by asinh, so that outliers
    count by their logarithm.

    Arguments:
        method: a method and its parameters, as ``"trace:trace=0.1"`` or ``"crossfit-em:folds=10"``, or a `Method`.
        backbone: ``"linear"``; widths of a perceptron, as ``(128,)``; a name for `backbones.build`, with images
            ``(N, C, H, W)`` for networks that read them; or a function ``(shape, generator) -> network`` with
            `out_features`.
        epochs: None: 100, or more where the data is so small that these make fewer than 800 steps.
        batch_size, learning_rate: of Adam.
        weight_decay: of the network's matrices, not of the annotators'.
        standardize: whether features are brought to mean 0 and deviation 1, and drawn in.
        missing: what stands for "no label" in an items x annotators array; NaN always does.
        random_state: an integer makes fits repeatable; None draws a new seed.
        device: "cpu", "cuda" or "auto".

    Attributes after `fit`:
        classes_: the classes, in the order of the columns of `predict_proba`.
        crowd_: the labels as `CrowdLabels`; annotators and labels below are in its order.
        model_: the trained `Model`, in float64. history_: one record per epoch.
        confusion_matrices_: ``A[r, true, given]``, ``(annotators, classes, classes)``.
        skills_: mean of the diagonal of each matrix. skill_intervals_: central 95 % intervals ``(annotators, 2)``.
        consensus_: the most probable class of each training item given its labels and its input.
        consensus_proba_: the probabilities behind it, ``(items, classes)``.
        label_quality_: probability that each single label is right, ``(labels,)``.

    Example:
        >>> X = np.random.default_rng(0).normal(size=(200, 2))
        >>> true = (X[:, 0] > 0).astype(int)
        >>> y = np.stack([true, true, 1 - true], axis=1)
        >>> clf = CrowdClassifier(random_state=0).fit(X, y)
        >>> clf.predict([[2.0, 0.0], [-2.0, 0.0]])
        array([1, 0])
        >>> clf.skills_.round(1)
        array([1., 1., 0.])
    """

    classes_: Array
    _mean: Array | float
    _scale: Array | float

    def __init__(
        self,
        method: str | Method = "crossfit-em",
        *,
        backbone: str | tuple[int, ...] | Callable[..., nn.Module] = "linear",
        epochs: int | None = None,
        batch_size: int = 128,
        learning_rate: float = 3e-3,
        weight_decay: float = 0.03,
        standardize: bool = True,
        missing: Any = -1,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
    ) -> None:
        self.method = method
        self.backbone = backbone
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.standardize = standardize
        self.missing = missing
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any, groups: Any = None) -> CrowdClassifier:
        """Train on examples and the labels that annotators gave them.

        Arguments:
            X: array or frame ``(N, features)``, or images for a backbone that reads them.
            y: a `CrowdLabels` whose items, in the order of its `item_ids`, are the rows of X; an array items x
                annotators, where -1 or NaN is no label; or one label per example ``(N,)``, all from one annotator.
            groups: the group of each row of X ``(N,)``, as its patient: the folds of cross-fitted EM cut none. By
                default rows with the same input.
        """
        if isinstance(y, CrowdLabels) or is_table(y, self.missing):
            crowd = self._crowd(y, X)
            X = validate_data(self, X, **self._reading)
        else:
            X, y = validate_data(self, X, y, multi_output=True, **self._reading)
            crowd = one_annotator(y)
        self._accept(X, crowd)
        self._mean, self._scale = statistics(X) if self.standardize else (0.0, 1.0)
        seed = seed_of(self.random_state)
        data = LabelledData(
            self._inputs(X).to(torch.get_default_dtype()),
            torch.full((len(X),), -1),
            classes=tuple(map(str, crowd.classes)),
            crowd=Triplets(*(t.long() for t in (crowd.item, crowd.annotator, crowd.label))),
            annotators=tuple(map(str, crowd.annotator_ids)),
            extra={} if groups is None else {GROUP: groups_of(groups, X)},
            name="training data",
        )
        method, params = (self.method, {}) if isinstance(self.method, Method) else parse(self.method)
        if "crowd" not in method.valid:
            raise DubitoError(
                "this method does not learn from annotators",
                got=method.name,
                remedy="use crossfit-em or trace",
            )
        run = train_method(
            method,
            params,
            partial(_backbone, self.backbone, tuple(X.shape[1:])),
            data,
            seed=seed,
            num_classes=crowd.num_classes,
            head_init="zeros" if self.backbone == "linear" else "glorot",
            epochs=self._length(len(data)) if self.epochs is None else self.epochs,
            batch_size=self.batch_size,
            optimizer=partial(
                optim.row_adam, lr=self.learning_rate, weight_decay=self.weight_decay, decay="networks"
            ),
            device=self.device,
            progress=False,
        )
        self.crowd_, self.history_ = crowd, run.history
        self._judged = judge(run, data)
        self.model_ = run.model.cpu().double()
        return self

    def _length(self, items: int) -> int:
        """Epochs where none are told."""
        batch = (
            self.batch_size if isinstance(self.batch_size, int) else 1
        )  # what is no number is refused later
        return max(FEWEST_EPOCHS, math.ceil(FEWEST_STEPS / math.ceil(items / max(batch, 1))))

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the true class ``(N, K)``, columns in the order of `classes_`."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, **self._reading)
        log_p = predict(self.model_, LabelledData(self._inputs(X), torch.full((len(X),), -1))).log_p
        found: Array = log_p.softmax(-1).numpy()
        return found

    def predict(self, X: Any) -> Array:
        """The most probable true class of each example."""
        codes = self.predict_proba(X).argmax(1)
        found: Array = self.classes_[codes]
        return found

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of the labels that are the predicted class: the accuracy where y holds the true classes.

        y is as in `fit`. Labels of several annotators are compared one by one, missing ones left out: wrong labels
        keep it below 1, but models can be chosen by it where no truth is known. Weights are those of the rows.
        """
        if not isinstance(y, CrowdLabels) and not is_table(y, self.missing):
            return float(super().score(X, y, sample_weight))
        crowd, predicted = self._crowd(y, X), self.predict_proba(X).argmax(1)
        same_items(crowd, len(predicted))
        if len(crowd) == 0:
            raise DubitoError("no labels to compare the predictions with")
        place = {c: i for i, c in enumerate(self.classes_.tolist())}
        code, item = np.array([place.get(c, -1) for c in crowd.classes.tolist()]), crowd.item.numpy()
        weights = None if sample_weight is None else np.asarray(sample_weight)[item]
        return float(np.average(predicted[item] == code[crowd.label.numpy()], weights=weights))

    def ask_next(self, n: int = 10, *, per_annotator: int | None = None) -> Questions:
        """The n questions that tell most: which item, and whom to ask.

        The gain of a question is the information, in nats, that the annotator's answer is expected to give about
        the item's class. An item is asked about once, and nobody about what they have labelled.

        Arguments:
            per_annotator: the most questions for one annotator; no limit unless given.
        """
        return questions(self.crowd_, self._found, n, per_annotator)

    @property
    def confusion_matrices_(self) -> Array:
        """``A[r, true, given]`` of all annotators, rows sum to one."""
        return _array(self._found.matrices)

    @property
    def skills_(self) -> Array:
        """The chance of a right label on an item whose class is drawn evenly, per annotator."""
        return _array(self._found.matrices.diagonal(dim1=1, dim2=2).mean(-1))

    @property
    def skill_intervals_(self) -> Array:
        """Central 95 % intervals of the skills, ``(annotators, 2)``."""
        return _array(self._found.skill_intervals(0.95))

    @property
    def consensus_proba_(self) -> Array:
        """Probabilities of the true classes of the training items, ``(items, classes)``."""
        return _array(self._found.posteriors)

    @property
    def consensus_(self) -> Array:
        """The most probable class of each training item."""
        found: Array = self.classes_[self.consensus_proba_.argmax(1)]
        return found

    @property
    def label_quality_(self) -> Array:
        """Probability that each single label is right, in the order of `crowd_`."""
        return _array(self._found.quality())

    @property
    def _found(self) -> Judged:
        check_is_fitted(self)
        return self._judged

    @property
    def _reading(self) -> dict[str, Any]:
        return {"dtype": np.float64, "allow_nd": self.backbone != "linear"}

    def _crowd(self, y: Any, X: Any) -> CrowdLabels:
        """Labels of a crowd, items in the order of the rows of X."""
        if isinstance(y, CrowdLabels):
            return aligned(y, X)
        return CrowdLabels.from_dense(y, missing=self.missing, classes=table_classes(y, self.missing))

    def _accept(self, X: Array, crowd: CrowdLabels) -> None:
        same_items(crowd, len(X))
        self.classes_ = np.asarray(crowd.classes.tolist())
        if len(self.classes_) < 2:
            raise DubitoError(
                "the labels hold one class, which leaves nothing to learn",
                got=self.classes_.tolist(),
                remedy="pass missing=np.nan if -1 is a class and no gap",
            )

    def _inputs(self, X: Array) -> Tensor:
        return standardised(X, self._mean, self._scale, self.standardize)


def _backbone(backbone: Any, shape: tuple[int, ...], source: Generator) -> nn.Module:
    if backbone == "linear":
        return MLP(math.prod(shape), (), generator=source)
    if isinstance(backbone, tuple | list):
        return MLP(math.prod(shape), tuple(backbone), init="he", generator=source)
    return network(backbone, shape, source)


def _array(values: Tensor) -> Array:
    found: Array = values.cpu().numpy()
    return found
