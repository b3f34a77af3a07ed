"""Users' own arrays and datasets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from dubito import DubitoError
from dubito.data import from_arrays, from_hugging_face, from_torch, map_npy, read_arrays


def test_features_and_text_labels():
    data = from_arrays(np.eye(3), np.array(["dog", "cat", "dog"]), clean=["dog", "cow", None])
    assert data.inputs.dtype == torch.float64
    assert data.classes == ("cat", "cow", "dog")
    assert data.labels.tolist() == [2, 0, 2]
    assert data.clean.tolist() == [2, 1, -1]
    assert from_arrays([[1], [2]], [5, 7]).inputs.dtype == torch.float32
    large = np.array([[1_700_000_001], [2]], np.uint64)
    assert from_arrays(large, [5, 7]).inputs.tolist() == large.tolist()


def test_inputs_are_shared_not_copied():
    x = np.zeros((2, 3), np.float32)
    x_image = np.zeros((2, 1, 4, 4), np.uint8)
    for array in (x, x_image):
        data = from_arrays(array, [0, 1])
        array[0] = 9
        assert float(data.inputs[0].max()) == 9


def test_images_with_channels_first_last_or_none():
    images = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
    last = from_arrays(images, [0, 1], channels="last")
    assert torch.equal(last.inputs, torch.from_numpy(images).permute(0, 3, 1, 2))
    assert from_arrays(images[..., 0], [0, 1]).inputs.shape == (2, 1, 4, 5)
    assert from_arrays(images[..., 0], [0, 1], channels="last").inputs.shape == (2, 1, 4, 5)
    assert from_arrays(torch.from_numpy(images), [0, 1]).inputs.shape == (2, 4, 5, 3)


def test_whole_numbers_beside_classes_are_positions():
    data = from_arrays(np.eye(3), torch.tensor([2, 0, 0]), classes=["a", "b", "c"])
    assert data.labels.tolist() == [2, 0, 0]
    assert data.classes == ("a", "b", "c")
    kept = from_arrays(np.eye(2), np.array([1, -1]), classes=["a", "b"], missing="keep")
    assert kept.labels.tolist() == [1, -1]
    with pytest.raises(
        DubitoError, match="label out of range at arrays, labels: expected 0 to 1, got 0 to 2"
    ):
        from_arrays(np.eye(2), np.array([0, 2]), classes=["a", "b"])


def test_odd_arrays_are_taken():
    for x in (np.eye(3)[::-1], np.eye(3).astype(">f4"), np.eye(3, dtype=bool), np.asfortranarray(np.eye(3))):
        assert from_arrays(x, [0, 1, 2]).inputs.sum() == 3
    frozen = np.eye(3)
    frozen.setflags(write=False)
    assert from_arrays(frozen, [0, 1, 2]).inputs.sum() == 3


@pytest.mark.rel
@pytest.mark.parametrize(
    ("x", "y", "more", "message"),
    [
        (np.array([[1.0], [np.nan]]), [0, 1], {}, r"not a finite number at arrays, inputs\[1, 0\]"),
        (np.array([["a"]]), [0], {}, "must be an array of numbers"),
        ([[1], [1, 2]], [0, 1], {}, "must be an array of numbers"),
        (np.array([{}]), [0], {}, "must be an array of numbers"),
        (np.zeros(3), [0, 1, 2], {}, "one row per example"),
        (np.zeros((2, 2), complex), [0, 1], {}, "array of numbers"),
        (np.eye(2), [0], {}, "differ in length"),
        (np.eye(2), [[0], [1]], {}, "labels must be one per example"),
        (np.eye(2), [0, None], {}, r"no label given at arrays, labels\[1\]"),
        (np.eye(2), [0, 1], {"channels": "middle"}, "unknown place of the channels"),
        (np.eye(2), [0, 1], {"clean": [0]}, "clean and labels differ in length"),
    ],
)
def test_refusals(x, y, more, message):
    """Scorecard 13: bad features and labels are refused before the first step."""
    with pytest.raises(DubitoError, match=message):
        from_arrays(x, y, **more)


def test_npz_and_mapped_npy(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.eye(3), y=np.array(["b", "a", "b"]), t=np.array(["a", "a", "b"]))
    data = read_arrays(tmp_path / "a.npz", clean="t")
    assert data.labels.tolist() == [1, 0, 1]
    assert data.name == "a.npz"
    for order in "CF":
        np.save(tmp_path / "x.npy", np.asarray(np.arange(6.0).reshape(2, 3), order=order))
        mapped = map_npy(tmp_path / "x.npy")
        assert isinstance(mapped, np.memmap)
        assert from_arrays(mapped, [0, 1]).inputs.tolist() == [[0, 1, 2], [3, 4, 5]]
    before = (tmp_path / "x.npy").read_bytes()
    mapped[0] = 7
    assert (tmp_path / "x.npy").read_bytes() == before
    np.save(tmp_path / "none.npy", np.zeros((0, 3)))
    assert map_npy(tmp_path / "none.npy").shape == (0, 3)
    with pytest.raises(DubitoError, match="no such file"):
        map_npy(tmp_path / "gone.npy")


class Names:
    names = ("cat", "dog")


class Hub:
    """What a Hugging Face dataset looks like from outside."""

    def __init__(self, columns, features=None):
        self.columns, self.features = columns, features
        self.column_names = list(columns)

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, key):
        return self.columns[key] if isinstance(key, str) else {k: v[key] for k, v in self.columns.items()}


def test_hugging_face():
    pictures = [Image.new("L", (10, 6), i * 100) for i in range(3)]
    hub = Hub({"image": pictures, "label": [1, 0, 1]}, {"label": Names()})
    data = from_hugging_face(hub, image="image", size=4)
    assert data.classes == ("cat", "dog")
    assert data.labels.tolist() == [1, 0, 1]
    assert data.gather(torch.tensor([2, 0]))[:, 0, 0, 0].tolist() == [200, 0]
    table = from_hugging_face(Hub({"a": [1, 2], "b": [3, 4], "label": ["x", "007"]}), features=["a", "b"])
    assert table.inputs.tolist() == [[1, 3], [2, 4]]
    assert table.classes == ("007", "x")
    without = Hub({"image": pictures, "label": [1, -1, 0]}, {"label": Names()})
    with pytest.raises(DubitoError, match=r'no label given at dataset, labels\[1\].*missing="keep"'):
        from_hugging_face(without, image="image", size=4)
    assert from_hugging_face(without, image="image", size=4, missing="keep").labels.tolist() == [1, -1, 0]
    with pytest.raises(DubitoError, match="no such column at dataset: got 'lable'; did you mean 'label'"):
        from_hugging_face(hub, label="lable", image="image")
    with pytest.raises(DubitoError, match="either image= or features="):
        from_hugging_face(hub)
    with pytest.raises(DubitoError, match="collect a streaming dataset first"):
        from_hugging_face(iter([]), image="image")


class Pairs(torch.utils.data.Dataset):
    def __init__(self):
        self.fetched = []

    def __len__(self):
        return 4

    def __getitem__(self, i):
        self.fetched.append(i)
        return np.full(2, i, np.float32), "even" if i % 2 == 0 else "odd"


def test_torch_dataset_is_fetched_by_batch():
    pairs = Pairs()
    data = from_torch(pairs, labels=["even", "odd", "even", "odd"])
    assert pairs.fetched == []
    assert data.batch(torch.tensor([3, 1])).tolist() == [[3, 3], [1, 1]]
    assert pairs.fetched == [3, 1]
    assert from_torch(pairs).labels.tolist() == [0, 1, 0, 1]
    for nothing in (iter([]), torch.tensor(1.0), {1, 2}):
        with pytest.raises(DubitoError, match="not a map-style dataset"):
            from_torch(nothing)
