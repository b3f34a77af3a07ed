"""Segmentation: heteroscedastic and annotator-aware models of every pixel."""

from .annotators import several_masks, vote
from .losses import Pixels
from .model import SegmentationModel, resize
from .noise import BorderHabits, border_noise, simulate_masks
from .scores import SegmentationScores, score_masks

__all__ = [
    "BorderHabits",
    "Pixels",
    "SegmentationModel",
    "SegmentationScores",
    "border_noise",
    "resize",
    "score_masks",
    "several_masks",
    "simulate_masks",
    "vote",
]
