"""Lanes against the plain loop, on the CPU: batch norm, augmentation, schedules."""

from contextlib import suppress
from functools import partial

import pytest
import torch
from torch import nn

from dubito import checkpoint, fast, optim
from dubito._batches import Order
from dubito._lanes.replay import draw, stream_batches
from dubito._random import generator
from dubito.backbones import WideResNet
from dubito.data import LabelledData, augment
from dubito.errors import DubitoError
from dubito.lanes import AHEAD, Lane, settings
from dubito.methods import parse
from dubito.model import Model
from dubito.train import fit


def data() -> LabelledData:
    g = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (40, 3, 8, 8), generator=g, dtype=torch.uint8)
    return LabelledData(images, torch.randint(0, 4, (40,), generator=g))


def model_of(stages) -> Model:
    backbone = WideResNet(3, 10, 1, generator=generator(0, 0, "backbone"))
    return Model(
        backbone, stages.head(backbone.out_features, 4, generator=generator(0, 0, "head")), **stages.model
    )


CHOOSING = ["coteaching:rate=0.4,ramp=3", "mentornet:rate=0.4,burn_in=2,lambda2=0.1"]


def both(name: str, device: str, **options):
    """A lane and a run of the plain loop after three epochs that batches run across, and the epochs visited."""
    method, params = parse(name)
    stages = method.build(**params)
    optimizer = partial(optim.sgd, lr=0.02, weight_decay=5e-4)
    shared = {"epochs": 3, "batch_size": 16, "optimizer": optimizer}
    shared["schedule"] = partial(optim.milestones, at=(3,), factor=0.5)
    move = partial(augment, pad=1)
    lane = Lane(model_of(stages), stages, data(), seed=3, device=device, augment=move, **options)
    visited = []
    fast.together([lane.steps(visit=visited.append, every=2, **shared)])
    run = fit(
        model_of(stages), data(), loss=stages.loss, target=stages.target, procedure=stages.procedure,
        augment=move, batching="stream", seed=3, device=device, **shared,
    )  # fmt: skip
    return lane, run, visited


@pytest.mark.parametrize(("samples", "rows"), [(1, 7), (999, 7), (1000, 1)])
def test_few_samples_are_drawn_for_each_example(samples, rows):
    """A thousand may be shared by a batch; a single one would push all its losses the same way."""
    method, params = parse(f"het:rank=2,integration=mc,samples={samples}")
    stages = method.build(**params)
    noise = draw(model_of(stages), stages, 7, torch.device("cpu"), 2)
    assert tuple(noise["latent"].shape) == (2, samples, rows, 4)
    assert tuple(noise["factor"].shape) == (2, samples, rows, 2)


@pytest.mark.parametrize("name", ["ce", "ln", "smooth", "backward:alpha=0.2", *CHOOSING])
def test_a_lane_equals_the_plain_loop(name):
    """Same weights, batch statistics, twin and threshold."""
    lane, run, visited = both(name, "cpu")
    assert visited == [2, 3]
    for key, value in run.procedure.state_dict().items():
        torch.testing.assert_close(lane.procedure.state_dict()[key], value, rtol=1e-4, atol=1e-6, msg=key)
    log_p = lane.log_probs(data())
    torch.testing.assert_close(log_p, run.model(data().batch(torch.arange(40))), rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ["ce", *CHOOSING])
def test_a_captured_lane_equals_the_plain_loop(name):
    """Steps replayed from a graph that was captured in the second epoch, where a ramp or a burn-in still runs.

    In full precision: with less, losses that are nearly equal change places, and another example is chosen.
    """
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
        lane, run, _ = both(name, "cuda", half=False, compile=False)
    torch.cuda.synchronize()
    ours = lane.procedure.state_dict()
    apart = {k: float((ours[k] - v).abs().max()) for k, v in run.procedure.state_dict().items()}
    assert max(apart.values()) < 1e-3, sorted(apart.items(), key=lambda item: -item[1])[:5]


GPU = pytest.param(
    "cuda",
    marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")],
)


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_a_lane_beside_others_makes_the_steps_that_it_makes_alone(device):
    """Bit for bit, through capture and replay: lanes share the device, and nothing that they write to.

    The weights are read at once: what comes after `together` waits for the steps that are still queued.
    """

    def last(names):
        lanes = []
        for seed, name in enumerate(names):
            method, params = parse(name)
            stages = method.build(**params)
            lanes.append(Lane(model_of(stages), stages, data(), seed=seed, device=device, compile=False))
        options = {"epochs": 8, "batch_size": 16, "optimizer": partial(optim.sgd, lr=0.02)}
        fast.together([lane.steps(**options) for lane in lanes])
        return {k: v.cpu() for k, v in lanes[0].procedure.state_dict().items()}

    with settings(4):
        alone, beside = last(["ce"]), last(["ce", "ln", "gce", "ce"])
    assert all(torch.equal(beside[k], alone[k]) for k in alone)


