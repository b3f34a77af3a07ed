"""What noisy predictions say about the noise: transition matrices, and labels judged by models that saw none."""

from .anchors import anchor_transition
from .folds import fold_numbers, out_of_fold
from .quality import label_log_quality

__all__ = ["anchor_transition", "fold_numbers", "label_log_quality", "out_of_fold"]
