"""Result files: written whole, read back equal, counted once."""

from __future__ import annotations

import dataclasses
import json
import logging

import pytest

from dubito.errors import DubitoError
from dubito.papers import englesson2023
from dubito.papers.configs import run_id
from dubito.papers.results import (
    Result,
    device_hours,
    finished,
    line,
    path_of,
    provenance,
    read,
    write_result,
)

CONFIGS = englesson2023.TABLES["table1-mnist"].make("smoke")


def result(i: int = 0, accuracy: float = 0.9) -> Result:
    return Result(
        CONFIGS[i], {"test_accuracy": accuracy}, 1.5, {"loss": [2.0, 1.0]}, "abc", False, "2026-01-01"
    )


def test_round_trip(tmp_path):
    one = result()
    path = write_result(one, tmp_path)
    assert (
        path
        == tmp_path / "englesson2023" / "table1-mnist" / f"{one.id[:16]}.json"
        == path_of(tmp_path, one.config)
    )
    assert read(tmp_path) == [one]
    stored = json.loads(path.read_text())
    assert stored["id"] == run_id(one.config)
    assert stored["seed"] == 0
    assert stored["config"]["method"] == "ce"
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_lines_and_files_together_count_once(tmp_path, caplog):
    write_result(result(0), tmp_path)
    lines = tmp_path / "englesson2023" / "table1-mnist" / "gpu.jsonl"
    lines.write_text(line(result(0)) + line(result(1)) + "\n" + line(result(2, 0.5)))
    found = read(tmp_path)
    assert sorted(r.id for r in found) == sorted(run_id(c) for c in CONFIGS[:3])
    assert not caplog.records
    lines.write_text(line(result(0, 0.1)))
    with caplog.at_level(logging.WARNING, logger="dubito"):
        assert len(read(tmp_path)) == 1
    assert "different metrics" in caplog.text


def test_an_unfinished_last_line_is_left_out(tmp_path, caplog):
    (tmp_path / "a.jsonl").write_text(line(result(0)) + line(result(1))[:100])
    with caplog.at_level(logging.WARNING, logger="dubito"):
        assert [r.config for r in read(tmp_path)] == [CONFIGS[0]]
    assert "middle of a line" in caplog.text


def test_refusals_name_file_and_line(tmp_path):
    with pytest.raises(DubitoError, match="no such folder"):
        read(tmp_path / "nothing")
    (tmp_path / "a.jsonl").write_text(line(result(0)) + "{]\n")
    with pytest.raises(DubitoError, match=r"a\.jsonl:2"):
        read(tmp_path)
    edited = {**result(0).to_json()}
    edited["config"] = {**edited["config"], "lr": 0.5}
    (tmp_path / "a.jsonl").write_text(json.dumps(edited) + "\n")
    with pytest.raises(DubitoError, match="does not belong to its config"):
        read(tmp_path)
    edited["config"]["learning_rate"] = 1
    (tmp_path / "a.jsonl").write_text(json.dumps(edited) + "\n")
    with pytest.raises(DubitoError, match="unknown field"):
        read(tmp_path)
    (tmp_path / "a.jsonl").write_text("[]\n")
    with pytest.raises(DubitoError, match="not a result"):
        read(tmp_path)


def test_other_json_beside_results_is_passed_over(tmp_path):
    (tmp_path / "summary.json").write_text('{"runs": 3}')
    write_result(result(), tmp_path)
    assert len(read(tmp_path)) == 1


def test_a_non_finite_metric_survives(tmp_path):
    write_result(result(0, float("-inf")), tmp_path)
    assert read(tmp_path)[0].metrics["test_accuracy"] == float("-inf")


def test_facts_of_a_finished_run(monkeypatch):
    monkeypatch.setenv("DUBITO_COMMIT", "0123abc-dirty")
    made = finished(CONFIGS[0], {"test_accuracy": 1.0}, 2.0, hardware="a GPU")
    assert (made.commit, made.dirty, made.hardware) == ("0123abc", True, "a GPU")
    assert made.versions["torch"]
    assert made.date.endswith("Z")
    monkeypatch.delenv("DUBITO_COMMIT")
    commit, dirty = provenance()
    assert (commit == "") == (dirty is None)


def test_replacing_a_result_keeps_one_file(tmp_path):
    write_result(result(0, 0.1), tmp_path)
    write_result(dataclasses.replace(result(0), metrics={"test_accuracy": 0.2}), tmp_path)
    assert [r.metrics["test_accuracy"] for r in read(tmp_path)] == [0.2]


def test_hours_of_a_device_count_runs_side_by_side_once():
    base = CONFIGS

    def stack(first: int, seconds: float, date: str, **history: str) -> list[Result]:
        return [
            Result(c, {}, seconds / 4, history, date=date, hardware="GPU") for c in base[first : first + 4]
        ]

    noon, later = "2026-11-15T12:00:00Z", "2026-11-15T12:10:00Z"
    together = stack(0, 360.0, noon) + stack(4, 350.0, noon)
    assert device_hours(together) == pytest.approx(360 / 3600)
    assert device_hours(together + stack(8, 120.0, later)) == pytest.approx(480 / 3600)
    # Newer lines say that their seconds are shares, and runs of their own always were.
    shares = stack(0, 180.0, noon, time="share") + stack(4, 170.0, noon, time="share")
    assert device_hours(shares) == pytest.approx(350 / 3600)
    alone = [Result(base[0], {}, 90.0, date=noon), Result(base[1], {}, 80.0, date=noon)]
    assert device_hours(alone) == pytest.approx(170 / 3600)
    # A stack of one run among others is a stack all the same.
    name = "GPU, convolutions in float32"
    stacks = [Result(c, {}, s, date=noon, hardware=name) for c, s in zip(base, (90.0, 80.0, 45.0, 45.0))]
    assert device_hours(stacks) == pytest.approx(90 / 3600)


def test_runs_under_way_are_not_read(tmp_path):
    """Their folders hold JSON lines too, and lose files while others look."""
    write_result(result(), tmp_path)
    under_way = tmp_path / ".runs" / "0123456789abcdef" / "fit" / "deeper"
    under_way.mkdir(parents=True)
    (under_way / "metrics.jsonl").write_text("not even JSON\n")
    assert [r.id for r in read(tmp_path)] == [result().id]


def test_lines_of_a_benchmark_are_not_results(tmp_path):
    """They lie in the same folder, and some hold a config of their own."""
    text = '{"benchmark": "readings", "config": {"data": "cifar10"}, "best": 0.5}'
    (tmp_path / "lines.jsonl").write_text(text + "\n", encoding="utf-8")
    assert read(tmp_path) == []
