"""Networks of timm and torchvision by name: shapes, gradients, a heteroscedastic step. Run by `make vision`."""

from __future__ import annotations

import pytest
import torch

from dubito import heads
from dubito.backbones import build
from dubito.errors import DubitoError
from dubito.model import Model, example_losses

pytestmark = pytest.mark.vision
NETWORKS = (
    "timm:resnet18",
    "timm:mobilenetv3_small_050",
    "timm:convnext_atto",
    "timm:vit_tiny_patch16_224",
    "timm:ecaresnet101d_pruned",
    "torchvision:resnet18",
    "torchvision:mobilenet_v3_small",
    "torchvision:regnet_y_400mf",
    "torchvision:vit_b_32",
    "torchvision:densenet121",
)


@pytest.mark.parametrize("name", NETWORKS)
def test_features_gradient_and_a_heteroscedastic_step(name):
    before = torch.random.get_rng_state()
    network = build(name, (3, 64, 64), generator=torch.Generator().manual_seed(3))
    assert torch.random.get_rng_state().equal(before)
    model = Model(network, heads.Diagonal(network.out_features, 5), temperature=0.5)
    opt = torch.optim.SGD(model.parameters(), lr=1e-2)
    x = torch.randn(4, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([0, 1, 2, 4])
    assert network(x).shape == (4, network.out_features)
    loss = example_losses(model.train(), model.latent(x), y).mean()
    loss.backward()
    assert loss.isfinite()
    for part in (network, model.head.mean, model.head.scale):
        total = sum(float(p.grad.abs().sum()) for p in part.parameters() if p.grad is not None)
        assert 0 < total < float("inf")
    weights = [p.clone() for p in network.parameters()]
    opt.step()
    assert any(not torch.equal(a, b) for a, b in zip(weights, network.parameters()))


def test_seeds_give_the_first_weights():
    a, b, c = (
        build("timm:resnet18", (3, 32, 32), generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2)
    )
    first = [next(net.parameters()) for net in (a, b, c)]
    assert torch.equal(first[0], first[1])
    assert not torch.equal(first[0], first[2])


def test_channels_sizes_and_refusals():
    assert build("timm:resnet18", (1, 28, 28)).out_features == 512
    with pytest.raises(DubitoError, match="did you mean 'resnet18"):
        build("timm:resnet_18", (3, 32, 32))
    with pytest.raises(DubitoError, match="did you mean 'resnet18'"):
        build("torchvision:resnet_18", (3, 32, 32))
    with pytest.raises(DubitoError, match="one linear layer"):
        build("torchvision:squeezenet1_0", (3, 64, 64))
    with pytest.raises(DubitoError, match="cannot read these examples"):
        build("torchvision:alexnet", (3, 8, 8))
