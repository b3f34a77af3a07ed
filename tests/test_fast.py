"""Stacked runs against the plain loop."""

from functools import partial

import pytest
import torch

from dubito import fast, optim
from dubito._lanes.convolutions import HalfConvolutions, as_matmul
from dubito._random import generator
from dubito.backbones import MLP, LeNet5
from dubito.data import LabelledData
from dubito.errors import DubitoError
from dubito.methods import METHODS, parse
from dubito.model import Model
from dubito.train import fit

RUNS = 3


def data_of(seed: int) -> LabelledData:
    g = torch.Generator().manual_seed(seed)
    return LabelledData(torch.randn(50, 6, generator=g), torch.randint(0, 3, (50,), generator=g))


def model_of(stages, seed: int) -> Model:
    backbone = MLP(6, (5,), generator=generator(seed, 0, "backbone"))
    head = stages.head(5, 3, generator=generator(seed, 0, "head"))
    return Model(backbone, head, **stages.model)


@pytest.mark.parametrize("name", ["ce", "smooth", "gce", "bi-tempered", "bootstrap:kind=hard", "ln"])
def test_a_stack_equals_plain_runs(name):
    """Three seeds and three sets of labels in one stack give the weights of three separate fits."""
    method, params = parse(name)
    stages = method.build(**params)
    optimizer = partial(optim.adam, lr=0.01)
    parts = [data_of(seed) for seed in range(RUNS)]
    inputs = torch.cat([p.inputs for p in parts])
    stack = fast.Stack(
        method=method,
        models=[model_of(stages, seed) for seed in range(RUNS)],
        inputs=inputs,
        rows=torch.arange(150).view(RUNS, 50),
        labels=torch.stack([p.labels for p in parts]),
        seeds=range(RUNS),
        static=params,
    )
    fast.together([stack.steps(epochs=3, batch_size=16, optimizer=optimizer)])
    for seed, part in enumerate(parts):
        run = fit(
            model_of(stages, seed), part, loss=stages.loss, target=stages.target, optimizer=optimizer,
            epochs=3, batch_size=16, batching="stream", seed=seed,
        )  # fmt: skip
        for key, value in run.model.state_dict().items():
            torch.testing.assert_close(stack.parameters[key][seed], value, rtol=1e-4, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_what_a_stack_leaves_is_read_at_once():
    """Without a word from the caller: what comes after waits for what is still queued on the stack's stream."""
    method, params = parse("ce")
    part = data_of(0)
    stack = fast.Stack(
        method=method,
        models=[model_of(method.build(**params), seed) for seed in range(RUNS)],
        inputs=part.inputs.cuda(),
        rows=torch.arange(50, device="cuda").expand(RUNS, 50),
        labels=part.labels.cuda().expand(RUNS, 50),
        seeds=range(RUNS),
    )
    fast.together([stack.steps(epochs=200, batch_size=5, optimizer=partial(optim.adam, lr=0.01))])
    weights = {k: v.detach().cpu() for k, v in stack.parameters.items()}
    log_p = stack.log_probs(stack.rows, batch_size=1).cpu()
    torch.cuda.synchronize()
    assert all(torch.equal(stack.parameters[k].detach().cpu(), v) for k, v in weights.items())
    torch.testing.assert_close(log_p, stack.log_probs(stack.rows).cpu(), rtol=1e-3, atol=1e-4)


def test_hyper_parameters_differ_between_runs():
    """q as a tensor over runs equals one stack per q."""
    parts = [data_of(0)] * 2

    def trained(values):
        stack = fast.Stack(
            method=METHODS["gce"],
            models=[model_of(METHODS["gce"].build(), 0) for _ in values],
            inputs=parts[0].inputs,
            rows=torch.arange(50).expand(len(values), -1),
            labels=parts[0].labels.expand(len(values), -1),
            seeds=[0] * len(values),
            hyper={"q": torch.tensor(values)},
        )
        fast.together([stack.steps(epochs=2, batch_size=10, optimizer=optim.adam)])
        return stack.parameters["head.mean.weight"]

    both = trained([0.3, 0.9])
    torch.testing.assert_close(both[0], trained([0.3])[0])
    torch.testing.assert_close(both[1], trained([0.9])[0])
    assert not torch.allclose(both[0], both[1])


def test_networks_with_batch_norm_are_refused():
    backbone = torch.nn.Sequential(torch.nn.BatchNorm1d(6))
    models = [Model(backbone, METHODS["ce"].build().head(6, 3)) for _ in range(2)]
    with pytest.raises(DubitoError, match="without buffers"):
        fast.Stack(
            method=METHODS["ce"], models=models, inputs=torch.zeros(4, 6), rows=torch.zeros(2, 4, dtype=torch.long),
            labels=torch.zeros(2, 4, dtype=torch.long), seeds=[0, 1],
        )  # fmt: skip


@pytest.mark.parametrize(("shape", "padding"), [((3, 3), 1), ((5, 3), (2, 0)), ((1, 1), 0)])
def test_convolution_as_matrix_product(shape, padding):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(16, 4, 9, 7, generator=g, dtype=torch.float64, requires_grad=True)
    w = torch.randn(5, 4, *shape, generator=g, dtype=torch.float64, requires_grad=True)
    b = torch.randn(5, generator=g, dtype=torch.float64)
    ours = as_matmul(x, w, b, padding)
    theirs = torch.conv2d(x, w, b, padding=padding)
    torch.testing.assert_close(ours, theirs)
    up = torch.randn(ours.shape, generator=g, dtype=torch.float64)
    for a, c in zip(torch.autograd.grad(ours, (x, w), up), torch.autograd.grad(theirs, (x, w), up)):
        torch.testing.assert_close(a, c)


def test_the_mode_keeps_the_network():
    net, x = LeNet5(), torch.rand(8, 1, 28, 28)
    with HalfConvolutions(torch.float32):
        inside = net(x)
    torch.testing.assert_close(inside, net(x), rtol=1e-4, atol=1e-5)
