"""The command that makes the runs of a section, and how a paper's protocol is read."""

from __future__ import annotations

from collections.abc import Iterator

from results_cells import Section

from dubito.papers.readings import READINGS

# What the back end of `--streams` writes into the hardware of a result.
SHARED = ("backbone", "convolutions in")


def command(section: Section) -> str:
    """`dubito paper run` with everything in which these runs differ from a plain call."""
    words = [f"dubito paper run {section.table.name}", *_changed(section), *_seeds(section)]
    if section.table.size != "paper":
        words.append(f"--size {section.table.size}")
    if section.data:
        words.append(f"--data {section.data}")
    if any(mark in r.hardware for r in section.runs for mark in SHARED):
        words.append("--streams")
    return " ".join([*words, "--out results"])


def _changed(section: Section) -> Iterator[str]:
    """Single values that were changed, as `key=value`; options of a network cannot be given so."""
    for change in section.changes:
        key, _, rest = change.partition(" ")
        value = rest.partition(" for ")[0]
        if value and "=" not in value and " " not in value and key != "no":
            yield f"{key}={value}"


def _seeds(section: Section) -> Iterator[str]:
    """The seeds that exist, where they are not all that the item asks for."""
    seeds = sorted({r.config.seed for r in section.runs})
    if seeds != list(range(section.seeds)):
        whole = seeds == list(range(seeds[0], seeds[-1] + 1)) and len(seeds) > 1
        yield "seed=" + (f"{seeds[0]}..{seeds[-1]}" if whole else ",".join(map(str, seeds)))


def readings(paper: str) -> Iterator[str]:
    """What the paper leaves open, or says twice, and what was taken."""
    yield from ("## How the protocol is read", "")
    yield from (f"- {sentence}" for sentence in READINGS[paper])
