"""Hundreds of classes, tens of labels per annotator: matrices that share what annotators confuse."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from dubito import optim
from dubito.backbones import MLP
from dubito.compose import train_method
from dubito.data import LabelledData
from dubito.data._labelled import Triplets
from dubito.evaluate import evaluate

K, R, EACH, D, GROUP = 300, 200, 40, 24, 25


def parts(seed: int) -> tuple[LabelledData, LabelledData]:
    """One label per item. Wrong labels fall within a group of 25 classes; skills run from .2 to .95."""
    g = torch.Generator().manual_seed(seed)
    centres = 1.2 * torch.randn(K, D, generator=g)
    skills = torch.linspace(0.2, 0.95, R)

    def part(count: int) -> LabelledData:
        clean = torch.randint(K, (count,), generator=g)
        who = torch.randint(R, (count,), generator=g)
        right = torch.rand(count, generator=g) < skills[who]
        label = torch.where(
            right, clean, clean // GROUP * GROUP + torch.randint(GROUP, (count,), generator=g)
        )
        x = centres[clean] + torch.randn(count, D, generator=g)
        crowd = Triplets(torch.arange(count), who, label)
        names, classes = tuple(map(str, range(R))), tuple(map(str, range(K)))
        return LabelledData(x, label, clean, classes, crowd=crowd, annotators=names)

    return part(R * EACH), part(2000)


def trained(method: str, train: LabelledData, test: LabelledData, epochs: int = 8):
    run = train_method(
        method, {}, lambda source: MLP(D, (128,), init="he", generator=source), train, seed=0, epochs=epochs,
        batch_size=100, optimizer=partial(optim.adam, lr=5e-3), progress=False,
    )  # fmt: skip
    return run.model, evaluate(run.model, test)


def test_a_low_rank_learns_with_300_classes():
    """It beats plain training in accuracy and in the likelihood of labels held out, and finds who is good."""
    train, test = parts(0)
    model, low = trained("trace:matrices=pooled,rank=16,trace=0.0", train, test)
    _, plain = trained("ce", train, test)
    assert low["clean_accuracy"] > plain["clean_accuracy"]
    assert low["log_likelihood"] > plain["log_likelihood"] + 0.1
    found = model.channel.skills().detach()
    assert float(torch.corrcoef(torch.stack([found, torch.linspace(0.2, 0.95, R)]))[0, 1]) > 0.7
    assert sum(p.numel() for p in model.channel.parameters()) == R * 17 + K + 2 * 16 * K


@pytest.mark.nightly
def test_full_matrices_lose_to_a_pool():
    """With 40 labels each, matrices of one's own (18 million numbers) predict held-out labels worse than a pool."""
    train, test = parts(1)
    model, pooled = trained("trace:matrices=pooled,trace=0.0", train, test)
    _, full = trained("trace:trace=0.0", train, test, epochs=4)
    _, plain = trained("ce", train, test)
    assert sum(p.numel() for p in model.channel.parameters()) == R + K + K * K
    assert pooled["log_likelihood"] > plain["log_likelihood"]
    assert pooled["log_likelihood"] > full["log_likelihood"]
