"""Small tables that a new user could bring: three blobs, some labels wrong, and a crowd that labelled them."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from dubito.cli import app
from dubito.errors import DubitoError

CENTRES = np.array([[0, 0], [4, 0], [0, 4]])
NAMES = np.array(["ant", "bee", "cat"])
FAST = ["--epochs", "6", "--folds", "2", "--device", "cpu"]
LONGER = ["--epochs", "25", *FAST[2:]]


@dataclass(frozen=True)
class Blobs:
    x: np.ndarray
    true: np.ndarray
    given: np.ndarray


def blobs(n: int = 180, rate: float = 0.2, seed: int = 0) -> Blobs:
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 3, n)
    x = CENTRES[true] + rng.normal(size=(n, 2)) * 0.7
    wrong = rng.random(n) < rate
    return Blobs(x, true, np.where(wrong, (true + rng.integers(1, 3, n)) % 3, true))


def write(path: Path, head, rows) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows(rows)
    return path


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def single_table(path: Path, b: Blobs) -> Path:
    rows = [(f"row {i}", *b.x[i].round(4), "text", NAMES[b.given[i]]) for i in range(len(b.x))]
    return write(path, ["name", "width", "height", "note", "label"], rows)


def crowd_table(path: Path, b: Blobs, per_item: int = 2, seed: int = 0) -> Path:
    """Three annotators: one nearly always right, one mostly, one who guesses."""
    rng, rows = np.random.default_rng(seed), []
    for i in range(len(b.x)):
        for r in rng.choice(3, per_item, replace=False):
            right = rng.random() < (0.97, 0.8, 0.33)[r]
            label = b.true[i] if right else (b.true[i] + rng.integers(1, 3)) % 3
            rows.append((f"i{i}", ["good", "fair", "poor"][r], NAMES[label], *b.x[i].round(4)))
    return write(path, ["task", "worker", "label", "width", "height"], rows)


def dubito(*words, ok: bool = True) -> str:
    """Run the command line in this process; a refusal comes back as its sentence."""
    result = CliRunner().invoke(app, [str(w) for w in words])
    if isinstance(result.exception, DubitoError):
        assert not ok, result.exception
        return str(result.exception)
    assert (result.exit_code == 0) is ok, (result.output, result.exception)
    return result.output
