"""What noisy predictions say about the noise: transition matrices, and predictions by models that saw no label."""

from .anchors import anchor_transition
from .folds import fold_numbers, out_of_fold

__all__ = ["anchor_transition", "fold_numbers", "out_of_fold"]
