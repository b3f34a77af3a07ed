"""Published layouts that are incomplete or do not fit together: each is told in one sentence."""

from __future__ import annotations

import pickle
import shutil
import struct

import numpy as np
import pytest
import torch
from scipy.io import savemat

from dubito import DubitoError
from dubito.data import LabelledData, load
from dubito.data._pickles import read_pickle
from dubito.data._zips import read_torch

pytestmark = pytest.mark.rel
IMAGES = np.zeros((2, 3072), np.uint8)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([1, 2], "not a table"),
        ({"fine_labels": [1, 2], "coarse_labels": [0, 0]}, "missing entry .*expected data"),
        ({"data": IMAGES, "coarse_labels": [0, 0]}, "missing entry .*expected fine_labels"),
        ({"data": IMAGES[:, :9], "fine_labels": [1, 2], "coarse_labels": [0, 0]}, "not a CIFAR batch"),
        ({"data": IMAGES, "fine_labels": [1], "coarse_labels": [0, 0]}, "labels do not match"),
        ({"data": IMAGES, "fine_labels": [1, 100], "coarse_labels": [0, 0]}, "label out of range"),
        ({"data": IMAGES, "fine_labels": ["a", "b"], "coarse_labels": [0, 0]}, "not an array of numbers"),
        ({"data": "text", "fine_labels": [1, 2], "coarse_labels": [0, 0]}, "not an array of numbers"),
    ],
)
def test_cifar_batches(tmp_path, table, message):
    """Scorecard 13: a batch that lacks something or holds something else."""
    (tmp_path / "cifar-100-python").mkdir()
    (tmp_path / "cifar-100-python" / "train").write_bytes(pickle.dumps(table, 2))
    with pytest.raises(DubitoError, match=message):
        load("cifar100", root=tmp_path)


def test_cifar_files(tmp_path, published):
    """Scorecard 13: a missing batch, a cut binary file."""
    shutil.copytree(published / "py10", tmp_path / "py")
    (tmp_path / "py" / "cifar-10-batches-py" / "data_batch_3").unlink()
    with pytest.raises(DubitoError, match=r"a batch is missing .*expected data_batch_3"):
        load("cifar10", root=tmp_path / "py")
    (tmp_path / "cifar-100-binary").mkdir()
    (tmp_path / "cifar-100-binary" / "train.bin").write_bytes(bytes(3073))
    with pytest.raises(DubitoError, match=r"truncated CIFAR file .*records of 3074 bytes"):
        load("cifar100", root=tmp_path)


def test_mnist_images_and_labels_that_do_not_belong_together(tmp_path):
    """Scorecard 13: two images, three labels."""
    (tmp_path / "train-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, 2, 1, 1) + b"ab")
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, 3) + b"\0\1\2")
    with pytest.raises(DubitoError, match="do not belong together"):
        load("mnist", root=tmp_path)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.zeros((32, 32, 1, 2), np.uint8), [[1], [2]], "not the SVHN layout"),
        (np.zeros((32, 32, 3, 2), np.uint8), [[1]], "not the SVHN layout"),
        (np.zeros((32, 32, 3, 2), np.uint8), [[1], [11]], "run from 1 to 10"),
        (np.zeros((32, 32, 3, 2), np.uint8), [[0], [1]], "run from 1 to 10"),
    ],
)
def test_svhn(tmp_path, x, y, message):
    """Scorecard 13: other shapes, labels outside 1 to 10."""
    savemat(tmp_path / "train_32x32.mat", {"X": x, "y": np.array(y)})
    with pytest.raises(DubitoError, match=message):
        load("svhn", root=tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("noisy_label_kv.txt", b"images/0/00,x.jpg 99\n", "not a label at .*line 1"),
        ("noisy_label_kv.txt", b"images/0/00,x.jpg cat\n", "not a label"),
        ("noisy_label_kv.txt", b"images/0/00,x.jpg 1\n", "image without a label"),
        ("noisy_train_key_list.txt", b"../../etc/passwd\n", "leads out of the image folder at .*line 1"),
        ("noisy_train_key_list.txt", b"\n/etc/passwd\n", "leads out of the image folder at .*line 2"),
        ("noisy_train_key_list.txt", b"x" * 10_000, "line too long"),
    ],
)
def test_clothing1m(tmp_path, published, name, content, message):
    """Scorecard 28: list files with wrong labels, paths out of the folder, endless lines."""
    shutil.copytree(published / "clothing1m", tmp_path / "clothing1m")
    (tmp_path / "clothing1m" / name).write_bytes(content)
    with pytest.raises(DubitoError, match=message):
        load("clothing1m", root=tmp_path)


