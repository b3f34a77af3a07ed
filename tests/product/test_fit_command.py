"""`dubito fit` as a user types it: tables in, a folder with everything out, and the same command goes on."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from product_tables import FAST, LONGER, NAMES, blobs, dubito, read, single_table, write
from sklearn.metrics import average_precision_score

from dubito._product import training
from dubito._product.reading import scale_of
from dubito.checkpoint import load_latest
from dubito.data import LabelledData, read_npz
from dubito.errors import DubitoError


def test_it_says_what_it_understood_before_training(table, tmp_path):
    said = dubito("fit", table, "--out", tmp_path / "run", "--method", "ce", *FAST)
    lines = said.splitlines()
    assert "  items: 180" in lines
    assert "  inputs: 2 numbers each: width, height" in lines
    assert "  labels from: label = label, id = name" in lines
    assert any(line.startswith("  classes: 3 (ant, bee, cat)") for line in lines)
    assert any(line.startswith("  not used: note") for line in lines)
    assert any(line.startswith("  balance: ant") for line in lines)
    assert lines.index("  items: 180") < next(i for i, line in enumerate(lines) if "fold 1 of 2" in line)
    assert lines[-1] == f"report: {tmp_path / 'run' / 'report.html'}"


def test_everything_is_written(trained, three):
    predictions = read(trained / "predictions.csv")
    assert [p["id"] for p in predictions[:2]] == ["row 0", "row 1"]
    assert list(predictions[0]) == ["id", "predicted", "probability", "p_ant", "p_bee", "p_cat"]
    sums = [sum(float(p[f"p_{n}"]) for n in NAMES) for p in predictions]
    assert np.allclose(sums, 1, atol=1e-4)
    right = np.mean([p["predicted"] == NAMES[t] for p, t in zip(predictions, three.true)])
    assert right > 0.93
    quality = read(trained / "label_quality.csv")
    wrong = three.given != three.true
    assert [q["given"] for q in quality] == NAMES[three.given].tolist()
    assert average_precision_score(wrong, [float(q["p_wrong"]) for q in quality]) > 0.9
    T = read(trained / "transition.csv")
    rows = {n: sum(float(t["probability"]) for t in T if t["true"] == n) for n in NAMES}
    assert np.allclose(list(rows.values()), 1, atol=1e-4)
    assert all(float(t["low"]) <= float(t["probability"]) <= float(t["high"]) for t in T)
    metrics = json.loads((trained / "metrics.json").read_text())
    assert metrics["noise_rate"]["low"] <= wrong.mean() <= metrics["noise_rate"]["high"] + 0.05
    assert (
        metrics["noisy_accuracy"]["low"]
        < metrics["noisy_accuracy"]["value"]
        < metrics["noisy_accuracy"]["high"]
    )
    page = (trained / "report.html").read_text(encoding="utf-8")
    for part in ("Data and noise", "Why this method", "Reliability diagram", "Training", "Suspicious labels"):
        assert part in page


def test_the_estimated_accuracy_is_no_surer_than_the_noise_rate(trained, three):
    """Its variance is that of a share of 180 items and that of the noise rate together."""
    metrics = json.loads((trained / "metrics.json").read_text())
    about, rate = metrics["estimated_accuracy"], metrics["noise_rate"]
    error = max(rate["high"] - rate["value"], rate["value"] - rate["low"])
    chance = 1.96 * (about["value"] * (1 - about["value"]) / 180) ** 0.5
    assert error > 0.01
    assert about["value"] - about["low"] == pytest.approx((error**2 + chance**2) ** 0.5, rel=1e-3)
    saved = read_npz(trained / "out_of_fold.npz", ["probs", "rows"])
    true = (saved["probs"].argmax(1) == three.true[saved["rows"]]).mean()
    assert about["low"] <= true <= about["high"]


def test_relabel_list_is_ranked_and_waits_for_answers(trained):
    rows = read(trained / "relabel.csv")
    p = [float(r["p_wrong"]) for r in rows]
    assert p == sorted(p, reverse=True)
    assert {r["gold"] for r in rows} == {""}
    assert all(r["given"] != r["suggested"] for r in rows)


@pytest.mark.rel
def test_the_same_command_trains_nothing_twice(trained, table, monkeypatch):
    """A finished run is taken up again, byte for byte."""
    before = {n: (trained / n).read_bytes() for n in ("predictions.csv", "label_quality.csv", "metrics.json")}
    monkeypatch.setattr(training, "_train", lambda *a: pytest.fail("trained again"))
    dubito("fit", table, "--out", trained, "--method", "gce", *FAST)
    assert before == {n: (trained / n).read_bytes() for n in before}


def test_a_stopped_run_goes_on_with_the_networks_it_has(table, trained, tmp_path, monkeypatch):
    real, seen = training._train, []

    def stops(*args):
        seen.append(args)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(training, "_train", stops)
    out = tmp_path / "run"
    words = ["fit", table, "--out", out, "--method", "gce", *FAST]
    dubito(*words, ok=False)
    assert not (out / "report.html").exists()
    dubito(*words)
    assert len(seen) == 4, "three networks, one of them tried twice"
    assert (out / "predictions.csv").read_bytes() == (trained / "predictions.csv").read_bytes()


def test_another_command_for_the_same_folder_is_refused(trained, table):
    told = dubito("fit", table, "--out", trained, "--method", "ce", *FAST, ok=False)
    assert "another configuration" in told


def test_items_without_a_label_are_predicted_only(tmp_path):
    b = blobs(90, 0.0)
    rows = [(*b.x[i], NAMES[b.given[i]] if i % 3 else "") for i in range(90)]
    path = write(tmp_path / "some.csv", ["u", "v", "label"], rows)
    said = dubito("fit", path, "--out", tmp_path / "run", "--method", "ce", *FAST)
    assert "items without a label: 30" in said
    assert len(read(tmp_path / "run" / "predictions.csv")) == 90
    assert len(read(tmp_path / "run" / "label_quality.csv")) == 60


def test_parquet_and_npz_give_what_csv_gives(trained, table, three, tmp_path):
    pandas = pytest.importorskip("pandas")
    pandas.read_csv(table).to_parquet(tmp_path / "labels.parquet")
    dubito("fit", tmp_path / "labels.parquet", "--out", tmp_path / "a", "--method", "gce", *FAST)
    assert (tmp_path / "a" / "predictions.csv").read_bytes() == (trained / "predictions.csv").read_bytes()
    np.savez(tmp_path / "labels.npz", x=three.x, y=NAMES[three.given], truth=NAMES[three.true])
    said = dubito("fit", tmp_path / "labels.npz", "--out", tmp_path / "b", "--method", "gce", *FAST)
    assert "true labels: of 180 items" in said
    metrics = json.loads((tmp_path / "b" / "metrics.json").read_text())
    assert metrics["true_accuracy"]["value"] > 0.93


def test_no_row_is_left_out_of_predictions_for_its_id(trained, tmp_path):
    rows = [("a (3)", 0, 0), ("a", 4, 0), ("a", 0, 4)]
    new = write(tmp_path / "new.csv", ["name", "width", "height"], rows)
    dubito("predict", trained, new, "--out", tmp_path / "p.csv")
    assert [p["id"] for p in read(tmp_path / "p.csv")] == ["a (3)", "a", "a (2)"]


@pytest.mark.parametrize("kind", ["csv", "float64", "int64"])
def test_features_far_from_zero_keep_what_they_tell(three, tmp_path, kind):
    x = 1_700_000_000 + (10 * three.x).round()
    if kind == "csv":
        rows = [(*x[i].tolist(), NAMES[three.true[i]]) for i in range(len(x))]
        data = write(tmp_path / "d.csv", ["a", "b", "label"], rows)
    else:
        np.savez(data := tmp_path / "d.npz", x=x.astype(kind), y=NAMES[three.true])
    dubito("fit", data, "--out", tmp_path / "run", "--method", "ce", *LONGER)
    dubito("predict", tmp_path / "run", data, "--out", tmp_path / "p.csv")
    found = [p["predicted"] for p in read(tmp_path / "p.csv")]
    assert np.mean(np.array(found) == NAMES[three.true]) > 0.95


def test_a_scale_is_exact_far_from_zero_and_leaves_constants():
    x = torch.tensor([[1.7e9 + i, 0.1, 1e-9 * i] for i in range(5)], dtype=torch.float64)
    scale = scale_of(LabelledData(x, torch.zeros(5, dtype=torch.int64)))
    assert scale.std == pytest.approx((2**0.5, 1.0, 1e-9 * 2**0.5), rel=1e-12)
    assert scale.mean == pytest.approx((1.7e9 + 2, 0.1, 2e-9), rel=1e-15)
    narrow = torch.tensor([[1000.0], [np.nextafter(np.float32(1000), 2000)]])
    assert scale_of(LabelledData(narrow, torch.zeros(2, dtype=torch.int64))).std == (1.0,), "rounding alone"
    with pytest.raises(DubitoError, match="too large"):
        scale_of(LabelledData(1e200 * x, torch.zeros(5, dtype=torch.int64)))


def test_a_slip_of_the_keyboard_sets_no_scale(three, tmp_path):
    """One value of 1e9 hid all differences of the others."""
    rows = [(*x, NAMES[k]) for x, k in zip(three.x, three.given)]
    table = write(tmp_path / "t.csv", ["a", "b", "label"], [*rows, (1e9, 1e9, "ant")])
    dubito("fit", table, "--out", tmp_path / "run", "--method", "gce", *LONGER)
    predicted = [r["predicted"] for r in read(tmp_path / "run" / "predictions.csv")]
    assert np.mean(predicted[:-1] == NAMES[three.true]) > 0.93
    x = torch.tensor([[0.0], [1.0], [2.0], [3.0], [1e9]], dtype=torch.float64)
    scale = scale_of(LabelledData(x, torch.zeros(5, dtype=torch.int64)))
    # 1e9 is more than a hundred times the distance of the quartiles, 2, from the median: the median stands for it.
    assert scale.mean == pytest.approx(((0 + 1 + 2 + 3 + 2) / 5,))
    assert scale.std == pytest.approx((np.std([0, 1, 2, 3, 2]),))
    x[-1] = 200.0
    assert scale_of(LabelledData(x, torch.zeros(5, dtype=torch.int64))).mean == pytest.approx((206 / 5,))


def test_it_says_truly_why_a_column_is_not_used(three, tmp_path):
    rows = [
        ("", f"note {i}", i if i % 2 else f"n{i}", "t", f"{x:.3f}".replace(".", ","), x, y, n)
        for i, ((x, y), n) in enumerate(zip(three.x, NAMES[three.given]))
    ]
    head = ["none", "note", "odd", "same", "comma", "a", "b", "label"]
    table = write(tmp_path / "t.csv", head, rows)
    said = dubito("fit", table, "--out", tmp_path / "run", "--method", "ce", *FAST)
    assert "  inputs: 2 numbers each: a, b" in said
    assert "  not used: none (empty)" in said
    assert "  not used: note (words that hardly repeat)" in said
    assert "  not used: odd (50 % numbers; the others are words that hardly repeat)" in said
    assert "  not used: same (always the same)" in said
    assert "  not used: comma (write decimal points, not commas, to use it)" in said
    named = dubito("fit", table, "--features", "a", "--out", tmp_path / "r2", "--method", "ce", *FAST)
    assert "  not used: b (not named by --features)" in named


def test_predictions_of_a_stored_run(trained, table, tmp_path):
    out = tmp_path / "p.csv"
    dubito("predict", trained, table, "--out", out)
    assert out.read_bytes() == (trained / "predictions.csv").read_bytes()
    new = single_table(tmp_path / "new.csv", blobs(40, 0.0, seed=1))
    dubito("predict", trained, new, "--out", out)
    assert len(read(out)) == 40


def test_gold_goes_back_in(trained, three, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    rows = read(run / "relabel.csv")
    checked = rows[:12]
    truth = {f"row {i}": NAMES[t] for i, t in enumerate(three.true)}
    for row in checked:
        row["gold"] = truth[row["id"]]
    file = write(tmp_path / "corrected.csv", list(rows[0]), [list(r.values()) for r in rows])
    before = json.loads((run / "metrics.json").read_text())
    folds = read_npz(run / "out_of_fold.npz")["fold"]
    said = dubito("fit", run, "--gold", file)
    assert "12 checked labels" in said
    after = {q["id"]: q for q in read(run / "label_quality.csv")}
    assert len(after) == 180
    for row in checked:
        assert after[row["id"]]["gold"] == row["gold"]
        assert float(after[row["id"]]["p_wrong"]) == float(row["gold"] != row["given"])
    assert not {r["id"] for r in read(run / "relabel.csv")} & {r["id"] for r in checked}
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["checked"] == 12
    assert metrics["noise_rate"]["value"] < before["noise_rate"]["value"]
    assert load_latest(run / "model").step == 1
    assert np.array_equal(folds, read_npz(run / "out_of_fold.npz")["fold"]), "no network sees its own fold"
    assert "12 labels were checked" in (run / "report.html").read_text(encoding="utf-8")
    assert "in the run already" in dubito("fit", run, "--gold", file)


def test_a_run_finds_its_data_from_another_folder(table, tmp_path, monkeypatch):
    monkeypatch.chdir(table.parent)
    dubito("fit", table.name, "--out", tmp_path / "run", "--method", "ce", *FAST)
    monkeypatch.chdir(tmp_path)
    assert "check first:" in dubito("audit", "run")
    assert (tmp_path / "run" / "audit.html").is_file()


def test_folders_of_images_and_tables_of_images(tmp_path):
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    rows = []
    for i in range(40):
        shade = 40 if i % 2 else 200
        pixels = rng.integers(shade - 30, shade + 30, (12, 12)).astype(np.uint8)
        kind = "dark" if i % 2 else "light"
        (tmp_path / "photos" / kind).mkdir(parents=True, exist_ok=True)
        image.fromarray(pixels).save(tmp_path / "photos" / kind / f"{i}.png")
        rows.append((f"{kind}/{i}.png", f"{kind}"))
    said = dubito("fit", tmp_path / "photos", "--out", tmp_path / "a", "--method", "ce", *FAST)
    assert "inputs: images, 12 x 12, grey" in said
    assert "data:image/png" in (tmp_path / "a" / "report.html").read_text(encoding="utf-8")
    file = write(tmp_path / "photos.csv", ["picture", "label"], rows)
    said = dubito(
        "fit", file, "--images", tmp_path / "photos", "--out", tmp_path / "b", "--method", "ce", *FAST
    )
    assert "id = picture" in said
    dubito("predict", tmp_path / "b", tmp_path / "photos", "--out", tmp_path / "p.csv")
    assert all(p["id"].startswith(p["predicted"]) for p in read(tmp_path / "p.csv"))


def test_the_report_says_what_probabilities_are_about(trained, table, tmp_path):
    """`gce` takes labels at their word; `forward` sees the true class through a matrix."""
    dubito("fit", table, "--out", tmp_path / "run", "--method", "forward", *FAST)
    told = "are about labels as they are given"
    assert told in (trained / "report.html").read_text(encoding="utf-8")
    assert told not in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
