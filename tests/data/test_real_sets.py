"""The real sets, where they are at hand, and the cache of decoded arrays."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile

import numpy as np
import pytest
import torch

from dubito import DubitoError
from dubito.data import load
from dubito.data._cache import cached_array


@pytest.fixture(autouse=True, scope="module")
def lasting_cache():
    """Decoding takes long, so it is kept between test runs; what is kept is verified when it is used."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", os.path.join(tempfile.gettempdir(), f"dubito-tests-{os.getuid()}"))
        yield


def statistics(images):
    """Mean and deviation of each channel, exactly, from the histogram of its bytes."""
    value = np.arange(256) / 255
    result = []
    for channel in range(images.shape[1]):
        share = np.bincount(images[:, channel].numpy().ravel(), minlength=256) / images[:, channel].numel()
        mean = float(share @ value)
        result.append((mean, float(share @ (value - mean) ** 2) ** 0.5))
    return tuple(zip(*result))


def test_mnist(shared_data):
    train = load("mnist", root=shared_data)
    assert torch.bincount(train.labels).tolist() == [
        5923,
        6742,
        5958,
        6131,
        5842,
        5421,
        5918,
        6265,
        5851,
        5949,
    ]
    mean, std = statistics(train.inputs)
    assert train.mean == pytest.approx(mean, abs=1e-4)
    assert train.std == pytest.approx(std, abs=1e-4)
    assert load("mnist", "test", root=shared_data).labels[:5].tolist() == [7, 2, 1, 0, 4]


def test_cifar10_with_its_human_labels(shared_data):
    data = load("cifar10n", root=shared_data)
    assert data.inputs.shape == (50_000, 3, 32, 32)
    wrong = {k: float((data.extra[k] != data.clean).double().mean()) for k in data.extra}
    published = {"aggre": 0.0901, "worst": 0.4021, "random1": 0.1723, "random2": 0.1812, "random3": 0.1764}
    assert wrong == pytest.approx(published, abs=5e-4)
    mean, std = statistics(data.inputs)
    assert mean == pytest.approx([0.49139968, 0.48215841, 0.44653091], abs=1e-8)
    assert std == pytest.approx([0.24703223, 0.24348513, 0.26158784], abs=1e-8)
    assert data.mean == pytest.approx(mean, abs=1e-4)
    assert data.std == pytest.approx(std, abs=1e-4)
    test = load("cifar10h", root=shared_data)
    assert float((test.labels == test.clean).double().mean()) == pytest.approx(0.9921, abs=1e-4)
    assert int(test.extra["counts"].sum()) == 511_000


def test_svhn_crops(shared_data):
    data = load("svhn_crops", "test", root=shared_data)
    assert data.inputs.shape == (6000, 3, 32, 32)
    assert data.extra["source_number"].shape == (6000,)


def test_camvid_void_is_ignored(shared_data):
    data = load("camvid", "val", root=shared_data)
    assert data.labels.shape == (101, 180, 240)
    assert data.num_classes == 11
    assert sorted(data.labels.unique().tolist()) == [-100, *range(11)]
    assert data.ids[0] == "0016E5_07959.png"


def test_labelme_and_the_crowd_sets(shared_data):
    train = load("labelme", root=shared_data)
    assert (train.inputs.shape, len(train.crowd.item), len(train.annotators)) == ((1000, 512), 2547, 59)
    right = train.crowd.label == train.clean[train.crowd.item]
    assert float(right.double().mean()) == pytest.approx(0.7405, abs=1e-4)
    text = load("sentiment_text", root=shared_data)
    assert len(text.ids) == 4999
    with (shared_data / "crowd" / "index.csv").open() as f:
        rows = [line.split(",") for line in f.read().splitlines()[1:]]
    for name, items, workers, classes, labels, *_ in rows:
        if not name.startswith("cifar"):
            data = load(name, root=shared_data)
            sizes = len(data), len(data.annotators), data.num_classes, len(data.crowd.item)
            assert sizes == (int(items), int(workers), int(classes), int(labels)), name


ARRAY = np.arange(12, dtype=np.uint8).reshape(3, 4)
DIGEST = hashlib.sha256(ARRAY.tobytes()).hexdigest()


def test_decoded_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = []
    for _ in range(3):
        assert np.array_equal(cached_array(DIGEST, lambda: made.append(1) or ARRAY), ARRAY)
    assert len(made) == 1
    assert os.listdir(tmp_path / "dubito" / "decoded") == [f"{DIGEST}.npy"]


@pytest.mark.rel
def test_a_damaged_cache_is_noticed_and_mended(tmp_path, monkeypatch, caplog):
    """Scorecard 26, 28: one flipped bit, a cut file, another array in the cache are never used."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tmp_path / "dubito" / "decoded" / f"{DIGEST}.npy"
    cached_array(DIGEST, lambda: ARRAY)
    good = path.read_bytes()
    for bad in (good[:-1] + bytes([good[-1] ^ 1]), good[:-4], b"", b"\x93NUMPY" + bytes(200)):
        path.write_bytes(bad)
        with caplog.at_level(logging.WARNING, "dubito"):
            assert np.array_equal(cached_array(DIGEST, lambda: ARRAY), ARRAY)
        assert "made again" in caplog.text
        assert path.read_bytes() == good
        caplog.clear()


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(tmp_path, monkeypatch, caplog):
    (tmp_path / "dubito").write_text("a file in the place of the folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with caplog.at_level(logging.WARNING, "dubito"):
        assert np.array_equal(cached_array(DIGEST, lambda: ARRAY), ARRAY)
    assert "decoded again" in caplog.text


def test_a_decoder_that_is_wrong_is_told():
    with pytest.raises(DubitoError, match="not the recorded one"):
        cached_array("00" * 32, lambda: ARRAY)
