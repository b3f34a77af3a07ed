"""Stages that do not go together, or say one thing twice and differently, are refused before the first step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from small import crowd, network, problem

import dubito
from dubito import channels, heads, links, losses, targets
from dubito.data import LabelledData, Triplets
from dubito.errors import DubitoError
from dubito.train import fit

LN = partial(losses.logistic_normal_nll, lam=0.5)


@pytest.mark.parametrize("name", ["gce", "nll", "bi_tempered"])
@pytest.mark.parametrize("option", [{"dim": 1}, {"ignore_index": 2}, {"reduction": "sum"}])
def test_what_the_model_does_by_itself(name: str, option: dict[str, Any]) -> None:
    with pytest.raises(DubitoError, match=rf"averages by itself at {name}: got {next(iter(option))}="):
        fit(network(), problem(20), loss=partial(getattr(dubito, name), **option))


def test_options_of_a_loss_have_names() -> None:
    with pytest.raises(DubitoError, match="options of a loss are given by name at gce"):
        fit(network(), problem(20), loss=partial(dubito.gce, torch.zeros(1)))


def test_a_likelihood_at_another_temperature_than_the_model() -> None:
    """It would be trained at the one and predict at the other."""
    model = network(head=heads.LogisticNormal, temperature=0.5)
    with pytest.raises(
        DubitoError, match=r"model and likelihood differ in temperature: expected 0\.5, got 2\.0"
    ):
        fit(model, problem(20), loss=partial(LN, temperature=2.0))
    assert fit(model, problem(20), loss=partial(LN, temperature=0.5), epochs=1).steps == 1


@pytest.mark.parametrize(
    ("options", "loss"),
    [
        ({"temperature": 0.5}, losses.bi_tempered),
        ({"temperature": 0.5, "link": partial(torch.log_softmax, dim=-1)}, losses.nll),
        ({"temperature": links.BoundedTemperature(), "link": partial(torch.log_softmax, dim=-1)}, losses.gce),
    ],
)
def test_a_temperature_that_a_link_leaves_out(options: dict[str, Any], loss: Callable[..., Any]) -> None:
    with pytest.raises(DubitoError, match="a link of its own takes no temperature"):
        fit(network(**options), problem(20), loss=loss)


@pytest.mark.parametrize(("head", "loss"), [(heads.Point, losses.bi_tempered), (heads.LogisticNormal, LN)])
def test_weights_that_are_no_distribution(head: Any, loss: Callable[..., Any]) -> None:
    noisy = partial(targets.label_noise, sigma=0.5)
    with pytest.raises(DubitoError, match="this loss needs a distribution as target"):
        fit(network(head=head), problem(20), loss=loss, target=noisy)
    smooth = partial(targets.smooth, alpha=0.1)
    assert fit(network(head=head), problem(20), loss=loss, target=smooth, epochs=1).steps == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"channel": channels.LearnedTransition}, "not a channel"),
        ({"temperature": "learned"}, "not a temperature.*BoundedTemperature"),
        ({"temperature": None}, "not a temperature.*got None"),
    ],
)
def test_parts_of_a_model_that_are_none(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DubitoError, match=said):
        network(**options)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda c: tuple(c), r"no labels of a crowd at data.crowd: expected Triplets.*got tuple"),
        (lambda c: dubito.CrowdLabels(*c), r"no labels of a crowd.*got CrowdLabels"),
        (lambda c: Triplets(*(part.numpy() for part in c)), r"crowd.item must be a tensor: got ndarray"),
        (lambda c: c._replace(annotator=["a"] * len(c.item)), r"crowd.annotator must be a tensor: got list"),
    ],
)
def test_labels_of_a_crowd_in_another_form(given: Callable[[Triplets], Any], said: str) -> None:
    data = crowd(20)
    assert data.crowd is not None
    with pytest.raises(DubitoError, match=said):
        LabelledData(data.inputs, data.labels, crowd=given(data.crowd))
