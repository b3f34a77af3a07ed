"""Segmentation models: what is enlarged when, against a transcription with loops."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dubito import DubitoError, heads, links, uncertainty
from dubito.backbones import EncoderDecoder
from dubito.data import LabelledData
from dubito.integrals import expected_log_softmax
from dubito.segmentation import SegmentationModel, resize

HEADS = {
    "point": heads.Point,
    "diagonal": heads.Diagonal,
    "lowrank": partial(heads.LowRank, rank=2),
    "ln": heads.LogisticNormal,
}


def maps(height: int = 5, width: int = 7, classes: int = 3, head: str = "diagonal", **options):
    """A model on feature maps that are given as inputs, at half the size of the image."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.AvgPool2d(2, ceil_mode=True))
    made = HEADS[head](4, classes, generator=torch.Generator().manual_seed(1))
    return SegmentationModel(network, made, **options).double(), torch.randn(2, 4, height, width).double()


def bilinear(grid: torch.Tensor, size: tuple[int, int], align: bool) -> torch.Tensor:
    """(h, w, K) -> (H, W, K), pixel by pixel."""
    h, w, _ = grid.shape
    out = grid.new_zeros(*size, grid.shape[-1])
    for i in range(size[0]):
        for j in range(size[1]):
            if align:
                y, x = i * (h - 1) / max(1, size[0] - 1), j * (w - 1) / max(1, size[1] - 1)
            else:
                y, x = max(0.0, (i + 0.5) * h / size[0] - 0.5), max(0.0, (j + 0.5) * w / size[1] - 0.5)
            a, b = min(int(y), h - 1), min(int(x), w - 1)
            c, d = min(a + 1, h - 1), min(b + 1, w - 1)
            u, v = y - a, x - b
            top = (1 - v) * grid[a, b] + v * grid[a, d]
            out[i, j] = (1 - u) * top + u * ((1 - v) * grid[c, b] + v * grid[c, d])
    return out


@pytest.mark.paper("collier2020 sec. E.1")
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("upsample", ["log_probs", "latent", "features"])
def test_against_loops(upsample, align):
    """The integral at low resolution and log p enlarged and normalised, or what comes before it enlarged."""
    model, x = maps(upsample=upsample, align_corners=align, temperature=0.7)
    low = model.backbone(x).movedim(1, -1)
    head = model.head
    wanted = []
    for image in low:
        if upsample == "features":
            image = bilinear(image, (5, 7), align)
        mean, scale = head.mean(image), F.softplus(head.scale(image)) + 1e-3
        if upsample == "latent":
            mean, scale = bilinear(mean, (5, 7), align), bilinear(scale, (5, 7), align)
        log_p = expected_log_softmax(mean, scale, temperature=0.7, tol=1e-9)
        if upsample == "log_probs":
            log_p = bilinear(log_p, (5, 7), align)
            log_p = log_p - log_p.exp().sum(-1, keepdim=True).log()
        wanted.append(log_p)
    assert model(x).shape == (2, 5, 7, 3)
    torch.testing.assert_close(model(x), torch.stack(wanted), rtol=0, atol=2e-4)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("upsample", ["log_probs", "latent", "features"])
def test_every_head_gives_distributions(head, upsample):
    model, x = maps(head=head, upsample=upsample, samples=16)
    log_p = model(x)
    assert log_p.shape == (2, 5, 7, 3)
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(2, 5, 7, dtype=torch.float64))


def test_without_noise_the_order_does_not_matter():
    """Enlarged log-softmax, normalised again, is the log-softmax of enlarged logits."""
    (first, x), (second, _) = maps(head="point"), maps(head="point", upsample="latent")
    logits = first.head(first.backbone(x).movedim(1, -1)).mean
    enlarged = resize(logits.log_softmax(-1), (5, 7)).log_softmax(-1)
    torch.testing.assert_close(first(x), second(x))
    torch.testing.assert_close(first(x), enlarged)