def test_a_lane_is_behind_while_so_many_steps_wait_on_its_stream():
    class Event:
        over = False

        def query(self):
            return self.over

    method, params = parse("ce")
    stages = method.build(**params)
    lane = Lane(model_of(stages), stages, data(), seed=0, device="cpu")
    assert not lane.behind()
    events = [Event() for _ in range(AHEAD)]
    lane.waiting.extend(events[:-1])
    assert not lane.behind()
    lane.waiting.append(events[-1])
    assert lane.behind()
    events[1].over = True  # steps end in their order: the first is not over yet
    assert lane.behind()
    events[0].over = True
    assert not lane.behind()
    assert len(lane.waiting) == AHEAD - 2


@pytest.mark.parametrize("name", ["ce", *CHOOSING])
def test_a_lane_that_is_left_and_taken_up_again(name, tmp_path):
    """Left after one and after two of three epochs, the rate having dropped before: the same bytes."""
    method, params = parse(name)
    stages = method.build(**params)
    optimizer, schedule = partial(optim.sgd, lr=0.02), partial(optim.milestones, at=(1, 4), factor=0.5)
    options = {"epochs": 3, "batch_size": 16, "optimizer": optimizer, "schedule": schedule}

    def lane():
        return Lane(model_of(stages), stages, data(), seed=3, device="cpu", augment=partial(augment, pad=1))

    whole = lane()
    fast.together([whole.steps(**options)])
    parts = [lane() for _ in range(3)]
    for part in parts:
        fast.together([part.steps(folder=tmp_path, leave=lambda: True, **options)])
    assert [part.epoch for part in parts] == [1, 2, 3]
    for key, value in whole.procedure.state_dict().items():
        assert torch.equal(parts[-1].procedure.state_dict()[key], value), key


def test_a_lane_that_is_killed_goes_on_from_its_last_checkpoint(tmp_path):
    method, params = parse("ce")
    stages = method.build(**params)
    options = {"epochs": 5, "batch_size": 16, "optimizer": partial(optim.sgd, lr=0.02)}

    def lane():
        return Lane(model_of(stages), stages, data(), seed=3, device="cpu", augment=partial(augment, pad=1))

    whole = lane()
    fast.together([whole.steps(**options)])
    killed = lane().steps(folder=tmp_path, save_every=2, **options)
    for _ in range(11):  # of 13 steps: within the fifth epoch
        next(killed)
    assert checkpoint.steps(tmp_path) == [2, 4]
    again = lane()
    left = sum(1 for _ in again.steps(folder=tmp_path, save_every=2, **options))
    assert left == 3
    for key, value in whole.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[key], value), key


@pytest.mark.parametrize(("n", "size", "epochs"), [(40, 16, 3), (32, 8, 2), (7, 5, 4)])
def test_batches_are_those_of_the_plain_loop(n, size, epochs):
    seeds, steps = [0, 5], 0
    orders = [Order(n, size, "stream", seed=seed) for seed in seeds]
    for begins, several in stream_batches(n, seeds, epochs, size, torch.device("cpu")):
        for i, batch in enumerate(several):
            assert orders[0].epoch(steps) in ((begins,) if i == 0 else (begins, begins + 1))
            for row, order in zip(batch, orders):
                assert row.tolist() == order.positions(steps).tolist()
            steps += 1
    assert steps == orders[0].steps(epochs)
    every = list(stream_batches(n, seeds, epochs, size, torch.device("cpu")))
    later = list(stream_batches(n, seeds, epochs, size, torch.device("cpu"), start=epochs - 1))
    assert later[0][0] == every[-1][0]
    assert torch.equal(later[0][1], every[-1][1])


def test_other_procedures_are_refused():
    method, params = parse("truncated-gce")
    stages = method.build(**params)
    with pytest.raises(DubitoError, match="co-teaching"):
        Lane(Model(nn.Flatten(), stages.head(192, 4)), stages, data(), seed=0, device="cpu")


@pytest.mark.parametrize(("several", "searched"), [(1, True), (2, False)])
def test_settings_come_back_even_after_an_error(several, searched):
    def now() -> tuple[bool, str]:
        return torch.backends.cudnn.benchmark, torch.get_float32_matmul_precision()

    before = now()
    within = []
    with suppress(ZeroDivisionError), settings(several):
        within.append(now())
        within.append(1 // 0)
    assert within == [(searched, "high")]
    assert now() == before
