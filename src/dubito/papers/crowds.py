"""Annotators of a run: simulated groups, their labels on the training images, and the vote over them."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from .. import noise
from .._random import generator
from ..crowd import majority_vote
from ..data import LabelledData
from ..data._labelled import Triplets
from ..errors import DubitoError
from .configs import Config


def matrices(config: Config, num_classes: int) -> Tensor:
    """The true confusion matrices ``A[r, true, observed]`` of a run's group, drawn by its seed."""
    source = generator(config.seed, 0, "annotators")
    if config.noise == "cifar10_annotators":
        return noise.cifar10_annotators(source)
    group = config.annotators, num_classes, config.skill, source
    if config.noise == "pairwise_flippers":
        return noise.pairwise_flippers(*group, dominant=config.dominant, jitter=config.jitter)
    if config.noise == "hammer_spammers":
        return noise.hammer_spammers(*group, jitter=config.jitter)
    raise DubitoError("no such group of annotators", got=repr(config.noise))


def true_matrices(config: Config, train: LabelledData) -> Tensor | None:
    """The matrices that the labels were drawn from, or as they are counted against the truth; None without it."""
    if config.annotators:
        return matrices(config, train.num_classes)
    if train.crowd is None or train.clean is None:
        return None
    K = train.num_classes
    counts = torch.zeros(len(train.annotators), K, K, dtype=torch.float64)
    item, annotator, label = (t.cpu() for t in train.crowd)
    one = torch.ones(len(item), dtype=torch.float64)
    counts.index_put_((annotator, train.clean.cpu()[item], label), one, accumulate=True)
    # A class that an annotator never met says nothing: its row is that of the whole crowd.
    pooled = counts.sum(0) / counts.sum((0, 2)).clamp(min=1).unsqueeze(-1)
    met = counts.sum(-1, keepdim=True)
    return torch.where(met > 0, counts / met.clamp(min=1), pooled)


def annotated(config: Config, part: LabelledData, purpose: str) -> LabelledData:
    """A part labelled by the run's annotators, or by their majority vote for methods that know none.

    The labels as they were stay as `clean`. Ties are drawn by the seed.
    """
    true = part.labels if part.clean is None else part.clean
    A = matrices(config, part.num_classes)
    source = generator(config.seed, 0, f"crowd/{purpose}")
    found = Triplets(*noise.simulate(true, A, source, config.per_item or None))
    return voted(config, dataclasses.replace(part, crowd=found, clean=true, annotators=_names(len(A))))


def voted(config: Config, part: LabelledData) -> LabelledData:
    """The majority label of every example; the crowd's labels stay where the method reads them."""
    if part.crowd is None:
        return part
    votes, _ = majority_vote(part.crowd_labels(), seed=config.seed)
    without = torch.bincount(part.crowd.item, minlength=len(part)) == 0
    labels = torch.where(without, -1, votes.to(torch.int64))
    crowd = None if reads_votes(config) else part.crowd
    return dataclasses.replace(part, labels=labels, crowd=crowd)


def reads_votes(config: Config) -> bool:
    """Whether a method learns from the majority vote."""
    return dict(config.reading).get("labels") == "majority"


def _names(count: int) -> tuple[str, ...]:
    return tuple(f"annotator {r}" for r in range(count))
