"""Stacked runs of annotators against the plain loop."""

from functools import partial

import pytest
import torch

from dubito import fast, noise, optim
from dubito._random import generator
from dubito.backbones import MLP
from dubito.data import LabelledData
from dubito.data._labelled import Triplets
from dubito.errors import DubitoError
from dubito.fast_crowd import CrowdStack
from dubito.methods import parse
from dubito.model import Model
from dubito.procedures import GeneralisedEM
from dubito.train import fit

RUNS, N, F, K, R = 3, 48, 6, 3, 4
INPUTS = torch.randn(2 * N, F, generator=torch.Generator().manual_seed(9))


def data_of(seed: int, per_item: int | None, votes: bool) -> LabelledData:
    g = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(INPUTS), generator=g)[:N]
    clean = INPUTS[rows, :K].argmax(1)
    A = noise.pairwise_flippers(R, K, 0.7, g)
    crowd = Triplets(*noise.simulate(clean, A, g, per_item))
    names = tuple(f"r{i}" for i in range(R))
    first = crowd.label[torch.sort(crowd.item, stable=True).indices].view(N, -1)[:, 0]
    return LabelledData(
        INPUTS, first, classes=("a", "b", "c"), rows=rows, crowd=None if votes else crowd, annotators=names
    )


def model_of(stages, seed: int) -> Model:
    backbone = MLP(F, (5,), generator=generator(seed, 0, "backbone"))
    head = stages.make_head(5, K, R, generator=generator(seed, 0, "head"), init="glorot")
    return Model(backbone, head, channel=stages.make_channel(K, R), **stages.model)


def stages_of(name: str):
    method, params = parse(name)
    if name == "oracle":
        params["transition"] = noise.pairwise_flippers(R, K, 0.7, torch.Generator().manual_seed(1))
    return method.build(**params)


CASES = [
    ("trace:trace=0.1", None), ("trace", 1), ("no-trace", 2), ("oracle", None), ("gem:rounds=3", None),
    ("mbem:rounds=2", 1), ("wdn:averaging=0.5", 2), ("wdn:averaging=0.5", None), ("ce", 1),
    ("bootstrap", 1), ("single-cm:trace=0.1", 1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "per_item"), CASES)
def test_a_stack_equals_plain_runs(name, per_item):
    """Three seeds and three crowds in one stack give the weights and posteriors of three separate fits."""
    stages = stages_of(name)
    votes = name.split(":")[0] in ("ce", "bootstrap", "single-cm")
    parts = [data_of(seed, per_item, votes) for seed in range(RUNS)]
    optimizer = partial(optim.adam, lr=0.05)

    def procedure_of(seed):
        made = stages.procedure(model_of(stages, seed), loss=stages.loss, penalty=stages.penalty)
        made.begin(parts[seed])
        return made

    stack = CrowdStack([procedure_of(seed) for seed in range(RUNS)], parts, seeds=range(RUNS))
    visited = []
    fast.together([stack.steps(steps=22, batch_size=8, optimizer=optimizer, visit=visited.append)])
    assert visited == [1, 2, 3, 4]
    for seed, part in enumerate(parts):
        run = fit(
            model_of(stages, seed), part, loss=stages.loss, penalty=stages.penalty, procedure=stages.procedure,
            optimizer=optimizer, steps=22, batch_size=8, batching="stream", seed=seed,
        )  # fmt: skip
        found = {k: v[seed] for k, v in stack.snapshot().items()}
        for key, value in run.model.state_dict().items():
            torch.testing.assert_close(found[key], value, rtol=1e-4, atol=1e-5)
        if isinstance(run.procedure, GeneralisedEM):
            torch.testing.assert_close(stack.buffers["posteriors"][seed], run.procedure.posteriors)
            torch.testing.assert_close(stack.procedures[seed].matrices, run.procedure.matrices)


def test_log_probs_are_those_of_each_run():
    stages = stages_of("trace")
    parts = [data_of(seed, 1, False) for seed in range(RUNS)]
    made = [
        stages.procedure(model_of(stages, s), loss=stages.loss, penalty=stages.penalty) for s in range(RUNS)
    ]
    found = CrowdStack(made, parts, seeds=range(RUNS)).log_probs(torch.arange(10), batch_size=4)
    for procedure, of_run in zip(made, found):
        torch.testing.assert_close(of_run, procedure.model(INPUTS[:10]))


def test_uneven_crowds_are_refused():
    stages = stages_of("trace")
    part = data_of(0, 1, False)
    fewer = Triplets(*(t[1:] for t in part.crowd))
    broken = LabelledData(INPUTS, part.labels, rows=part.rows, crowd=fewer, annotators=part.annotators)
    made = stages.procedure(model_of(stages, 0), loss=stages.loss, penalty=stages.penalty)
    with pytest.raises(DubitoError, match="equally many labels for every example"):
        CrowdStack([made], [broken], seeds=[0])
    stack = CrowdStack([made], [part], seeds=[0])
    with pytest.raises(DubitoError, match="whole batches"):
        fast.together([stack.steps(steps=3, batch_size=7, optimizer=optim.adam, visit=lambda e: None)])
