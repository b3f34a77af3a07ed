"""The quick step of fused Adam and the quick backward against torch's own; the watch over gradients."""

import copy
import math

import pytest
import torch

from dubito import optim
from dubito._loop import quick as quick_steps
from dubito._loop.nonfinite import LARGE, Watch
from dubito._loop.quick import QuickAdam, backward, quick
from dubito._optimizer_state import optimizer_tensors, restore_optimizer
from dubito.errors import DubitoError


def pair():
    net = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
    other = copy.deepcopy(net)
    options = {"lr": 0.01, "weight_decay": 0.1, "decay": "matrices"}
    return (
        net,
        optim.adam(net.named_parameters(), **options),
        other,
        optim.adam(other.named_parameters(), **options),
    )


def give_gradients(nets, step, without=()):
    g = torch.Generator().manual_seed(step)
    for i, several in enumerate(zip(*(n.parameters() for n in nets))):
        value = torch.randn(several[0].shape, generator=g)
        for p in several:
            p.grad = None if i in without else value.clone()


def test_the_same_bits_as_the_optimiser():
    """Two groups, a changing rate, a parameter that is left out now and then, and a state that comes and goes."""
    net, ours, other, theirs = pair()
    step = quick(ours)
    assert isinstance(step, QuickAdam)
    for i in range(12):
        give_gradients((net, other), i, without=(1,) if i == 5 else ())
        for optimizer in (ours, theirs):
            optimizer.param_groups[0]["lr"] = 0.01 / (1 + i)
        step()
        theirs.step()
        for p, q in zip(net.parameters(), other.parameters()):
            assert torch.equal(p, q)
    saved, expected = optimizer_tensors(ours), optimizer_tensors(theirs)
    assert saved[1] == expected[1]
    assert all(torch.equal(saved[0][k], v) for k, v in expected[0].items())
    fresh, again, *_ = pair()
    fresh.load_state_dict(net.state_dict())
    restore_optimizer(again, *saved)
    resumed = quick(again)
    for i in range(12, 15):
        give_gradients((net, fresh), i)
        step()
        resumed()
    for p, q in zip(net.parameters(), fresh.parameters()):
        assert torch.equal(p, q)


def test_hooks_are_heard():
    net, ours, *_ = pair()
    step, heard = quick(ours), []
    for i in range(2):
        give_gradients((net,), i)
        step()
    ours.register_step_post_hook(lambda *_: heard.append(1))
    give_gradients((net,), 2)
    step()
    assert heard == [1]


def test_other_optimisers_keep_their_own_step():
    net, *_ = pair()
    for other in (
        optim.sgd(net.named_parameters()),
        optim.adam(net.named_parameters(), amsgrad=True),
        optim.adam(net.named_parameters(), fused=False),
        optim.adam(net.double().named_parameters()),
    ):
        assert not isinstance(quick(other), QuickAdam)


@pytest.mark.parametrize("engine", [quick_steps._ENGINE, None], ids=["engine", "without"])
def test_backward_gives_the_same_gradients(engine, monkeypatch):
    """Of a number on the CPU straight from the engine, if torch has it; anything else is torch's own affair."""
    monkeypatch.setattr(quick_steps, "_ENGINE", engine)
    x = torch.arange(6.0).view(2, 3)
    for dtype, seen in ((torch.float32, [1.0, 2.0]), (torch.float64, [3.0])):
        nets = [torch.nn.Linear(3, 2).to(dtype) for _ in range(2)]
        nets[1].load_state_dict(nets[0].state_dict())
        for scale in seen:  # gradients add up, as torch's do
            totals = [(net(x.to(dtype)) * scale).pow(2).mean() for net in nets]
            totals[0].backward()
            backward(totals[1])
        for p, q in zip(*(net.parameters() for net in nets)):
            assert torch.equal(p.grad, q.grad)


def test_backward_refuses_what_torch_refuses():
    weight = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="scalar"):
        backward(weight * 2)
    with pytest.raises(RuntimeError, match="does not require grad"):
        backward(torch.ones(()))
    total = weight.sum() * 2
    total = total * total
    backward(total)
    with pytest.raises(RuntimeError, match="second time"):
        backward(total)


@pytest.mark.parametrize("size", [7, LARGE + 5])
@pytest.mark.parametrize("bad", [[math.nan], [math.inf], [-math.inf], [math.inf, -math.inf], [3e38, 3e38]])
def test_gradients_are_watched_one_by_one_or_by_their_sum(size, bad):
    """Large ones by their sum, which shows what is not finite; a sum that overflows is no fault of theirs."""
    weight = torch.nn.Parameter(torch.zeros(size))
    watch = Watch(optim.sgd([("weight", weight)], lr=1.0, momentum=0.0, nesterov=False), weight.device)
    weight.grad = torch.ones(size)
    weight.grad[-len(bad) - 1 : -1] = torch.tensor(bad)
    total, rows = torch.tensor(1.0), torch.arange(3)
    if all(map(math.isfinite, bad)):
        watch.step(total, 4, rows)
        assert torch.equal(weight, -weight.grad)
    else:
        with pytest.raises(DubitoError, match="step 4, rows 0, 1, 2"):
            watch.step(total, 4, rows)
        assert not weight.any()
