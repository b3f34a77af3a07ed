"""dubito: learning from labels you cannot trust.

Names are looked up when they are used (PEP 562), so that ``import dubito`` costs nothing: torch is imported
with the first loss, head or model. `__init__.pyi` shows the same names to type checkers.
"""

from __future__ import annotations

import importlib
import logging
from typing import Any

__version__ = "0.1.0"

# The index: public name -> module that defines it.
_HOME = {
    "DubitoError": "errors",
    "nll": "losses",
    "gce": "losses",
    "truncated_gce": "losses",
    "bi_tempered": "losses",
    "bootstrap": "losses",
    "logistic_normal_nll": "losses",
    "distillation": "losses",
    "expected_log_softmax": "links",
    "expected_softmax_nll": "links",
    "Point": "heads",
    "Diagonal": "heads",
    "LowRank": "heads",
    "LogisticNormal": "heads",
    "FixedTransition": "channels",
    "LearnedTransition": "channels",
    "AnnotatorConfusion": "channels",
    "Model": "model",
    "fit": "train",
    "LabelledData": "data",
    "CrowdLabels": "crowd",
    "audit": "_audit",
    "report": "_report",
}
_MODULES = [
    *("losses", "targets", "links", "heads", "channels", "weights", "penalties"),
    *("model", "train", "procedures", "optim", "methods", "evaluate", "compose", "uncertainty"),
    *("noise", "estimate", "metrics", "data", "backbones", "crowd", "integrals", "segmentation"),
    *("papers", "checkpoint", "runs", "verify", "testing", "errors"),
]

__all__ = [*_HOME, *_MODULES, "__version__"]

# A library stays silent unless its user asks: logging.getLogger("dubito").
logging.getLogger("dubito").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module 'dubito' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
