"""What there is: the list of tables and figures, and the result files on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import DubitoError
from . import PAPERS, STUDIES, items, paper
from .configs import run_id
from .items import Item
from .results import Result, device_hours, read

HOME = Path(__file__).resolve().parents[3] / "results"


def listing(results: Sequence[Result] = ()) -> str:
    """One line per item: id, runs at each size, GPU hours as estimated and as measured, title.

    Arguments:
        results: finished runs of the paper's size; their time is scaled to all runs of an item.
    """
    by_id = {r.id: r for r in results}
    lines = [f"{'id':<30} {'runs':>6} {'small':>6} {'smoke':>6} {'GPU hours':>10} {'measured':>10}  title"]
    for name in PAPERS + STUDIES:
        lines += ["", (paper(name).__doc__ or name).splitlines()[0]]
        lines += [_line(f"{name}.{key}", entry, by_id) for key, entry in items(name).items()]
    notes = (
        "GPU hours: rough estimates, made before any run, for the runs of the paper's size on one H200-class GPU.",
        "Runs of small networks share a GPU with --streams and then take a small part of that.",
        "Measured: the time of the finished runs among the result files, scaled to all runs of the item.",
    )
    return "\n".join([*lines, "", *notes]) + "\n"


def _line(name: str, entry: Item, by_id: Mapping[str, Result]) -> str:
    made = entry.make("paper", None, None)
    if not made:
        dashes = " ".join(f"{'-':>{width}}" for width in (6, 6, 6, 10, 10))
        return f"{name:<30} {dashes}  {entry.title} (a drawing)"
    counts = [len(made), *(len(entry.make(size, None, None)) for size in ("small", "smoke"))]
    runs = " ".join(f"{count:>6}" for count in counts)
    done = [by_id[i] for i in map(run_id, made) if i in by_id and by_id[i].on_gpu] if by_id else []
    measured = f"{device_hours(done) / len(done) * len(made):.2g}" if done else "-"
    return f"{name:<30} {runs} {entry.hours:>10g} {measured:>10}  {entry.title}"


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
