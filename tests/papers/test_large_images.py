"""Sets of large images: windows in training and middles in judging, balanced epochs, no label of an expert."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from dubito.data.augment import center_crop
from dubito.papers import item, prepare
from dubito.papers.prepare import parts
from dubito.papers.runner import run


def clothing(method: str = "ln", **more: object):
    made = item("englesson2023.table2").make("smoke", "clothing1m", None)
    one = next(c for c in made if c.method == method)
    return dataclasses.replace(one, network="cnn4", pretrained=False, **more)


def test_training_sees_windows_and_judging_the_middle(tiny_data):
    config = clothing()
    data = parts(config, root=tiny_data)
    whole = data.train.gather(torch.arange(4))
    assert whole.shape == (4, 3, 256, 256)
    assert data.valid is not None
    raw = prepare._read("clothing1m", "test", str(tiny_data)).gather(torch.arange(4))
    assert torch.equal(data.test.gather(torch.arange(4)), center_crop(raw, 224))
    assert data.valid.gather(torch.arange(2)).shape == (2, 3, 224, 224)
    window = prepare.augmentation(config)
    assert window is not None
    seen = window(whole, index=torch.arange(4), seed=0, epoch=0)
    assert seen.shape == (4, 3, 224, 224)
    found = [
        (whole[i, :, y : y + 224, x : x + 224] == v).all().item()
        for i in range(4)
        for v in (seen[i], seen[i].flip(-1))
        for y, x in [_place(whole[i], v)]
    ]
    assert sum(found) >= 4  # each window, or its mirror image, lies in its own image
    assert torch.equal(prepare.still(config, data.train).gather(torch.arange(4)), center_crop(whole, 224))


def _place(image: torch.Tensor, window: torch.Tensor) -> tuple[int, int]:
    """Where the first row and column of a window could lie: by the least difference of a patch."""
    patch = window[:, :8, :8].float()
    tiles = image.float().unfold(1, 8, 1).unfold(2, 8, 1)[:, :33, :33]
    difference = (tiles - patch[:, None, None]).abs().sum((0, 3, 4))
    best = int(difference.argmin())
    return best // 33, best % 33


def test_an_epoch_is_balanced(tiny_data):
    """Two images of each of 14 classes per epoch, in batches of 20: 56 examples of two epochs are three steps."""
    assert clothing("ce").balanced == 1
    config = dataclasses.replace(clothing("ce"), balanced=2, batch=20)
    result = run(config, root=tiny_data, device="cpu")
    assert result.history["steps"] == 3
    assert 0 <= result.metrics["validation_accuracy"] <= 1


def test_imagenet_is_judged_on_its_validation_images(tiny_data):
    config = item("lukasik2020.table2").make("smoke", None, None)[0]
    data = parts(config, root=tiny_data)
    assert (len(data.train), data.valid, len(data.test)) == (16, None, 16)
    assert data.train.num_classes == 10


def test_crowds_are_judged_by_their_own_vote(tiny_data):
    """The published validation labels of LabelMe are an expert's; selection must not see them."""
    made = item("tanno2019.figure7").make("smoke", None, None)
    config = dataclasses.replace(next(c for c in made if c.method == "trace"), train=80, validation=30)
    data = parts(config, root=tiny_data)
    assert not config.own_validation
    assert data.valid is not None
    assert (len(data.train), len(data.valid)) == (80, 30)
    wrong = data.valid.labels != data.valid.clean
    assert 0.02 < float(wrong.float().mean()) < 0.5
    assert data.train.crowd is not None


def test_features_are_standardised_by_the_training_items_alone(tiny_data):
    """Test items are measured by them too; a feature that never changes stays finite."""
    made = item("tanno2019.figure7").make("smoke", None, None)
    config = dataclasses.replace(made[0], train=80, validation=30)
    data, raw = (
        parts(config, root=tiny_data),
        parts(dataclasses.replace(config, normalise="none"), root=tiny_data),
    )
    x, y = (d.train.batch(torch.arange(80)) for d in (data, raw))
    changes = y.std(0) > 0
    torch.testing.assert_close(x[:, changes].mean(0), torch.zeros(int(changes.sum())), atol=1e-4, rtol=0)
    torch.testing.assert_close(x[:, changes].std(0), torch.ones(int(changes.sum())), atol=1e-4, rtol=0)
    few = torch.arange(10)
    scale = torch.where(changes, y.std(0), 1.0)
    torch.testing.assert_close(data.test.batch(few), (raw.test.batch(few) - y.mean(0)) / scale)
    still = dataclasses.replace(raw.train, inputs=torch.ones_like(raw.train.inputs))
    assert torch.equal(
        still.with_statistics(**prepare._scale(config, still)).batch(few), torch.zeros_like(y[:10])
    )


@pytest.mark.parametrize("name", ["feature", "unitt"])
def test_unknown_normalisations_are_refused(name):
    from dubito.errors import DubitoError

    with pytest.raises(DubitoError, match=f"unknown normalisation.*{name[:-1]}"):
        prepare._scale(clothing(normalise=name), None)


@pytest.mark.parametrize("name", ["resize-crop", "pad4"])
def test_unknown_augmentations_are_refused(name):
    from dubito.errors import DubitoError

    with pytest.raises(DubitoError, match="augmentation"):
        prepare.augmentation(clothing(augment=name))
