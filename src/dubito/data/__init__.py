"""Data: the in-memory set, published sets by name, users' own files, splits, noise and augmentation."""

from ._labelled import LabelledData, Triplets, normalise
from .named import SETS, load

__all__ = ["SETS", "LabelledData", "Triplets", "load", "normalise"]
