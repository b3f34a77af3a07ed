"""A method: a name, the stages as a function of its parameters, and advice on when to use it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from . import heads
from .errors import DubitoError, nearest
from .losses import nll
from .model import Loss
from .procedures import Plain, Target


@dataclass(frozen=True)
class Stages:
    """The stages that a method puts between features and the number it minimises.

    Arguments:
        per_annotator: which of ``"head"`` and ``"channel"`` also take ``num_annotators=``.
        labels: which labels of several annotators the method reads: ``"vote"``, the majority, or ``"all"``.
    """

    head: Callable[..., nn.Module] = heads.Point
    loss: Loss = nll
    target: Target | None = None
    channel: Callable[..., nn.Module] | None = None
    penalty: Callable[..., Tensor] | None = None
    procedure: Callable[..., Plain] = Plain
    model: Mapping[str, Any] = field(default_factory=dict)
    per_annotator: tuple[str, ...] = ()
    labels: str = "vote"

    def make_head(
        self, width: int, num_classes: int, num_annotators: int | None = None, **options: Any
    ) -> nn.Module:
        """The head on features of this width; `options` are its ``generator`` and ``init``."""
        return self.head(width, num_classes, **options, **self._people("head", num_annotators))

    def make_channel(self, num_classes: int, num_annotators: int | None = None) -> nn.Module | None:
        """The channel; None takes observed labels as true."""
        if self.channel is None:
            return None
        return self.channel(num_classes, **self._people("channel", num_annotators))

    def _people(self, stage: str, num_annotators: int | None) -> dict[str, int]:
        if stage not in self.per_annotator:
            return {}
        if num_annotators is None:
            raise DubitoError(
                "this method learns from several annotators", remedy="give data with crowd labels"
            )
        return {"num_annotators": num_annotators}


@dataclass(frozen=True)
class Method:
    """A named way to train.

    Arguments:
        stages: a function of the method's parameters, all with defaults.
        advice: one line: when to use it.
        grid: the values that the papers search, per parameter.
        first: a method that is trained first, on the same data, to give an estimated transition matrix
            (``needs="transition"``) or a teacher (``needs="teacher"``); see `compose.train_method`.
        valid: the kinds of data it takes: single labels, crowd, pixels.
    """

    name: str
    stages: Callable[..., Stages]
    advice: str
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=lambda: MappingProxyType({}))
    first: str | None = None
    needs: str | None = None
    valid: tuple[str, ...] = ("single", "pixels")

    @property
    def defaults(self) -> dict[str, Any]:
        """Parameter -> default; None where a value must be given or is estimated."""
        return {
            name: p.default
            for name, p in inspect.signature(self.stages).parameters.items()
            if name != "transition"
        }

    def build(self, **params: Any) -> Stages:
        """The stages for these parameters."""
        self.check(**params)
        return self.stages(**params)

    def check(self, **params: Any) -> None:
        """Refuse an unknown name, or a value of another kind."""
        known = inspect.signature(self.stages).parameters
        for name, value in params.items():
            if name not in known:
                raise DubitoError(f"{self.name} has no parameter {name!r}", remedy=nearest(name, known))
            _check_kind(f"{name} of {self.name}", value, known[name].annotation)


_KINDS: dict[str, Any] = {"bool": bool, "int": Integral, "float": Real, "str": str, "None": type(None)}


def _check_kind(what: str, value: Any, annotation: Any) -> None:
    """Refuse a value that does not fit the parameter's annotation, as far as that names plain kinds.

    A tensor may replace a number, so that several runs can be vectorised.
    """
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    kinds = [kind.strip() for kind in text.split("|")]
    if isinstance(value, Tensor) or not set(kinds) <= _KINDS.keys():
        return
    if not any(isinstance(value, _KINDS[k]) and (k == "bool" or not isinstance(value, bool)) for k in kinds):
        raise DubitoError(f"{what} is of another kind", expected=" or ".join(kinds), got=repr(value))
