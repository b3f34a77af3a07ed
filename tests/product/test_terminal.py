"""What reaches a terminal: names of strangers are text there too, and any seed is a seed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from dubito import cli
from dubito._audit.kinds import by_features
from dubito.crowd import CrowdLabels, majority_vote

SCREEN = "\x1b[2J\x1b]0;title\x07"


def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """All that a command prints."""
    monkeypatch.setattr(sys, "argv", ["dubito", *map(str, words)])
    with pytest.raises(SystemExit, match=r"^[02]$"):
        cli.main()
    out, err = capsys.readouterr()
    return out + err


@pytest.mark.rel
def test_names_move_no_cursor_and_paths_are_no_markup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scorecard 28: escape sequences and markup in annotators, classes and paths."""
    place = tmp_path / "[bold]x[" / "]"
    place.mkdir(parents=True)
    table = place / "labels.csv"
    rows = [
        f'{i},"{who}","{label}{SCREEN}"' for i in range(3) for who, label in (("[/]", "a"), (SCREEN, "b"))
    ]
    table.write_text("item,annotator,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    text = said(monkeypatch, capsys, "crowd", table)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[/]" in text
    assert f"written: {place}/labels-consensus/consensus.csv\n" in text


@pytest.mark.rel
def test_sentences_move_no_cursor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scorecard 28: the columns of a stranger's table are quoted in what is said of it."""
    table = tmp_path / "labels.csv"
    table.write_text(f'a,"b{SCREEN}"\n1,2\n', encoding="utf-8")
    text = said(monkeypatch, capsys, "fit", table, "--out", tmp_path / "run")
    assert text.startswith("dubito: ")
    assert text.rstrip("\n").isprintable()


@pytest.mark.rel
def test_a_seed_below_zero_makes_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scorecard 13: refused before a folder is made."""
    table = tmp_path / "labels.csv"
    table.write_text("x,label\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(20)), encoding="utf-8")
    for words in (("fit", table, "--out", tmp_path / "run"), ("demo", "--out", tmp_path / "run")):
        assert "--seed" in said(monkeypatch, capsys, *words, "--seed", "-1")
    assert not (tmp_path / "run").exists()


@pytest.mark.rel
@pytest.mark.parametrize("seed", [2**32, 2**64 + 1, 10**30])
def test_a_seed_of_any_size(seed: int) -> None:
    """Scorecard 13: what draws by a seed takes one that does not fit into 32 or 64 bits."""
    dice = np.random.default_rng(0)
    features, group, p_wrong = dice.normal(size=(40, 3)), np.arange(40) % 2, dice.random(40)
    assert sorted(np.bincount(by_features(features, group, p_wrong, seed))) == [10, 10, 10, 10]
    codes, tied = majority_vote(CrowdLabels([0, 0, 1], [0, 1, 0], [0, 1, 1]), seed=seed)
    assert torch.equal(tied, torch.tensor([True, False]))
    assert int(codes[1]) == 1
