"""How many cells agree with the papers, of one paper and of all together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from results_cells import Section

# Tables of these papers are run to be judged; the fourth paper's matrices are in a picture only.
JUDGED = ("collier2020", "englesson2023", "lukasik2020")


def verdicts(found: Sequence[Section]) -> Counter[str]:
    """How many cells got which verdict; cells without a counterpart are left out."""
    return Counter(e.verdict for s in found for e in s.table.entries if e.verdict != "-")


def agreement(found: Mapping[str, Sequence[Section]]) -> Iterator[str]:
    """All judged cells together, each counted once, and each paper's share in them."""
    counted = {p: verdicts([s for s in found.get(p, ()) if not s.earlier]) for p in JUDGED}
    total = sum(counted.values(), Counter[str]())
    judged = sum(count for name, count in total.items() if name != "not judged")
    if not judged:
        yield "No cell is judged yet: that takes three seeds."
        return
    wide = total["agrees, wide spread"]
    agree = total["agrees"] + wide
    yield (
        f"Judged cells (three seeds or more, a printed number beside them): {judged}, of which {agree} agree "
        f"({100 * agree / judged:.0f} %), {wide} of them only because our spread is wide. By paper: "
        f"{'; '.join(_one(paper, counts) for paper, counts in counted.items())}.{_earlier(found)}"
    )


def _earlier(found: Mapping[str, Sequence[Section]]) -> str:
    """What is left out of the count, so that a new reading cannot make a failure vanish."""
    counts = verdicts([s for p in JUDGED for s in found.get(p, ()) if s.earlier])
    judged = sum(count for name, count in counts.items() if name != "not judged")
    agree = counts["agrees"] + counts["agrees, wide spread"]
    if not judged:
        return ""
    return f" Not counted: {judged} of earlier readings of what a paper leaves open, of which {agree} agree."


def _one(paper: str, counts: Counter[str]) -> str:
    judged = sum(count for name, count in counts.items() if name != "not judged")
    return f"{paper} {counts['agrees'] + counts['agrees, wide spread']} of {judged}"
