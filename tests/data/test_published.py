"""Readers of the published layouts, on files made by the independent script."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
import torch

from dubito import DubitoError
from dubito.data import balanced, image_folder, load
from dubito.data._zips import read_torch


def test_mnist_idx_plain_and_gzipped(published, made):
    train = load("mnist", root=published)
    assert torch.equal(train.inputs, torch.from_numpy(made.pixels(12, 1, 28)))
    assert train.labels.tolist() == [i % 10 for i in range(12)]
    assert len(load("mnist", "test", root=published)) == 6
    assert train.num_classes == 10
    assert train.name == "mnist/train"


@pytest.mark.parametrize("layout", ["py10", "bin10"])
def test_cifar10(published, made, layout):
    train = load("cifar10", root=published / layout)
    assert torch.equal(train.inputs, torch.from_numpy(made.pixels(60, 3, 32)))
    assert train.labels.tolist() == [(k + i) % 10 for k in range(5) for i in range(12)]
    test = load("cifar10", "test", root=published / layout)
    assert torch.equal(test.inputs, torch.from_numpy(made.pixels(12, 3, 32, 1000)))
    assert set(test.labels.tolist()) == {3}


@pytest.mark.parametrize("layout", ["py100", "bin100"])
def test_cifar100_fine_labels_and_the_two_byte_head(published, made, layout):
    train = load("cifar100", root=published / layout)
    assert torch.equal(train.inputs, torch.from_numpy(made.pixels(12, 3, 32)))
    assert train.labels.tolist() == [8 * i % 100 for i in range(12)]
    assert train.extra["coarse"].tolist() == [i % 20 for i in range(12)]
    assert len(train.classes) == 100


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_cifar_batches_pickled_anew(tmp_path, made, protocol):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    table = {
        "data": made.pixels(5, 3, 32).reshape(5, -1),
        "fine_labels": [1, 2, 3, 4, 99],
        "coarse_labels": [0] * 5,
    }
    (folder / "train").write_bytes(pickle.dumps(table, protocol))
    assert torch.equal(load("cifar100", root=tmp_path).inputs, torch.from_numpy(made.pixels(5, 3, 32)))


@pytest.mark.parametrize("split", ["train", "test"])
def test_svhn_label_ten_is_the_digit_zero(published, made, split):
    data = load("svhn", split, root=published)
    assert torch.equal(data.inputs, torch.from_numpy(made.pixels(12, 3, 32)))
    assert data.labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]


def test_cifar_10n_over_the_images(published, monkeypatch):
    monkeypatch.setenv("DUBITO_DATA", os.pathsep.join([str(published / "human"), str(published / "py10")]))
    data = load("cifar10n", labels="random2")
    assert data.labels.tolist() == [4 * i % 10 for i in range(60)]
    assert torch.equal(data.clean, load("cifar10").labels)
    assert load("cifar10n").labels.tolist() == [2 * i % 10 for i in range(60)]
    assert sorted(data.extra) == ["aggre", "random1", "random2", "random3", "worst"]
    with pytest.raises(DubitoError, match="did you mean 'random"):
        load("cifar10n", labels="random")


def test_cifar_100n_from_the_older_torch_layout(published, monkeypatch):
    monkeypatch.setenv("DUBITO_DATA", os.pathsep.join([str(published / "human"), str(published / "py100")]))
    assert load("cifar100n").labels.tolist() == [7 * i % 100 for i in range(12)]
    coarse = load("cifar100n", labels="noisy_coarse")
    assert coarse.clean.tolist() == [i % 20 for i in range(12)]


def test_cifar_10h(published, monkeypatch):
    monkeypatch.setenv("DUBITO_DATA", os.pathsep.join([str(published / "human"), str(published / "py10")]))
    data = load("cifar10h")
    assert data.labels.tolist() == [i % 10 for i in range(12)]
    assert data.clean.tolist() == [3] * 12
    assert data.extra["counts"].sum(-1).tolist() == [48] * 12


def test_human_labels_in_another_order_are_refused(published, tmp_path, monkeypatch):
    table = dict.fromkeys(["aggre", "worst", "random1", "random2", "random3"], np.zeros(60, np.int64))
    np.savez(tmp_path / "cifar10n.npz", clean=np.zeros(60, np.int64), **table)
    monkeypatch.setenv("DUBITO_DATA", str(published / "py10"))
    with pytest.raises(DubitoError, match="not in the order of these images"):
        load("cifar10n", root=tmp_path)


def test_torch_file_of_tensors(tmp_path):
    tensors = {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor([1, 2]), "half": torch.arange(8)[2:6]}
    torch.save(tensors, tmp_path / "t.pt")
    found = read_torch(tmp_path / "t.pt")
    for key, tensor in tensors.items():
        assert found[key].value.tolist() == tensor.tolist()


def test_clothing1m_lists_and_lazy_decoding(published):
    train = load("clothing1m", root=published)
    assert train.labels.tolist() == [i % 3 for i in range(8)]
    assert train.clean.tolist() == [13, 12, -1, -1, -1, -1, -1, -1]
    batch = train.gather(torch.tensor([7, 0]))
    assert batch.shape == (2, 3, 256, 256)
    assert abs(int(batch[0, 0, 128, 128]) - 140) < 4
    assert train.subset([7]).ids[0] == "images/1/07,x.jpg"
    assert load("clothing1m", "val", root=published).labels.tolist() == [5, 4]
    assert len(load("clothing1m", "clean_train", root=published)) == 2


def test_imagenet_folders(published):
    data = load("imagenet", root=published)
    assert data.classes == ("n01440764", "n01443537")
    assert data.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.batch(torch.tensor([5])).shape == (1, 3, 256, 256)
    assert len(load("imagenet", "val", root=published)) == 2


def test_imagenet_as_handed_out(published, tmp_path):
    data = load("imagenet", "val", root=published / "archive")
    assert data.classes == (
        "n01440764",
        "n01443537",
        "n01484850",
    )  # those of train, one of which is not in val
    assert data.labels.tolist() == [2, 0]
    assert abs(int(data.gather(torch.tensor([1]))[0, 0, 128, 128]) - 200) < 4
    assert load("imagenet", root=published / "archive").labels.tolist() == [0, 1, 2]
    assert len(load("imagenet", "val", root=published / "imagenet")) == 2  # the folder itself
    val = published / "archive" / "ILSVRC" / "Data" / "CLS-LOC" / "val"
    (tmp_path / "train" / "cats").mkdir(parents=True)
    with pytest.raises(DubitoError, match="not on this machine"):  # somebody else's classes
        load("imagenet", root=tmp_path)
    (tmp_path / "val").symlink_to(val)
    with pytest.raises(DubitoError, match="images without their classes"):
        load("imagenet", "val", root=tmp_path)
    table = tmp_path / "LOC_val_solution.csv"
    for row, message in (("x,1 2 3", "not a class at .*line 2"), ("../x,n01440764 1", "leads out")):
        table.write_text(f"ImageId,PredictionString\n{row}\n")
        with pytest.raises(DubitoError, match=message):
            load("imagenet", "val", root=tmp_path)
    table.write_text("ImageId,PredictionString\nx,n01440764 1\n")
    with pytest.raises(DubitoError, match="a class without a folder"):
        load("imagenet", "val", root=tmp_path)


def test_labelme_as_published(published):
    train = load("labelme", root=published)
    assert train.inputs.shape == (4, 8)
    assert [t.tolist() for t in train.crowd] == [
        [0, 0, 1, 2, 2, 2, 3],
        [0, 2, 1, 0, 1, 2, 2],
        [0, 1, 1, 2, 2, 2, 0],
    ]
    assert train.labels.tolist() == [-1] * 4
    assert train.crowd_labels().item.tolist() == [0, 0, 1, 2, 2, 2, 3]
    assert load("labelme", "test", root=published).labels.tolist() == [0, 1, 2]


def test_image_folder_skips_what_is_no_image(published, tmp_path):
    import shutil

    shutil.copytree(published / "imagenet" / "train", tmp_path / "photos")
    (tmp_path / "photos" / "n01440764" / "notes.txt").write_text("no image")
    (tmp_path / "photos" / "n01440764" / ".hidden.jpg").write_text("no image")
    (tmp_path / "photos" / "n01440764" / "link.jpg").symlink_to("/etc/passwd")
    data = image_folder(tmp_path / "photos", size=8)
    assert len(data) == 6
    assert data.gather(torch.tensor([1])).shape == (1, 3, 8, 8)


def test_balanced_sampling_is_keyed_and_balanced():
    labels = torch.tensor([0] * 50 + [1] * 7 + [2] * 20)
    chosen = balanced(labels, 3, 10, seed=1, epoch=4)
    assert torch.bincount(labels[chosen]).tolist() == [10, 10, 10]
    large = chosen[labels[chosen] == 0]
    assert len(large.unique()) == 10
    assert len(chosen[labels[chosen] == 1].unique()) == 7
    assert torch.equal(chosen, balanced(labels, 3, 10, seed=1, epoch=4))
    assert not torch.equal(chosen, balanced(labels, 3, 10, seed=1, epoch=5))
    with pytest.raises(DubitoError, match="every class needs an example"):
        balanced(labels, 4, 10, seed=0, epoch=0)


def test_what_is_not_there_is_said(tmp_path, published):
    with pytest.raises(DubitoError, match="not on this machine"):
        load("cifar100", root=tmp_path)
    with pytest.raises(DubitoError, match="no such split at mnist: expected train or test, got 'val'"):
        load("mnist", "val")
    with pytest.raises(DubitoError, match="one kind of label"):
        load("mnist", labels="worst", root=published)
