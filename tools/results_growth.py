"""How far backward correction drives the logits: the lines of benchmarks/backward_growth.py as a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def backward_growth(path: Path) -> Iterator[str]:
    """One row for each alpha and type; nothing without the file."""
    if not path.is_file():
        return
    rows = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    yield from ("## Backward correction has no floor", "")
    yield (
        "The loss of backward correction is not bounded below: as soon as most of a batch is fitted, each step "
        "enlarges the logits, and through the last norm they enlarge the steps. A network of eight layers on 5,000 "
        "images, the paper's rate, momentum and decay, on a CPU (`python benchmarks/backward_growth.py`): the "
        "largest logit of a batch."
    )
    steps = sorted({_steps(row, i) for row in rows for i in range(1, len(row["largest_logit"]), 2)})
    yield from (
        "",
        f"| alpha | type | {' | '.join(f'step {s}' for s in steps)} |",
        f"|---|---|{'---:|' * len(steps)}",
    )
    for row in rows:
        seen = {_steps(row, i): v for i, v in enumerate(row["largest_logit"])}
        cells = (
            "" if s not in seen else "not a number" if seen[s] is None else f"{seen[s]:.2g}" for s in steps
        )
        yield f"| {row['alpha']:g} | {row['dtype']} | {' | '.join(cells)} |"


def _steps(row: dict[str, Any], i: int) -> int:
    return int(row["every"]) * (i + 1)
