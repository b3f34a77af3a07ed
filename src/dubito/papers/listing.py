"""What there is: the list of tables and figures, and the result files on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import DubitoError
from . import PAPERS, items, paper
from .items import Item
from .results import Result, read

HOME = Path(__file__).resolve().parents[3] / "results"


def listing() -> str:
    """One line per item: id, runs at each size, GPU hours, title."""
    lines = [f"{'id':<30} {'runs':>6} {'small':>6} {'smoke':>6} {'GPU hours':>10}  title"]
    for name in PAPERS:
        lines += ["", (paper(name).__doc__ or name).splitlines()[0]]
        lines += [_line(f"{name}.{key}", entry) for key, entry in items(name).items()]
    notes = (
        "GPU hours: rough estimates, made before any run, for the runs of the paper's size on one H200-class GPU.",
        "Runs of small networks share a GPU with --streams and then take a small part of that.",
    )
    return "\n".join([*lines, "", *notes]) + "\n"


def _line(name: str, entry: Item) -> str:
    counts = [len(entry.make(size, None, None)) for size in ("paper", "small", "smoke")]
    if not counts[0]:
        return f"{name:<30} {'-':>6} {'-':>6} {'-':>6} {'-':>10}  {entry.title} (a drawing)"
    return f"{name:<30} {counts[0]:>6} {counts[1]:>6} {counts[2]:>6} {entry.hours:>10g}  {entry.title}"


def results_of(folders: Sequence[Path] | None, *, needed: bool = True) -> list[Result]:
    """The results of some folders, else of ``results/`` here or in the repository."""
    if folders:
        return [result for folder in folders for result in read(folder)]
    for folder in (Path("results"), HOME):
        if folder.is_dir():
            return read(folder)
    if needed:
        raise DubitoError("no folder of results", got="no results/ here", remedy="name it with --results")
    return []
