"""DeepLabv3+ and others of segmentation-models-pytorch under our heads. Run by `make vision`."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dubito import heads
from dubito.backbones import build
from dubito.data import LabelledData
from dubito.errors import DubitoError
from dubito.optim import sgd
from dubito.segmentation import Pixels, SegmentationModel
from dubito.segmentation.augment import scale_crop_flip
from dubito.train import fit

pytestmark = pytest.mark.vision
DEEPLAB = "smp:DeepLabV3Plus"
XCEPTION_PARAMETERS = 37_867_312  # of the encoder, whatever its output stride
DECODER_PARAMETERS = 3_169_296


@pytest.fixture(scope="module", params=[16, 8])
def xception(request):
    network = build(DEEPLAB, (3, 128, 128), encoder="tu-xception65", output_stride=request.param)
    return request.param, network.eval()


def test_xception_parameters_and_output_sizes(xception):
    stride, network = xception
    count = sum(p.numel() for p in network.encoder.parameters())
    assert count == XCEPTION_PARAMETERS
    assert sum(p.numel() for p in network.decoder.parameters()) == DECODER_PARAMETERS
    with torch.no_grad():
        maps = network.encoder(torch.zeros(1, 3, 128, 160))
        found = network(torch.zeros(1, 3, 128, 160))
        odd = network(torch.zeros(1, 3, 90, 120))
    assert maps[-1].shape == (1, 2048, 128 // stride, 160 // stride)
    assert found.shape == (1, 256, 32, 40)
    assert network.out_features == 256
    assert odd.shape == (1, 256, 23, 30)


def test_xception_is_dilated_where_its_stride_is_small(xception):
    stride, network = xception
    rates = {
        m.dilation[0] for m in network.encoder.modules() if isinstance(m, nn.Conv2d) and m.kernel_size[0] == 3
    }
    assert max(rates) == {16: 2, 8: 4}[stride]


def test_xception_has_sixty_five_layers(xception):
    """Two convolutions, 20 blocks of three separable ones and three more in the exit: 2 + 60 + 3 = 65."""
    _, network = xception
    spatial = [m for m in network.encoder.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(spatial) == 65


@pytest.mark.parametrize(("stride", "upsample"), [(16, "log_probs"), (8, "log_probs"), (16, "latent")])
def test_heteroscedastic_steps_with_xception(stride, upsample):
    network = build(DEEPLAB, (3, 64, 64), encoder="tu-xception65", output_stride=stride)
    model = SegmentationModel(
        network, heads.Diagonal(256, 21), temperature=0.05, upsample=upsample, align_corners=True
    )
    assert (
        sum(p.numel() for p in model.parameters()) == XCEPTION_PARAMETERS + DECODER_PARAMETERS + 2 * 257 * 21
    )
    data = _squares(4, 48)
    before = {k: v.clone() for k, v in model.named_parameters()}
    run = fit(
        model,
        data,
        procedure=Pixels,
        optimizer=_sgd,
        steps=2,
        batch_size=2,
        seed=0,
        augment=_augment,
        progress=False,
    )
    assert run.steps == 2
    assert all(p.isfinite().all() for p in model.parameters())
    moved = [k for k, v in model.named_parameters() if not torch.equal(v, before[k])]
    assert any(k.startswith("backbone.encoder") for k in moved)
    assert "head.scale.weight" in moved
    assert run.model(data.batch(torch.arange(1))).shape == (1, 48, 48, 21)


@pytest.mark.parametrize(
    "name", ["Unet", "UnetPlusPlus", "FPN", "PSPNet", "DeepLabV3", "DeepLabV3Plus", "Linknet", "MAnet", "UPerNet",
             "Segformer"],
)  # fmt: skip
def test_other_networks_take_our_head(name):
    network = build(f"smp:{name}", (3, 64, 64), encoder="resnet18")
    model = SegmentationModel(network, heads.LowRank(network.out_features, 4, rank=2), samples=16)
    log_p = model(torch.randn(2, 3, 65, 70, generator=torch.Generator().manual_seed(0)))
    assert log_p.shape == (2, 65, 70, 4)
    log_p[..., 0].mean().backward()
    assert torch.allclose(log_p.exp().sum(-1), torch.ones(2, 65, 70), atol=1e-4)
    assert float(next(network.parameters()).grad.abs().sum()) > 0


def test_refusals():
    with pytest.raises(DubitoError, match="did you mean 'deeplabv3'"):
        build("smp:DeepLabV3+", (3, 64, 64))
    with pytest.raises(DubitoError, match="smp cannot make this network at Unet on resnet17"):
        build("smp:Unet", (3, 64, 64), encoder="resnet17")
    with pytest.raises(DubitoError, match="smp cannot make this network"):
        build(DEEPLAB, (3, 64, 64), encoder="resnet18", output_stride=4)


def _sgd(named):
    return sgd(named, lr=1e-3, momentum=0.9)


def _augment(images, *, masks, seed, epoch, index):
    return scale_crop_flip(images, masks=masks, seed=seed, epoch=epoch, index=index)


def _squares(count, side):
    """Images of a bright square on a dark ground, and their masks with a void column."""
    x, y = torch.zeros(count, 3, side, side), torch.zeros(count, side, side, dtype=torch.int64)
    x[:, :, 16:40, 16:40], y[:, 16:40, 16:40], y[:, :, -1] = 1.0, 1, -100
    return LabelledData(x, y, classes=tuple(map(str, range(21))))
