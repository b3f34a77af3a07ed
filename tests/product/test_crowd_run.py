"""Crowds through the command line: consensus, annotators, whom to ask, gold."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from product_tables import LONGER, NAMES, crowd_table, dubito, read, write


def test_consensus_beats_the_vote_and_annotators_are_told_apart(trained_crowd, crowd, three):
    consensus = read(trained_crowd / "consensus.csv")
    truth = {f"i{i}": NAMES[t] for i, t in enumerate(three.true)}
    found = np.mean([c["label"] == truth[c["id"]] for c in consensus])
    votes: dict[str, list[str]] = {}
    for row in read(crowd):
        votes.setdefault(row["task"], []).append(row["label"])
    vote = np.mean([v.count(truth[i]) / len(v) for i, v in votes.items()])
    assert found > 0.95 > vote
    people = read(trained_crowd / "annotators.csv")
    assert [p["annotator"] for p in people] == ["good", "fair", "poor"]
    for person, skill in zip(people, (0.97, 0.8, 0.33)):
        assert float(person["low"]) - 0.05 <= skill <= float(person["high"]) + 0.05
    A = read(trained_crowd / "confusion_matrices.csv")
    assert len(A) == 27
    assert {a["annotator"] for a in A} == {"good", "fair", "poor"}


def test_nobody_is_asked_about_what_they_have_labelled(trained_crowd, crowd):
    seen = {(r["task"], r["worker"]) for r in read(crowd)}
    rows = read(trained_crowd / "relabel.csv")
    assert all(r["ask"] for r in rows)
    assert not {(r["id"], r["ask"]) for r in rows} & seen


def test_what_differs_between_the_labels_of_an_item_is_no_input(crowd, tmp_path):
    rows = read(crowd)
    head = [*rows[0], "confidence"]
    path = write(tmp_path / "c.csv", head, [[*r.values(), 0.1 * (n % 7)] for n, r in enumerate(rows)])
    from dubito._product.sources import find
    from dubito._product.tasks import FitJob

    source = find(FitJob(path, tmp_path / "run"))
    assert "confidence" in source.left_out
    assert source.features == find(FitJob(crowd, tmp_path / "run")).features
    assert "confidence" in find(FitJob(path, tmp_path / "run", features=("confidence",))).features


def test_the_report_can_hide_who_they_are(crowd, trained_crowd, tmp_path):
    shutil.copytree(trained_crowd, tmp_path / "run")
    words = ["fit", crowd, "--out", tmp_path / "run", "--method", "trace", "--anonymise", *LONGER]
    dubito(*words)
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "annotator 1" in page
    assert "poor" not in page


def test_gold_settles_items_of_a_crowd(trained_crowd, three, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained_crowd, run)
    doubtful = sorted(read(run / "consensus.csv"), key=lambda c: float(c["probability"]))[:8]
    rows = [(c["id"], NAMES[three.true[int(c["id"][1:])]]) for c in doubtful]
    dubito("fit", run, "--gold", write(tmp_path / "gold.csv", ["item", "correct"], rows))
    after = {c["id"]: c for c in read(run / "consensus.csv")}
    for item, label in rows:
        assert after[item]["label"] == label
        assert float(after[item]["probability"]) == 1
        assert after[item]["gold"] == "yes"
    assert not {r["id"] for r in read(run / "relabel.csv")} & set(dict(rows))
    assert {p["annotator"] for p in read(run / "annotators.csv")} == {"good", "fair", "poor"}


def test_one_label_per_item_still_finds_wrong_ones(three, tmp_path):
    """EM would stand still at labels that are all right."""
    table = crowd_table(tmp_path / "one.csv", three, per_item=1)
    dubito("fit", table, "--out", tmp_path / "run", "--method", "ce", *LONGER)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["noise_rate"]["value"] == pytest.approx(0.3, abs=0.1)
    skills = [p["annotator"] for p in read(tmp_path / "run" / "annotators.csv")]
    assert skills[-1] == "poor"


def test_audit_of_a_run_ranks_labels_and_people(trained_crowd, tmp_path):
    said = dubito("audit", trained_crowd, "--out", tmp_path / "audit")
    assert "annotators by skill (3):" in said
    assert "kind of noise: annotator-specific" in said
    assert "what checking brings:" in said
    ranked = read(tmp_path / "audit" / "audit.csv")
    assert len(ranked) == 360
    p = [float(r["p_wrong"]) for r in ranked]
    assert p == sorted(p, reverse=True)
    quality = {(q["id"], q["annotator"]): q["p_wrong"] for q in read(trained_crowd / "label_quality.csv")}
    assert quality[ranked[0]["id"], ranked[0]["annotator"]] == ranked[0]["p_wrong"]
    assert (tmp_path / "audit" / "audit.html").is_file()