GOOD = {
    "item": np.array([0, 1]),
    "worker": np.array([0, 1]),
    "label": np.array([0, 1]),
    "truth": np.array([0, 1]),
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"item": np.array([0, 2])}, "triplets do not match the items"),
        ({"item": np.array([0])}, "triplets do not match the items"),
        ({"label": np.array([0, -1])}, "count from 0"),
        ({"worker": np.array([0.0, 1.0])}, "not a vector of whole numbers"),
        ({"truth": np.zeros((2, 2), int)}, "not a vector of whole numbers"),
        ({"worker": None}, "not a crowd set"),
    ],
)
def test_crowd_npz(tmp_path, change, message):
    """Scorecard 14: triplets that do not fit their items."""
    np.savez(tmp_path / "rte.npz", **{k: v for k, v in (GOOD | change).items() if v is not None})
    with pytest.raises(DubitoError, match=message):
        load("rte", root=tmp_path)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (b"0 1\n0 x\n", "not a whole number at .*line 2"),
        (b"0 1\n0\n", "line of another length at .*line 2"),
        (b"0 1 1\n", "answers do not match the items"),
        (b"nan\n", "not a whole number"),
    ],
)
def test_labelme_answers(tmp_path, published, answers, message):
    """Scorecard 14: a damaged table of answers."""
    shutil.copytree(published / "LabelMe", tmp_path / "LabelMe")
    (tmp_path / "LabelMe" / "answers.txt").write_bytes(answers)
    with pytest.raises(DubitoError, match=message):
        load("labelme", root=tmp_path)


def test_human_labels(tmp_path, published, monkeypatch):
    """Scorecard 13: tables of votes and vectors of labels with the wrong shape or type."""
    monkeypatch.setenv("DUBITO_DATA", str(published / "py10"))
    np.save(tmp_path / "cifar10h-counts.npy", np.zeros((12, 9)))
    with pytest.raises(DubitoError, match="not a table of votes"):
        load("cifar10h", root=tmp_path)
    names = ["clean_label", "aggre_label", "worse_label", "random_label1", "random_label2", "random_label3"]
    torch.save(dict.fromkeys(names, np.zeros((2, 2), np.int64)), tmp_path / "CIFAR-10_human.pt")
    with pytest.raises(DubitoError, match="not a vector of classes"):
        load("cifar10n", root=tmp_path)
    with pytest.raises(DubitoError, match="not on this machine"):
        load("cifar100n", root=tmp_path)


def test_torch_tensors_that_are_not_plain(tmp_path):
    """Scorecard 28: strided views and other objects of torch are refused, not guessed at."""
    torch.save({"a": torch.zeros(3, 4).t()}, tmp_path / "t.pt")
    with pytest.raises(DubitoError, match="not contiguous"):
        read_torch(tmp_path / "t.pt")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "t.pt")
    with pytest.raises(DubitoError, match="refused to read a pickle"):
        read_torch(tmp_path / "t.pt")


@pytest.mark.parametrize(
    "value", [np.array([(1, 2)], "i4,i4"), np.array([None]), {"a": {1, 2}}, np.datetime64("now")]
)
def test_other_python_objects(value):
    """Scorecard 28: records, objects, sets and dates are refused."""
    for protocol in (2, 4, 5):
        with pytest.raises(DubitoError, match="refused to read a pickle"):
            read_pickle(pickle.dumps(value, protocol), "file")


def test_a_set_without_a_crowd():
    with pytest.raises(DubitoError, match="not a crowd"):
        LabelledData(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64)).crowd_labels()
