"""Estimators with the interface of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Generator, Tensor, nn

from . import optim
from ._batches import WEIGHT
from ._crowd_classifier import CrowdClassifier as CrowdClassifier
from ._decay import FOREST, PERCEPTRON, decay_for
from ._estimator_splits import groups_of, held_out, label_quality, relative, splitter_folds
from ._estimators import (
    check_positive,
    coded,
    filled,
    forest_of,
    length,
    medians,
    network,
    seed_of,
    standardised,
    statistics,
)
from .backbones import MLP
from .compose import train_method
from .data import LabelledData
from .data._alike import GROUP
from .errors import DubitoError
from .estimate import out_of_fold
from .evaluate import predict
from .methods import Method, parse
from .train import Run

Array = np.ndarray[Any, Any]

HIDDEN = (128,)


class _MissingError(DubitoError, AttributeError):
    """An attribute that this fit does not have, told in a sentence (and to `hasattr`)."""


class NoisyLabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier for labels that deserve doubt, by any method of `dubito.methods`.

    Sizes and classes are found in `fit`, and labels may be numbers or text. Features are standardised there, and
    then drawn in by asinh, so that outliers count by their logarithm. With ``backbone="auto"`` they may have gaps
    (NaN): the median stands there, and one more feature marks the gaps of each that had some in `fit`. Text is for
    a `OneHotEncoder` before this estimator.

    Arguments:
        method: a method and its parameters, as ``"gce"``, ``"ln:temperature=0.5,lam=0.1"`` or ``"mine.py:mine"``;
            or a `Method`. GCE by default: on clean tables it is as good as plain training, where LN with few
            epochs may not be.
        backbone: ``"auto"``, a small perceptron, or a forest where it is better; ``"forest"``; a name for
            `backbones.build`, with images ``(N, C, H, W)`` for networks that read them; or a function
            ``(shape, generator) -> network`` with `out_features`.
        cv: number of folds for `label_quality_`, of which none shares an input with another; or a splitter of
            scikit-learn, which cuts as it will; None: it is not computed.
        epochs: None: 50, or more where the data is so small that these make fewer than 400 steps.
        batch_size, learning_rate: of Adam.
        weight_decay: of Adam, on the network's matrices. None: with ``backbone="auto"`` it is chosen by noisy
            labels that were left out, since wrong labels are else learned by heart. Of 30 to 1,999 examples it is
            the strongest of 0, 0.01 and 0.03 within one standard error of the best on five folds; of 2,000 to
            49,999 the best of 0, 0.001 and 0.003 on as many folds as hold 1,000 labels. There a
            `backbones.Forest` takes the place of the network if it predicts more of the same labels: it finds
            thresholds that a network misses. So 5 to 21 networks are trained instead of one: give a number where
            that is too long. 0 with other sizes and backbones.
        validation_fraction: share of the data that is held out to choose the epoch with the best accuracy on its
            noisy labels; None: all data is trained on, and the last epoch is taken.
        standardize: bring every feature (or channel) to mean 0 and deviation 1, and draw features in by asinh.
        random_state: an integer makes fits repeatable; None draws a new seed.
        device: "cpu", "cuda" or "auto".

    Attributes after `fit`:
        classes_: the classes, sorted. n_features_in_, feature_names_in_: as usual.
        model_: the trained `Model`, in float64.
        history_: one record per epoch.
        network_, weight_decay_: what was trained: "perceptron", "forest" or "given", and with which decay.
        transition_matrix_: ``T[true, observed]``, where the method is given, estimates or learns one.
        label_quality_: probability that each training label is right: one minus `p_wrong` of `dubito.audit`, by
            the probabilities of models that did not see the label (with `cv`). With more than a hundred classes,
            or where the audit cannot tell (very strong noise, models that know nothing), it is those models' own
            probability of the label, which is a score.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(200, 2))
        >>> y = np.where(X[:, 0] > 0, "right", "left")
        >>> NoisyLabelClassifier(random_state=0).fit(X, y).predict([[3.0, 0.0], [-3.0, 0.0]])
        array(['right', 'left'], dtype='<U5')
    """

    classes_: Array
    _middle: Array
    _gappy: Array
    _mean: Array
    _scale: Array

    def __init__(
        self,
        method: str | Method = "gce",
        *,
        backbone: str | Callable[..., nn.Module] = "auto",
        cv: Any = None,
        epochs: int | None = None,
        batch_size: int = 64,
        learning_rate: float = 0.01,
        weight_decay: float | None = None,
        validation_fraction: float | None = None,
        standardize: bool = True,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
    ) -> None:
        self.method = method
        self.backbone = backbone
        self.cv = cv
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.validation_fraction = validation_fraction
        self.standardize = standardize
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> NoisyLabelClassifier:
        """Train on examples and their noisy labels.

        Arguments:
            X: array or frame ``(N, features)``, or images for a backbone that reads them.
            y: labels ``(N,)``, numbers or text.
            sample_weight: how much each example counts ``(N,)``, not negative; only their ratios matter.
            groups: the group of each example ``(N,)``, as its patient: neither folds nor the split for validation
                cut one, and a splitter as ``cv`` is handed them. By default examples with the same input.
        """
        self._check_parameters()
        X, y = validate_data(self, X, y, **self._admitted())
        self.classes_, codes = coded(y)
        check_classification_targets(y)
        if len(self.classes_) < 2:
            raise DubitoError(
                "the labels hold one class, which leaves nothing to learn", got=self.classes_.tolist()
            )
        self._middle, self._gappy = medians(X) if self._reads_tables() else (np.zeros(0), np.zeros(0, int))
        X = self._whole(X)
        self._mean, self._scale = statistics(X) if self.standardize else (np.zeros(1), np.ones(1))
        known = {WEIGHT: (sample_weight, relative), GROUP: (groups, groups_of)}
        seed = seed_of(self.random_state)
        data = LabelledData(
            self._inputs(X).to(torch.get_default_dtype()),
            torch.from_numpy(codes.astype(np.int64)),
            classes=tuple(str(c) for c in self.classes_),
            extra={name: read(given, X) for name, (given, read) in known.items() if given is not None},
            name="training data",
        )
        self.network_, self.weight_decay_ = self._chosen(data, seed)
        run = self._train(data, seed)
        self.model_ = run.model.cpu().double()
        self.history_ = run.history
        self._transition = _transition(run)
        self._quality = None if self.cv is None else self._label_quality(data, seed)
        return self

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the true class ``(N, K)``, columns in the order of `classes_`."""
        check_is_fitted(self)
        X = self._whole(validate_data(self, X, reset=False, **self._admitted()))
        data = LabelledData(self._inputs(X), torch.full((len(X),), -1))
        log_p = predict(self.model_, data).log_p
        return log_p.softmax(-1).numpy()

    def predict(self, X: Any) -> Array:
        """The most probable true class of each example."""
        best = self.predict_proba(X).argmax(1)
        found: Array = self.classes_[best]
        return found

    @property
    def transition_matrix_(self) -> Array:
        """T[true, observed] that the method was given, estimated or learned."""
        check_is_fitted(self)
        if self._transition is None:
            raise _MissingError(
                "this method has no transition matrix",
                got=repr(self.method),
                remedy="use method='forward', 'backward' or 'single-cm'",
            )
        return self._transition

    @property
    def label_quality_(self) -> Array:
        """Probability that each training label is right ``(N,)``, by an audit of out-of-fold predictions."""
        check_is_fitted(self)
        if self._quality is None:
            raise _MissingError(
                "label quality needs models that did not see the label", remedy="pass cv=5 and fit again"
            )
        return self._quality

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._reads_tables()
        return tags

    def _reads_tables(self) -> bool:
        return isinstance(self.backbone, str) and self.backbone in ("auto", FOREST)

    def _admitted(self) -> dict[str, Any]:
        """What inputs may be: a table, with gaps; or, for a network of one's own, any shape without."""
        table = self._reads_tables()
        return {
            "dtype": np.float64,
            "allow_nd": not table,
            "ensure_all_finite": "allow-nan" if table else True,
        }

    def _whole(self, X: Array) -> Array:
        """Features without gaps."""
        return filled(X, self._middle, self._gappy) if len(self._gappy) or np.isnan(X).any() else X

    def _check_parameters(self) -> None:
        for name in ("epochs", "batch_size", "learning_rate"):
            value = getattr(self, name)
            if not (value is None and name == "epochs"):
                check_positive(value, name)

    def _chosen(self, data: LabelledData, seed: int) -> tuple[str, float]:
        """The network of this fit and its weight decay."""
        if self.backbone == "auto" and self.weight_decay is None:
            return decay_for(partial(self._train, seed=seed), data, seed)
        network = (FOREST if self.backbone == FOREST else PERCEPTRON) if self._reads_tables() else "given"
        return network, self.weight_decay or 0.0

    def _train(
        self, data: LabelledData, seed: int, network: str | None = None, weight_decay: float | None = None
    ) -> Run:
        """A run of the method; with the network and decay of this fit, unless others are given to be tried."""
        name = self.network_ if network is None else network
        weight_decay = self.weight_decay_ if weight_decay is None else weight_decay
        method, params = (self.method, {}) if isinstance(self.method, Method) else parse(self.method)
        train, valid, select = data, None, "last"
        if self.validation_fraction is not None:
            train, valid = held_out(data, self.validation_fraction, seed)
            select = "best"
        epochs, batch = length(name, len(train), self.batch_size)
        return train_method(
            method,
            params,
            partial(self._network, name, train),
            train,
            valid,
            seed=seed,
            num_classes=len(self.classes_),
            epochs=self.epochs or epochs,
            batch_size=batch,
            optimizer=partial(optim.adam, lr=self.learning_rate, weight_decay=weight_decay, decay="networks"),
            select=select,
            device=self.device,
            progress=False,
        )

    def _network(self, name: str, data: LabelledData, source: Generator) -> nn.Module:
        """An untrained network, or a forest of this data."""
        shape = tuple(data.inputs.shape[1:])  # type: ignore[union-attr]
        if name == FOREST:
            return forest_of(data, len(self.classes_), source)
        if name == PERCEPTRON:
            return MLP(shape[0], HIDDEN, init="glorot", generator=source)
        return network(self.backbone, shape, source)

    def _label_quality(self, data: LabelledData, seed: int) -> Array:
        def classes_of(run: Run, part: LabelledData) -> Tensor:
            return predict(run.model.cpu(), part).log_p

        folds = int(self.cv) if isinstance(self.cv, Integral) else splitter_folds(self.cv, data)
        train = partial(self._train, seed=seed)
        found = out_of_fold(train, data, folds=folds, seed=seed, predict=classes_of)
        return label_quality(data.labels.numpy(), found.double().softmax(-1).numpy())

    def _inputs(self, X: Array) -> Tensor:
        return standardised(X, self._mean, self._scale, self.standardize)


def _transition(run: Run) -> Array | None:
    """The estimated matrix of a run, or that of its channel."""
    T = run.extra.get("transition")
    if T is None and run.model.channel is not None:
        T = run.model.channel.matrices()  # type: ignore[operator]
    return None if T is None or T.dim() != 2 else T.detach().cpu().double().numpy()
