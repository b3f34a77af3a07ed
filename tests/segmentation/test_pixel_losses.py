"""Training of pixels: some masks at a time, void, several annotators, robust losses."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from dubito import channels, heads, links, losses, penalties
from dubito._batches import Batches, augmented
from dubito._context import compiled
from dubito.data import LabelledData
from dubito.procedures import Plain
from dubito.segmentation import Pixels, SegmentationModel, resize, several_masks, vote
from dubito.segmentation import model as pixel_model
from dubito.segmentation.augment import scale_crop_flip
from dubito.train import fit

K = 3


def images(n: int = 4, height: int = 8, width: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, 3, height, width, generator=g, dtype=torch.float64)
    y = torch.randint(K, (n, height, width), generator=g)
    y[:, :2] = -100
    return x, y


def model(head=heads.Diagonal, **options) -> SegmentationModel:
    g = torch.Generator().manual_seed(3)
    network = nn.Conv2d(3, 6, 3, stride=2, padding=1)
    with torch.no_grad():
        for p in network.parameters():
            p.copy_(0.3 * torch.randn(p.shape, generator=g))
    return SegmentationModel(network, head(6, K, generator=g), **options).double()


def drawn(purpose: str) -> torch.Generator:
    return torch.Generator().manual_seed(7)


def step(procedure: Plain, data: LabelledData) -> tuple[torch.Tensor, list[torch.Tensor]]:
    total = procedure(Batches(data)(torch.arange(len(data))), drawn)
    used = [p for p in procedure.parameters() if p.requires_grad]
    return total.detach(), list(torch.autograd.grad(total, used))


@pytest.mark.rel
@pytest.mark.parametrize("upsample", ["log_probs", "latent", "features"])
@pytest.mark.parametrize("head", ["point", "diagonal", "lowrank"])
def test_some_masks_at_a_time(upsample, head, monkeypatch):
    """Scorecard 33: what keeps memory small changes no number: value and gradients as for all masks at once."""
    kinds = {"point": heads.Point, "diagonal": heads.Diagonal, "lowrank": partial(heads.LowRank, rank=1)}
    options = {"temperature": 0.5, "upsample": upsample, "samples": 8}
    x, y = images()
    data = LabelledData(x, y)
    whole, wanted = step(Pixels(model(kinds[head], **options)), data)
    monkeypatch.setattr(pixel_model, "ELEMENTS", 1)
    parts = Pixels(model(kinds[head], **options))
    if head == "lowrank":  # each part has points of its own
        assert bool(step(parts, data)[0].isfinite())
        return
    some, found = step(parts, data)
    torch.testing.assert_close(some, whole)
    for a, b in zip(found, wanted):
        torch.testing.assert_close(a, b)


@pytest.mark.paper("collier2020 sec. 5.2")
def test_the_mean_over_pixels_that_are_not_void():
    x, y = images()
    made = model(temperature=0.5)
    log_p = made(x)
    total, count = 0.0, 0
    for i, row, column in (y >= 0).nonzero().tolist():
        total -= float(log_p[i, row, column, y[i, row, column]].detach())
        count += 1
    assert float(step(Pixels(made), LabelledData(x, y))[0]) == pytest.approx(total / count, rel=1e-6)


@pytest.mark.rel
def test_everything_void():
    """Scorecard 16: an image without a label costs nothing and moves nothing."""
    x, y = images()
    found, grads = step(Pixels(model()), LabelledData(x, torch.full_like(y, -100)))
    assert float(found) == 0
    assert all(float(g.abs().max()) == 0 for g in grads)


def test_void_has_no_say():
    x, y = images()
    made, data = model(), LabelledData(x, y)
    batch = Batches(data)(torch.arange(4))
    losses_ = Pixels(made).losses(made, batch, drawn)
    assert losses_.shape == y.shape
    assert float(losses_.detach()[y < 0].abs().max()) == 0


@pytest.mark.parametrize(
    ("loss", "head", "channel"),
    [
        (partial(losses.gce, q=0.7), heads.Diagonal, None),
        (partial(losses.bootstrap, kind="soft"), heads.Point, None),
        (partial(losses.bi_tempered, t1=0.8, t2=1.2), heads.Point, None),
        (partial(losses.logistic_normal_nll, lam=0.5), heads.LogisticNormal, None),
        (losses.nll, heads.Diagonal, channels.LearnedTransition),
        (partial(losses.gce, q=0.7), heads.Point, channels.LearnedTransition),
    ],
)
def test_stages_are_those_of_examples(loss, head, channel):
    """Robust losses, channels and the logistic-normal likelihood: the same numbers as for a table of pixels."""
    x, y = images()
    options = {} if channel is None else {"channel": channel(K).double()}
    made = model(head, upsample="latent", **options)
    got = float(step(Pixels(made, loss=loss), LabelledData(x, y))[0])
    kept = y >= 0
    latent = made.latent(x)
    flat = heads.Latent(*(None if part is None else part[kept] for part in latent))
    from dubito.model import example_losses

    assert got == pytest.approx(float(example_losses(made, flat, y[kept], loss).mean().detach()), rel=1e-5)


@pytest.mark.parametrize("procedure", [Plain, Pixels])
@pytest.mark.parametrize("upsample", ["log_probs", "latent", "features"])
def test_a_bi_tempered_loss_reads_the_logits_of_every_pixel(procedure, upsample):
    """Also where its predictions have a link, whose log-probabilities are what is enlarged."""
    x, y = images()
    link = partial(links.tempered_log_softmax, t=1.2)
    made = model(heads.Point, upsample=upsample, link=link)
    loss = partial(losses.bi_tempered, t1=0.8, t2=1.2)
    logits = resize(made.head(made.backbone(x).movedim(1, -1)).mean, (8, 10)).detach()
    wanted = loss(logits[y >= 0], y[y >= 0])
    got = step(procedure(made, loss=loss), LabelledData(x, y))[0]
    assert float(got) == pytest.approx(float(wanted), rel=1e-6)


@pytest.mark.paper("tanno2019 eq. 4")
def test_a_matrix_per_annotator():
    """Sum over the masks of a pixel, mean over labelled pixels; missing masks and void left out; trace added."""
    x, y = images()
    masks = torch.stack([y, y.roll(1, 2), y.flip(1)], 1)
    masks[0, 1] = -100
    masks[2, :2] = -100
    g = torch.Generator().manual_seed(5)
    channel = channels.AnnotatorConfusion(3, K).double()
    with torch.no_grad():
        channel.weight += torch.randn(channel.weight.shape, generator=g, dtype=torch.float64)
    made = model(channel=channel)
    data = LabelledData(x, vote(masks, K), crowd=several_masks(masks))
    assert len(data.crowd.item) == 9
    got = step(Pixels(made, penalty=partial(penalties.trace, weight=0.5)), data)[0]
    p, A = made(x).exp().detach(), channel.matrices().detach()
    total, labelled = 0.0, (masks >= 0).any(1).sum()
    for i, r, row, column in (masks >= 0).nonzero().tolist():
        total -= float((p[i, row, column] @ A[r])[masks[i, r, row, column]].log())
    trace = 0.5 * float(torch.stack([a.trace() for a in A]).mean())
    assert float(got) == pytest.approx(total / int(labelled) + trace, rel=1e-6)


@pytest.mark.parametrize("procedure", [Plain, Pixels])
@pytest.mark.parametrize("elements", [1, 1 << 26])
def test_network_and_head_are_compiled_in_training(procedure, elements, monkeypatch):
    """One graph each, with the weights of a run that is not compiled; afterwards the model is as it was."""
    monkeypatch.setattr(pixel_model, "ELEMENTS", elements)
    x, y = images(4)
    options = {"procedure": procedure, "epochs": 2, "batch_size": 4, "device": "cpu", "progress": False}
    runs = []
    for backend in (False, "eager"):
        torch.compiler.reset()
        counters.clear()
        made = model(upsample="latent").float()
        runs.append(fit(made, LabelledData(x.float(), y), compile=backend, **options).model)
        assert (counters["stats"]["unique_graphs"] >= 2) == bool(backend)
        assert not {"features", "distribution", "latent"} & set(vars(made))
    for p, q in zip(*(r.parameters() for r in runs)):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-6)


def test_a_copy_of_a_compiled_model_is_not_compiled():
    """A compiled method belongs to one model; in a copy it would read the weights of the other."""
    made = model()
    with compiled(made, "eager"):
        assert {"features", "distribution"} <= set(vars(made))
        assert not {"features", "distribution"} & set(vars(copy.deepcopy(made)))


def test_masks_of_annotators_through_the_loop(tmp_path):
    """The loop takes several masks, augments them with their image, and scores the labels that were given."""
    x, y = images(6)
    masks = torch.stack([y, y.flip(2)], 1)
    masks[1, 0] = -100
    data = LabelledData(x.float(), vote(masks, K), clean=y, crowd=several_masks(masks))
    made = model(channel=channels.AnnotatorConfusion(2, K)).float()
    run = fit(
        made, data, valid=data, procedure=Pixels, penalty=partial(penalties.trace, weight=0.01), epochs=2,
        batch_size=4, augment=partial(scale_crop_flip, crop=(6, 6)), device="cpu", out=tmp_path / "run",
    )  # fmt: skip
    assert run.history[-1]["valid_log_likelihood"] < 0
    assert 0 <= run.history[-1]["valid_clean_accuracy"] <= 1


def test_masks_move_with_their_image():
    """Both annotators of an image see what happened to it."""
    x, y = images()
    x = torch.cat([y.unsqueeze(1).double()] * 3, 1)  # the image shows its own labels
    masks = torch.stack([y, y], 1)
    data = LabelledData(x, y, crowd=several_masks(masks))
    batch = Batches(data)(torch.arange(4))
    moved = augmented(batch, partial(scale_crop_flip, scales=(1.0, 1.0), crop=(8, 8)), seed=1, epoch=2)
    shown = moved.x[batch.row, 0].round().long()
    seen = moved.y >= 0
    assert torch.equal(shown[seen], moved.y[seen])
    assert int(moved.given) == int(seen.sum()) // 2
