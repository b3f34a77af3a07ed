"""The table of docs/commands.md from results/benchmarks/auto.jsonl: the automatic choice beside cross-entropy.

python tools/auto_page.py            write it
python tools/auto_page.py --check    fail if the page is not what the lines say
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parents[1]
LINES = HERE / "results" / "benchmarks" / "auto.jsonl"
PAGE = HERE / "docs" / "commands.md"
SEEDS = 5  # of every case, the first ones; further seeds of a case that was undecided do not count
MARKS = ("<!-- auto:begin -->", "<!-- auto:end -->")


def cells() -> dict[str, list[dict[str, Any]]]:
    """Case -> the newest line of each of the first seeds."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for text in LINES.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if line["seed"] >= SEEDS:
            continue
        found.setdefault(line["case"], {})[line["seed"]] = line
    return {case: list(seeds.values()) for case, seeds in sorted(found.items())}


def table() -> str:
    """Accuracy on true labels of held-out items, and the paired difference with its interval."""
    from scipy.stats import t

    out = [
        "| data and noise | seeds | cross-entropy | auto | difference | 95 % interval |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for case, lines in cells().items():
        d = np.array([line["difference"] for line in lines])
        error = d.std(ddof=1) / len(d) ** 0.5 * t.ppf(0.975, len(d) - 1)
        means = [f"{np.mean([line[m] for line in lines]):.3f}" for m in ("ce", "auto")]
        between = f"{d.mean() - error:+.3f} to {d.mean() + error:+.3f}"
        out.append(f"| {case} | {len(d)} | {' | '.join(means)} | {d.mean():+.3f} | {between} |")
    days = sorted({line["date"][:10] for lines in cells().values() for line in lines})
    said = " to ".join(dict.fromkeys([days[0], days[-1]]))
    which = f"Student's t over seeds 0 to {SEEDS - 1}, whatever they say"
    return "\n".join([*out, "", f"{which}; {said}; made by `python tools/auto_page.py`."])


def main() -> None:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(MARKS[0])
    new = f"{head}{MARKS[0]}\n{table()}\n{MARKS[1]}{rest.partition(MARKS[1])[2]}"
    if check:
        sys.exit(0 if new == text else f"{PAGE.name} is not what {LINES.name} says: run tools/auto_page.py")
    PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
