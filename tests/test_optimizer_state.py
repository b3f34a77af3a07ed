"""An optimiser resumed from a checkpoint goes on bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, optim

from dubito import checkpoint
from dubito.errors import DubitoError

Make = Callable[[Iterable[Tensor]], optim.Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "sgd": partial(optim.SGD, lr=0.1),
    "nesterov": partial(optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4),
    "adam": partial(optim.Adam, lr=1e-3, eps=1e-7),
    "amsgrad": partial(optim.Adam, lr=1e-3, amsgrad=True),
    "tensor-lr": partial(optim.Adam, lr=torch.tensor(1e-3), foreach=False),
    "adamw": partial(optim.AdamW, lr=1e-3),
    "nadam": partial(optim.NAdam, lr=1e-3),
    "rmsprop": partial(optim.RMSprop, lr=1e-3, momentum=0.5, centered=True),
    "adagrad": partial(optim.Adagrad, lr=1e-2),
    "rprop": partial(optim.Rprop, lr=1e-2),
    "asgd": partial(optim.ASGD, lr=1e-2),
    "lbfgs": partial(optim.LBFGS, lr=0.1, max_iter=3),
}


def network() -> torch.nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))


def advance(net: torch.nn.Module, optimizer: optim.Optimizer, first: int, last: int) -> None:
    for step in range(first, last):
        g = torch.Generator().manual_seed(step)
        x, y = torch.randn(8, 4, generator=g), torch.randint(0, 2, (8,), generator=g)

        def closure(x: Tensor = x, y: Tensor = y) -> float:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(x).float(), y)
            loss.backward()
            return float(loss.detach())

        optimizer.step(closure)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_resumed_weights_are_identical(name: str, tmp_path: Path) -> None:
    net = network()
    optimizer = OPTIMIZERS[name](net.parameters())
    advance(net, optimizer, 0, 5)
    tensors, meta = checkpoint.optimizer_tensors(optimizer)
    checkpoint.save(tmp_path, 5, {"model": net.state_dict(), "optimizer": tensors}, {"optimizer": meta})
    advance(net, optimizer, 5, 9)

    again = network()
    resumed = OPTIMIZERS[name](again.parameters())
    found = checkpoint.load_latest(tmp_path)
    assert found is not None
    again.load_state_dict(found.tensors["model"])
    before = {key: value.clone() for key, value in found.tensors["optimizer"].items()}
    checkpoint.restore_optimizer(resumed, found.tensors["optimizer"], found.state["optimizer"])
    advance(again, resumed, 5, 9)
    for a, b in zip(net.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
    for key, value in before.items():
        assert torch.equal(found.tensors["optimizer"][key], value), "the checkpoint itself was changed"


def test_groups_and_their_changed_rates_come_back(tmp_path: Path) -> None:
    def make(net: torch.nn.Sequential) -> optim.Optimizer:
        return optim.SGD(
            [{"params": net[0].parameters(), "weight_decay": 0.1}, {"params": net[2].parameters()}], 0.5
        )

    one, two = make(network()), make(network())
    one.param_groups[1]["lr"] = 0.125
    tensors, meta = checkpoint.optimizer_tensors(one)
    path = checkpoint.save(tmp_path, 1, {"optimizer": tensors}, {"optimizer": meta})
    found = checkpoint.load(path)
    checkpoint.restore_optimizer(two, found.tensors["optimizer"], found.state["optimizer"])
    assert [g["lr"] for g in two.param_groups] == [0.5, 0.125]
    assert [g["weight_decay"] for g in two.param_groups] == [0.1, 0]


class WideMoments(optim.Optimizer):
    """Keeps float32 moments for bfloat16 parameters, as careful mixed precision does, and a Python counter."""

    def __init__(self, params: Iterable[Tensor]) -> None:
        super().__init__(params, {})

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            state["count"] = state.get("count", 0) + 1
            state["m"] = state.get("m", 0) * 0.9 + torch.full(p.shape, 1 / 3)


def test_types_are_kept_where_torch_would_cast() -> None:
    p, q = (torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16)) for _ in range(2))
    one, two = WideMoments([p]), WideMoments([q])
    one.step()
    checkpoint.restore_optimizer(two, *checkpoint.optimizer_tensors(one))
    assert two.state[q]["m"].dtype == torch.float32
    assert torch.equal(two.state[q]["m"], one.state[p]["m"])
    assert two.state[q]["count"] == 1
    two.step()
    assert torch.equal(one.state[p]["m"], torch.full((3,), 1 / 3)), "the two must not share memory"


def test_another_optimiser_or_network_is_refused() -> None:
    adam = optim.Adam(network().parameters())
    tensors, meta = checkpoint.optimizer_tensors(adam)
    with pytest.raises(DubitoError, match=r"another optimiser.*SGD.*Adam"):
        checkpoint.restore_optimizer(optim.SGD(network().parameters(), 0.1), tensors, meta)
    with pytest.raises(DubitoError, match="other shapes of parameters"):
        checkpoint.restore_optimizer(optim.Adam(torch.nn.Linear(2, 2).parameters()), tensors, meta)


def test_a_missing_tensor_is_named() -> None:
    net = network()
    adam = optim.Adam(net.parameters())
    advance(net, adam, 0, 1)
    tensors, meta = checkpoint.optimizer_tensors(adam)
    del tensors["state.2.exp_avg"]
    with pytest.raises(DubitoError, match=r"lacks a tensor.*state\.2\.exp_avg"):
        checkpoint.restore_optimizer(optim.Adam(network().parameters()), tensors, meta)


def test_what_cannot_be_written_is_refused() -> None:
    net = network()
    sgd = optim.SGD(net.parameters(), 0.1)
    sgd.state[net[0].weight]["odd"] = {1, 2}
    with pytest.raises(DubitoError, match=r"cannot hold at state\.0\.odd.*got set"):
        checkpoint.optimizer_tensors(sgd)


def test_moments_lie_in_memory_as_their_parameters(tmp_path):
    """Fused steps refuse moments laid out otherwise; a checkpoint holds them in plain order."""
    weights = [torch.randn(4, 3, 2, 2).to(memory_format=layout) for layout in (torch.channels_last,) * 2]
    one, two = (torch.optim.SGD([w.requires_grad_()], lr=0.1, momentum=0.9) for w in weights)
    weights[0].square().sum().backward()
    one.step()
    tensors, meta = checkpoint.optimizer_tensors(one)
    checkpoint.save(tmp_path, 1, {"optimizer": tensors}, {"optimizer": meta})
    found = checkpoint.load_latest(tmp_path)
    checkpoint.restore_optimizer(two, found.tensors["optimizer"], found.state["optimizer"])
    moment = two.state[weights[1]]["momentum_buffer"]
    assert moment.stride() == weights[1].stride()
    assert torch.equal(moment, one.state[weights[0]]["momentum_buffer"])


def test_a_counter_is_not_taken_for_a_moment() -> None:
    """A counter has the shape of a scalar parameter, and may lie on another device than it."""
    scalar = torch.nn.Parameter(torch.ones((), device="meta"))
    adam = optim.Adam([scalar])
    kept = {"step": torch.tensor(3.0), "exp_avg": torch.zeros(()), "exp_avg_sq": torch.zeros(())}
    _, meta = checkpoint.optimizer_tensors(adam)
    meta["state"] = {"dict": [["0", {"dict": [[k, {"tensor": k}] for k in kept]}]]}
    checkpoint.restore_optimizer(adam, kept, meta)
    assert adam.state[scalar]["step"].device.type == "cpu"
    assert float(adam.state[scalar]["step"]) == 3.0
