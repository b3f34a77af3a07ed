"""What earlier runs of the mutation testing found, as far as it still holds."""

from __future__ import annotations

import json
from pathlib import Path

from mutations import functions

SOURCE = Path(__file__).resolve().parents[1] / "src" / "dubito"
Known = dict[str, tuple[set[str], set[str]]]


def known(paths: list[Path]) -> Known:
    """Per module the names of the mutants that were noticed, and of those that were not, in earlier lines.

    Functions that read otherwise now have other mutants, however they are named: what was found is left out.
    """
    found: Known = {}
    for path in paths:
        for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            file = SOURCE / f"{line.get('module', '').replace('.', '/')}.py"
            if file.is_file():
                now = functions(file.read_text(encoding="utf-8"))
                same = {name for name, text in line.get("functions", {}).items() if now.get(name) == text}
                noticed, survived = found.setdefault(line["module"], (set(), set()))
                noticed.update(m for m in line["noticed"] if m.partition(":")[0] in same)
                survived.update(
                    s["mutant"] for s in line["survivors"] if s["mutant"].partition(":")[0] in same
                )
    return found
