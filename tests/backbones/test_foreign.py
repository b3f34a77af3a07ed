"""Networks of timm and torchvision by name, with stand-ins where they are not installed."""

from __future__ import annotations

import sys
import types

import pytest
import torch
from torch import nn

from dubito.backbones import build
from dubito.errors import DubitoError


class TinyTimm(nn.Module):
    def __init__(self, in_chans: int) -> None:
        super().__init__()
        self.body, self.num_features = nn.Conv2d(in_chans, 6, 3), 6

    def forward(self, x):
        return self.body(x).mean((-2, -1))


class TinyVision(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 7, 3)
        self.classifier = nn.Sequential(nn.Dropout(), nn.Linear(7, 1000))

    def forward(self, x):
        return self.classifier(self.body(x).mean((-2, -1)))


@pytest.fixture
def libraries(monkeypatch):
    timm = types.ModuleType("timm")
    timm.is_model = lambda name: name == "tiny"
    timm.list_models = lambda: ["tiny"]
    timm.create_model = lambda name, num_classes, in_chans, pretrained=False: TinyTimm(in_chans)
    vision, models = types.ModuleType("torchvision"), types.ModuleType("torchvision.models")
    models.list_models = lambda module=None: ["tiny"]
    models.get_model = lambda name, weights=None: TinyVision()
    vision.models = models
    for name, module in (("timm", timm), ("torchvision", vision), ("torchvision.models", models)):
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize(("name", "channels", "features"), [("timm:tiny", 1, 6), ("torchvision:tiny", 3, 7)])
def test_features_without_their_head(name, channels, features):
    state = torch.random.get_rng_state()
    first = build(name, (channels, 9, 9), generator=torch.Generator().manual_seed(1)).eval()
    again = build(name, (channels, 9, 9), generator=torch.Generator().manual_seed(1)).eval()
    assert torch.random.get_rng_state().equal(state)
    x = torch.ones(2, channels, 9, 9)
    assert first.out_features == features
    assert first(x).shape == (2, features)
    assert first(x).equal(again(x))


@pytest.mark.usefixtures("libraries")
def test_wrong_names():
    with pytest.raises(DubitoError, match="did you mean 'tiny'"):
        build("timm:tinny", (3, 8, 8))
    with pytest.raises(DubitoError, match="did you mean 'tiny'"):
        build("torchvision:tinny", (3, 8, 8))
    with pytest.raises(DubitoError, match="three channels"):
        build("torchvision:tiny", (1, 8, 8))
    with pytest.raises(DubitoError, match="did you mean 'timm'"):
        build("tim:tiny", (3, 8, 8))


def test_missing_library_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(DubitoError, match=r"pip install 'dubito\[vision\]'"):
        build("timm:resnet18", (3, 32, 32))
