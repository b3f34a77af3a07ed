"""Segmentation: heteroscedastic and annotator-aware models of every pixel."""

from .annotators import several_masks, vote
from .losses import Pixels
from .model import SegmentationModel, resize

__all__ = ["Pixels", "SegmentationModel", "resize", "several_masks", "vote"]
