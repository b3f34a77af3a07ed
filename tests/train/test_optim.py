"""Optimisers against transcriptions, and which parameters decay."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from small import network
from torch import nn

from dubito import optim
from dubito.errors import DubitoError


def gradients(model: nn.Module, step: int) -> None:
    g = torch.Generator().manual_seed(step)
    for p in model.parameters():
        p.grad = torch.randn(p.shape, generator=g)


@pytest.mark.paper("lukasik2020 sec. B.2")
def test_lars_is_its_definition() -> None:
    model = network()
    with torch.no_grad():
        next(iter(model.head.parameters())).zero_()  # a tensor of norm 0 takes the plain rate
    naive = {name: p.detach().double().clone() for name, p in model.named_parameters()}
    speed = {name: torch.zeros_like(value) for name, value in naive.items()}
    opt = optim.lars(model.named_parameters(), lr=0.7, momentum=0.8, weight_decay=0.01, trust=0.02)
    for step in range(5):
        gradients(model, step)
        for name, p in model.named_parameters():
            assert p.grad is not None
            w, g = naive[name], p.grad.double()
            decay = 0.01 if w.dim() > 1 else 0.0
            rate = 0.7
            if decay and float(w.norm()) > 0:
                rate *= float(0.02 * w.norm() / (g.norm() + decay * w.norm()))
            speed[name] = 0.8 * speed[name] + rate * (g + decay * w)
            naive[name] = w - speed[name]
        opt.step()
    for name, p in model.named_parameters():
        assert torch.allclose(p.double(), naive[name], rtol=1e-5, atol=1e-6), name


def test_lars_adapts_without_weight_decay() -> None:
    model = network()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    opt = optim.lars(model.named_parameters(), lr=2.0, momentum=0.0, weight_decay=0.0, trust=0.01)
    gradients(model, 0)
    opt.step()
    for name, p in model.named_parameters():
        assert p.grad is not None
        rate = 2.0 * (0.01 * before[name].norm() / p.grad.norm() if p.dim() > 1 else 1.0)
        assert torch.allclose(p, before[name] - rate * p.grad, atol=1e-6), name


@pytest.mark.parametrize("make", [optim.adam, optim.sgd])
def test_decay_of_all_or_of_matrices(make: object) -> None:
    model = network()
    (every,) = make(model.named_parameters(), weight_decay=0.1).param_groups  # type: ignore[operator]
    assert every["weight_decay"] == 0.1
    two = make(model.named_parameters(), weight_decay=0.1, decay="matrices").param_groups  # type: ignore[operator]
    assert [g["weight_decay"] for g in two] == [0.1, 0.0]
    assert {p.dim() for p in two[0]["params"]} == {2}
    assert {p.dim() for p in two[1]["params"]} == {1}
    assert sum(len(g["params"]) for g in two) == len(list(model.parameters()))


def test_frozen_parameters_are_left_out() -> None:
    model = network()
    for p in model.backbone.parameters():
        p.requires_grad_(False)
    (group,) = optim.adam(model.named_parameters()).param_groups
    assert len(group["params"]) == 2


def test_decay_by_an_unknown_rule_is_refused() -> None:
    with pytest.raises(DubitoError, match="weight decay"):
        optim.sgd(network().named_parameters(), decay="some")


def test_nesterov_is_its_definition() -> None:
    model = network()
    other = copy.deepcopy(model)
    opt = optim.sgd(model.named_parameters(), lr=0.1, momentum=0.6)
    speed = [torch.zeros_like(p) for p in other.parameters()]
    for step in range(4):
        gradients(model, step)
        with torch.no_grad():
            for v, q, p in zip(speed, other.parameters(), model.parameters()):
                assert p.grad is not None
                v.mul_(0.6).add_(p.grad)
                q -= 0.1 * (p.grad + 0.6 * v)
        opt.step()
    for p, q in zip(model.parameters(), other.parameters()):
        assert torch.allclose(p, q, atol=1e-6)


def test_adam_has_the_eps_of_keras() -> None:
    (group,) = optim.adam(network().named_parameters()).param_groups
    assert group["eps"] == 1e-7


def test_schedules_at_their_ends() -> None:
    assert optim.cosine(0, 10) == 1.0
    assert optim.cosine(10, 10) == pytest.approx(0.0)
    assert optim.cosine(0, 10, warmup=4) == 0.25
    assert optim.polynomial(0, 10) == 1.0
    assert optim.polynomial(10, 10) == 0.0
    assert [partial(optim.milestones, at=(2, 4), factor=0.5)(s, 9) for s in (1, 2, 4)] == [1.0, 0.5, 0.25]
