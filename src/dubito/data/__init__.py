"""Data: the in-memory set, published sets by name, users' own files, splits, noise and augmentation."""

from ._labelled import LabelledData, Triplets, normalise
from .augment import augment
from .named import SETS, load
from .noisy import with_noise
from .splits import PROTOCOLS

__all__ = ["PROTOCOLS", "SETS", "LabelledData", "Triplets", "augment", "load", "normalise", "with_noise"]
