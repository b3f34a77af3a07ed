"""How good predictions, probabilities and estimated matrices are, and whether differences are real.

Arrays may be torch or numpy, on any device; results are plain floats unless said otherwise. Scores have the class
axis last (``dim=1`` for images), labels equal to `ignore_index` do not count, and nothing left to count is refused.
"""

from .calibration import Reliability, ece, reliability_curve
from .matrices import confusion_error
from .scores import accuracy, brier, log_likelihood
from .segmentation import confusion_counts, iou, mean_iou, miou
from .statistics import Interval, PairedTest, bootstrap_interval, holm, paired_t_test

__all__ = [
    "Interval",
    "PairedTest",
    "Reliability",
    "accuracy",
    "bootstrap_interval",
    "brier",
    "confusion_counts",
    "confusion_error",
    "ece",
    "holm",
    "iou",
    "log_likelihood",
    "mean_iou",
    "miou",
    "paired_t_test",
    "reliability_curve",
]