def test_a_link_of_ones_own_is_enlarged_in_the_order_that_was_asked_for():
    """Log-probabilities of a tempered softmax, enlarged, are not those of enlarged logits."""
    link = partial(links.tempered_log_softmax, t=1.6)
    found = {}
    for upsample in ("log_probs", "latent"):
        model, x = maps(head="point", link=link, upsample=upsample)
        low = model.head(model.backbone(16 * x).movedim(1, -1)).mean.detach()
        found[upsample] = model(16 * x).detach()
    wanted = torch.stack([bilinear(link(image), (5, 7), False) for image in low])
    wanted = wanted - wanted.exp().sum(-1, keepdim=True).log()
    torch.testing.assert_close(found["log_probs"], wanted)
    torch.testing.assert_close(found["latent"], link(torch.stack([bilinear(u, (5, 7), False) for u in low])))
    assert float((found["log_probs"].exp() - found["latent"].exp()).abs().max()) > 0.01


@pytest.mark.parametrize("tau", [0.01, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("integration", ["auto", "qmc", "mc"])
def test_temperatures(tau, integration):
    """From 0.01 to 10, exact, quasi-random and sampled: finite, with finite gradients, near the exact value."""
    model, x = maps(temperature=tau, integration=integration, samples=4096)
    exact, _ = maps(temperature=tau)
    log_p = model(x)
    log_p.sum().backward()
    grads = [p.grad for p in model.parameters()]
    assert all(bool(g.isfinite().all()) for g in grads)
    off = float((log_p.exp() - exact(x).exp()).detach().abs().max())
    if tau >= 0.1:  # below, the logs of what few samples hit are enlarged
        assert off < {"auto": 1e-9, "qmc": 0.02, "mc": 0.1}[integration]


def test_zero_probabilities_are_enlarged_without_nan():
    model, x = maps(temperature=0.0)
    nn.init.constant_(model.head.scale.weight, 0.0)
    nn.init.constant_(model.head.scale.bias, -100.0)
    model.head.mean.weight.data *= 1e6
    log_p = model(x)
    assert bool(log_p.isfinite().all())
    log_p[..., 0].sum().backward()
    assert bool(model.head.mean.weight.grad.isfinite().all())


def test_any_network_takes_a_head():
    """A plain convolution at full size: nothing is enlarged; half precision features become float32."""
    network = nn.Conv2d(3, 4, 3, padding=1)
    model = SegmentationModel(network, heads.Diagonal(4, 5))
    assert model(torch.randn(1, 3, 6, 9)).shape == (1, 6, 9, 5)
    with torch.autocast("cpu", torch.bfloat16):
        assert model(torch.randn(1, 3, 6, 9)).dtype == torch.float32


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("upsample", ["log_probs", "latent", "features"])
def test_a_model_that_is_half_precision_throughout(head, upsample):
    """Its numbers are those of the same weights in full precision, to the digits of a bfloat16 network."""
    model, x = maps(head=head, upsample=upsample, samples=64)
    x = x.bfloat16()
    half = copy.deepcopy(model).bfloat16()
    log_p = half(x)
    assert log_p.dtype == torch.float32
    wanted = half.double()(x.double())
    assert float((log_p.exp() - wanted.exp()).detach().abs().max()) < 0.03


def test_refusals():
    with pytest.raises(DubitoError, match="log_probs"):
        SegmentationModel(nn.Identity(), heads.Point(3, 2), upsample="log_prob")
    flat = SegmentationModel(nn.Flatten(), heads.Point(12, 2))
    with pytest.raises(DubitoError, match="feature maps"):
        flat(torch.zeros(1, 3, 2, 2))
    with pytest.raises(DubitoError, match="reads images"):
        flat(torch.zeros(3, 2))


@pytest.mark.nightly
def test_compiles_as_one_graph():
    model = SegmentationModel(EncoderDecoder(3, widths=(4, 8), decoder=4, stride=2), heads.Point(4, 3)).eval()
    x = torch.randn(1, 3, 10, 12)
    fast = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(fast(x), model(x))


def test_the_uncertainty_of_pixels_takes_few_images_at_a_time():
    """An ensemble's default of 1024 examples would be 1024 images at full resolution."""
    seen = []

    class Maps(torch.nn.Module):
        def forward(self, x):
            seen.append(len(x))
            return x

    models = [
        SegmentationModel(Maps(), heads.Point(3, 4, generator=torch.Generator().manual_seed(i)))
        for i in range(2)
    ]
    data = LabelledData(torch.rand(20, 3, 4, 5), torch.zeros(20, 4, 5, dtype=torch.int64), classes=range(4))
    assert uncertainty.ensemble(models, data).total.shape == (20, 4, 5)
    assert max(seen) == SegmentationModel.evaluation_batch == 8
