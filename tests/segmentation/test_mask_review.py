"""What is said against masks: the numbers, where, by whom, and that planted errors come first."""

from __future__ import annotations

import csv

import numpy as np
import pytest
import torch
from PIL import Image

from dubito._product.tasks import FitJob
from dubito.data import mask_folders
from dubito.segmentation import command, command_page, review
from dubito.segmentation.shapes import CLASSES, shapes


def silent(line):
    pass


def test_doubt_is_the_mean_gap_between_guess_and_given():
    generator = torch.Generator().manual_seed(0)
    log_p = torch.randn(9, 11, 4, generator=generator).log_softmax(-1)
    given = torch.randint(4, (9, 11), generator=generator)
    given[0], given[3, 3] = -100, -1
    found = review.doubted(log_p, given)
    p, y, total, wrong, n = log_p.double().exp().numpy(), given.numpy(), 0.0, 0, 0
    for i in range(9):
        for j in range(11):
            if y[i, j] >= 0:
                n, total = n + 1, total + p[i, j].max() - p[i, j, y[i, j]]
                wrong += p[i, j].argmax() != y[i, j]
    assert found.doubt == pytest.approx(total / n, rel=1e-5)
    assert found.wrong == pytest.approx(wrong / n)
    assert sum(r.pixels for r in found.regions) == wrong
    assert sum(r.doubt for r in found.regions) == pytest.approx(total, rel=1e-5)


def test_a_missing_object_comes_before_a_border_that_is_off():
    given, guess = np.zeros((40, 60), np.int64), np.zeros((40, 60), np.int64)
    guess[5:12, 40:48] = 2  # 56 pixels that the mask lacks
    given[20:38, 3:30] = 1
    guess[20:39, 3:31] = 1  # 46 pixels of an outline
    gap = np.where(given == guess, 0.0, 0.8)
    gap[given == 1] = 0
    first, *rest = review.regions(given, guess, gap, np.full(given.shape, 0.1))
    assert (first.given, first.suggested, first.pixels, first.box) == (0, 2, 56, (5, 40, 7, 8))
    assert first.doubt == pytest.approx(56 * 0.8)
    assert first.p_wrong == pytest.approx(0.9)
    assert first.thickness == 4
    assert [(r.pixels, r.thickness) for r in rest] == [(46, 1)]
    assert review.regions(given, given, np.zeros(given.shape), gap) == []


def test_parts_are_disjoint_and_nearly_of_one_size():
    numbers = review.fold_numbers(23, 5, seed=1)
    assert sorted(numbers.bincount().tolist()) == [4, 4, 5, 5, 5]
    assert not torch.equal(numbers, review.fold_numbers(23, 5, seed=2))


@pytest.fixture
def folders(tmp_path):
    """Ten scenes; the masks of 2 and 7 are those of other scenes."""
    scenes = shapes(10, size=(24, 32), seed=2)
    (tmp_path / "photos").mkdir()
    (tmp_path / "masks").mkdir()
    masks = scenes.labels.numpy().astype(np.uint8)
    for i in range(10):
        Image.fromarray(scenes.inputs[i].permute(1, 2, 0).numpy()).save(tmp_path / f"photos/s{i}.png")
        Image.fromarray(masks[{2: 5, 7: 4}.get(i, i)]).save(tmp_path / f"masks/s{i}.png")
    return tmp_path


def test_every_mask_is_judged_by_a_network_that_has_not_seen_it(folders):
    data = mask_folders(folders / "photos", folders / "masks")
    setting = command.Setting("encoder-decoder-small", (3, 24, 32), CLASSES, None, 1)
    seen = []

    def train(fold, learned, part):
        seen.append((set(learned.ids), set(part.ids)))
        return command.make(setting, "ce")[0]

    found = list(review.out_of_fold(data, train, folds=3, seed=0))
    assert sorted(d.row for d in found) == list(range(10))
    for learned, part in seen:
        assert not learned & part
        assert learned | part == set(data.ids)
    for d in found:
        assert torch.equal(d.given, data.labels[d.row].long())


def test_a_run_lists_the_masks_to_look_at_first(folders):
    job = FitJob(folders / "photos", folders / "run", masks=folders / "masks", method="ce", epochs=1, device="cpu",
                 folds=2)  # fmt: skip
    said = []
    command.fit(job, said.append)
    rows = list(csv.DictReader((folders / "run/review.csv").open()))
    assert sorted(row["id"] for row in rows) == [f"s{i}" for i in range(10)]
    doubts = [float(row["doubt"]) for row in rows]
    assert doubts == sorted(doubts, reverse=True)
    assert any(
        f"Masks to look at first: {rows[0]['id']}, {rows[1]['id']}, {rows[2]['id']}" in line for line in said
    )
    page = (folders / "run/report.html").read_text()
    assert 'id="suspects"' in page
    worst = np.array(Image.open(folders / f"run/doubt/{rows[0]['id']}.png"))
    assert worst.shape == (24, 32)
    assert worst.mean() / 255 == pytest.approx(doubts[0], abs=2e-3)


@pytest.mark.nightly
def test_masks_of_other_images_come_first(folders):
    job = FitJob(folders / "photos", folders / "run", masks=folders / "masks", method="ce", epochs=400,
                 device="cpu")  # fmt: skip
    command.fit(job, silent)
    rows = list(csv.DictReader((folders / "run/review.csv").open()))
    assert {row["id"] for row in rows[:2]} == {"s2", "s7"}


def test_masks_of_several_annotators_are_judged_one_by_one(folders):
    for person in ("ann", "bob"):
        (folders / "several" / person).mkdir(parents=True)
        for i in range(10):
            if (person, i) != ("bob", 4):
                mask = Image.open(folders / f"masks/s{i}.png")
                mask.save(folders / "several" / person / f"s{i}.png")
    job = FitJob(
        folders / "photos", folders / "run", masks=folders / "several", method="trace", epochs=1, device="cpu",
        size=16, folds=2, options={"annotators": True, "classes": CLASSES},
    )  # fmt: skip
    command.fit(job, silent)
    rows = list(csv.DictReader((folders / "run/review.csv").open()))
    assert len(rows) == 19
    assert ("s4", "bob") not in {(row["id"], row["annotator"]) for row in rows}
    for row in rows:
        size = Image.open(folders / f"run/doubt/{row['annotator']}/{row['id']}.png").size
        assert size == (32, 24)
        if row["row"]:
            assert int(row["row"]) + int(row["height"]) <= 24
            assert int(row["column"]) + int(row["width"]) <= 32


def test_what_is_held_of_every_mask_until_they_are_ranked_is_small():
    """Six bytes per pixel, where they were twenty, whatever the number of regions."""
    log_p = torch.randn(40, 50, 4, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    found = review.doubted(log_p, torch.zeros(40, 50, dtype=torch.int64))
    assert sum(part.nbytes for part in (found.given, found.guess, found.map)) <= 6 * 40 * 50


def test_examples_of_the_report_are_held_for_the_best_and_the_worst_alone(folders):
    """Of ten images held out, pictures of six: the three of most and the three of least agreement."""
    data = mask_folders(folders / "photos", folders / "masks")
    setting = command.Setting("encoder-decoder-small", (3, *data.labels.shape[1:]), data.classes, None, 1)
    model, _ = command.make(setting, "ce")
    held = set(data.ids)
    rows, examples = command_page._maps(folders / "out", data, model.eval(), held)
    ious = sorted((row[2] for row in rows), reverse=True)
    assert len(ious) > 6
    assert [e["iou"] for e in examples] == ious[:3] + ious[-3:]
