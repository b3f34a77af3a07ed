"""Run the study of temperatures (`dubito.papers.temperature`), both data sets in turn, and write result lines.

    python tools/temperature_study.py --out results/temperature/temperature.jsonl

Lines are written as each stack of runs ends; runs whose lines are there are not repeated. The page and its picture
come from `tools/temperature_page.py`.
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import chain, zip_longest
from pathlib import Path

import torch

from dubito.papers import item
from dubito.papers.configs import Config, run_id
from dubito.papers.results import Result, line, read
from dubito.papers.temperature_runs import group, run

NAMES = ("temperature.mnist", "temperature.cifar10")


def stacks(size: str) -> list[list[Config]]:
    """The stacks of both data sets in turn: what is cut off is missing from both."""
    per_set = [group(item(name).make(size, None, None)) for name in NAMES]
    return [stack for stack in chain.from_iterable(zip_longest(*per_set)) if stack]


def say(text: str) -> None:
    """To the terminal, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run what is asked for on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="file of JSON lines")
    parser.add_argument("--size", default="paper")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no stack begins after these")
    parser.add_argument("--root", help="folder of data; else DUBITO_DATA")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done = {r.id for r in read(options.out.parent)}
    started = time.monotonic()

    def report(results: list[Result]) -> None:
        with options.out.open("a", encoding="utf-8") as file:
            file.writelines(line(result) for result in results)

    for stack in stacks(options.size):
        if time.monotonic() - started > options.seconds:
            say("out of time")
            break
        left = [config for config in stack if run_id(config) not in done]
        if not left:
            continue
        began = time.monotonic()
        run(left, root=options.root, device=options.device, report=report)
        first = left[0]
        took = time.monotonic() - began
        say(f"{first.item} {first.method} samples {first.samples}: {len(left)} runs, {took:.1f} s")


if __name__ == "__main__":
    main()
