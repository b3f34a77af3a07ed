"""Channels: log p(true class | x) -> log p(observed label | x), all in log space.

    log q_j = logsumexp_i(log p_i + log T_ij),   T[true, observed], rows sum to one

One matrix for everybody (`FixedTransition`, `LearnedTransition`), one per annotator (`AnnotatorConfusion`), or
annotators who share a pool of confusions (`PooledConfusion`). The class attribute `per_annotator` says whether a
channel is called as ``channel(log_p)`` or as ``channel(log_p, annotators)``.
"""

from ._core import IMPOSSIBLE
from .annotators import AnnotatorConfusion
from .pooled import PooledConfusion
from .projection import project_rows
from .transition import FixedTransition, LearnedTransition

__all__ = [
    "IMPOSSIBLE",
    "AnnotatorConfusion",
    "FixedTransition",
    "LearnedTransition",
    "PooledConfusion",
    "project_rows",
]
