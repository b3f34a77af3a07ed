"""Learning from a crowd: triplets of labels, consensus, annotators' skills, agreement, whom to ask next."""

from __future__ import annotations

from .aggregate import METHODS, aggregate, update
from .agreement import Kappa, annotator_agreement, krippendorff_alpha, pairwise_kappa
from .ask import Questions, ask_next, expected_gain
from .choice import Score, compare, held_out
from .command import CrowdRun, run
from .labels import CrowdLabels
from .quality import label_quality, with_model
from .result import Aggregate
from .summary import Summary, render, summarise
from .vote import majority_vote

__all__ = [
    "METHODS",
    "Aggregate",
    "CrowdLabels",
    "CrowdRun",
    "Kappa",
    "Questions",
    "Score",
    "Summary",
    "aggregate",
    "annotator_agreement",
    "ask_next",
    "compare",
    "expected_gain",
    "held_out",
    "krippendorff_alpha",
    "label_quality",
    "majority_vote",
    "pairwise_kappa",
    "render",
    "run",
    "summarise",
    "update",
    "with_model",
]
