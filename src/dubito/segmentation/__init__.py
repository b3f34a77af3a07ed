"""Segmentation: heteroscedastic and annotator-aware models of every pixel."""

from .annotators import several_masks, vote
from .losses import Pixels
from .merge import MergedMasks, merge_masks
from .model import SegmentationModel, resize
from .noise import BorderHabits, border_noise, simulate_masks
from .scores import SegmentationScores, score_masks

__all__ = [
    "BorderHabits",
    "MergedMasks",
    "Pixels",
    "SegmentationModel",
    "SegmentationScores",
    "border_noise",
    "merge_masks",
    "resize",
    "score_masks",
    "several_masks",
    "simulate_masks",
    "vote",
]
