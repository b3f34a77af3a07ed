"""Does the arithmetic of stacks change results? Runs of the MNIST table of Englesson et al. in another precision.

    python benchmarks/precision.py --methods nan,gce --seeds 0 --out results/precision/float32.jsonl --seconds 300

The configs, seeds and orders of examples are those of the table, so that each line has the id of a run of the
table; `docs/results/precision.md` sets the pairs side by side. Methods go one after another, `--at-once` together;
a group that would not end in time, by the speed of the one before it, is left out.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from dubito.papers import item, stacked
from dubito.papers.results import Result, line

TABLE = "englesson2023.table1-mnist"


def main() -> None:
    """Run the groups that fit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--methods", required=True, help="with commas, in order of worth")
    parser.add_argument("--seeds", default="0", help="with commas")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--size", choices=("smoke", "small", "paper"), default="paper")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--root", help="folder of data sets; DUBITO_DATA if not given")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    until, slowest = time.monotonic() + options.seconds, 0.0
    made = item(TABLE).make(options.size, None, None)
    seeds, methods = set(map(int, options.seeds.split(","))), options.methods.split(",")
    done: list[Result] = []

    def report(results: list[Result]) -> None:
        done.extend(results)
        with options.out.open("a", encoding="utf-8") as file:
            file.writelines(map(line, results))

    for start in range(0, len(methods), options.at_once):
        some = methods[start : start + options.at_once]
        begun = time.monotonic()
        if begun + 1.1 * slowest > until:
            print("left out:", *methods[start:], flush=True)
            break
        stacked.run(
            [c for c in made if c.method in some and c.seed in seeds],
            root=options.root, device=options.device, at_once=options.at_once, known=done, report=report,
            convolutions=getattr(torch, options.precision),
        )  # fmt: skip
        slowest = max(slowest, time.monotonic() - begun)
        print(*some, f"{time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
