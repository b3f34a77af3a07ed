"""Label noise: transition matrices, corruption of labels, simulated annotators, missing features.

Builders return matrices ``T[true, observed]`` or ``A[r, true, observed]`` in float64 whose rows sum to one; only
`corrupt` and `simulate` touch labels. All randomness comes from the generator that is handed in.
"""

from .annotators import cifar10_annotators, hammer_spammers, is_dominant, pairwise_flippers
from .corruption import corrupt
from .crowds import input_dependent_annotators, simulate, simulate_from
from .missing import HiddenFeatureTask, hidden_feature_task, missing_not_at_random
from .transitions import (
    Ceiling,
    asymmetric,
    ceiling,
    class_dependent,
    flip_map,
    flip_to_other,
    pair_flip,
    resample,
)

__all__ = [
    "Ceiling",
    "HiddenFeatureTask",
    "asymmetric",
    "ceiling",
    "cifar10_annotators",
    "class_dependent",
    "corrupt",
    "flip_map",
    "flip_to_other",
    "hammer_spammers",
    "hidden_feature_task",
    "input_dependent_annotators",
    "is_dominant",
    "missing_not_at_random",
    "pair_flip",
    "pairwise_flippers",
    "resample",
    "simulate",
    "simulate_from",
]
