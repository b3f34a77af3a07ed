"""Tanno's digits: eight methods and the oracle on simulated annotators, stacked on one GPU, in order of worth.

    python benchmarks/crowd_mnist.py --out lines.jsonl --known lines.jsonl --seconds 280

Runs are the `small` size of figures 3, 6, 9, 10 and 11 (all digits, a tenth of the epochs, the best epoch by noisy
validation), so that `dubito paper figure tanno2019.figure3 --size small` shows them. Waves, first the one that
matters most: flippers at skill .35 with one label per image, three seeds; then other skills, all annotators and
spammers, one seed, and their second seeds. A wave that would not end in time, by the speed of the waves before it,
is left out. Finished runs are appended to `--out` as lines; those in `--known` are not repeated.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from dubito.papers import stacked_crowds, tanno2019
from dubito.papers.configs import Config, run_id
from dubito.papers.results import Result

FLIP, SPAM = "pairwise_flippers", "hammer_spammers"
JOINT = ("trace", "gem", "mbem", "oracle")
# (noise, labels per image, skills, seeds, methods), in order of worth; no methods: all of them.
Wave = tuple[str, int, tuple[float, ...], tuple[int, ...], tuple[str, ...]]
SWEEP: tuple[tuple[str, int, tuple[float, ...]], ...] = (
    (FLIP, 1, (0.25, 0.5)),
    (FLIP, 0, (0.35, 0.25)),
    (SPAM, 1, (0.2, 0.35)),
    (FLIP, 1, (0.3, 0.7)),
    (SPAM, 0, (0.2, 0.35)),
    (FLIP, 0, (0.5, 0.3)),
    (FLIP, 1, (0.2, 0.4)),
    (SPAM, 1, (0.15, 0.5)),
)
WAVES: tuple[Wave, ...] = (
    (FLIP, 1, (0.35,), (0, 1, 2), JOINT),
    (FLIP, 1, (0.35,), (0, 1, 2), ()),
    *((*place, (seed,), ()) for seed in (0, 1) for place in SWEEP),
)
# Forms of a convolution to choose from, by speed.
FORMS: tuple[dict[str, Any], ...] = ({"pixel_rows": True}, {"pixel_rows": False})


def waves(tiny: bool) -> Iterator[list[Config]]:
    """The runs of each wave."""
    size = "smoke" if tiny else "small"
    made = [
        c
        for name in ("figure3", "figure6", "figure9", "figure10", "figure11")
        for c in tanno2019.FIGURES[name].make(size, None, None)
    ]
    for noise, per_item, skills, seeds, methods in WAVES:
        chosen = [
            dataclasses.replace(c, seed=seed)
            for c in made
            for seed in seeds
            if c.noise == noise and c.per_item == per_item and c.skill in skills
            if not methods or c.method in methods
        ]
        yield list(dict.fromkeys(chosen))


def length(config: Config) -> int:
    """Steps of a run."""
    return config.steps or config.train // config.batch * config.epochs


def show(results: list[Result]) -> None:
    """One line per method and place: accuracy and confusion error of each seed."""
    cells = defaultdict(list)
    for r in results:
        c = r.config
        cells[c.item, c.noise, c.per_item, c.skill, c.method].append(r)
    for key, found in cells.items():
        accuracy = " ".join(f"{100 * r.metrics['test_accuracy']:.2f}" for r in found)
        error = " ".join(f"{r.metrics['cm_error']:.4f}" for r in found if "cm_error" in r.metrics)
        print(*key, "accuracy", accuracy, "error", error or "none", flush=True)


class Able:
    """What this machine can do: which methods' steps can be captured, and which convolution is fastest."""

    def __init__(self, device: str, root: str | None, tiny: bool) -> None:
        self.device, self.root = device, root
        self.captured: dict[str, bool] = {}
        self.form: dict[str, Any] = {"convolutions": torch.float32}
        if device.startswith("cuda"):
            torch.set_float32_matmul_precision("high")
            runs = [c for wave, _ in zip(waves(tiny), range(2)) for c in wave]
            self._choose(next(c for c in runs if c.method == "trace"))
            self._probe(runs)

    def _choose(self, config: Config) -> None:
        """Time a hundred steps of 24 runs in each form."""
        few = dataclasses.replace(config, train=config.batch * 100, validation=64, epochs=1, steps=0, test=64)
        data, speeds = stacked_crowds.Data(self.root, self.device), []
        for form in FORMS:
            try:
                stack = stacked_crowds.CrowdRuns(
                    [dataclasses.replace(few, seed=s) for s in range(24)], data, **self.form, **form
                )
                marks = []
                for i, _ in enumerate(stack.steps()):
                    if i in (20, 98):
                        torch.cuda.synchronize()
                        marks.append(time.monotonic())
                speeds.append(24 * 78 / (marks[1] - marks[0]))
            except Exception:
                traceback.print_exc()
                speeds.append(0.0)
            print(form, f"{speeds[-1]:.0f} run-steps/s", flush=True)
        self.form |= FORMS[speeds.index(max(speeds))]

    def _probe(self, runs: list[Config]) -> None:
        """A few steps of two runs of each method."""
        for config in runs:
            if config.method in self.captured:
                continue
            few = dataclasses.replace(
                config, train=config.batch * 4, validation=64, epochs=2, steps=0, test=64
            )
            pair = [few, dataclasses.replace(few, seed=1)]
            try:
                stacked_crowds.run(pair, root=self.root, device=self.device, **self.form)
                torch.cuda.synchronize()
                self.captured[config.method] = True
            except Exception:
                traceback.print_exc()
                self.captured[config.method] = False


def main() -> None:
    """Run the waves that fit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--known", type=Path, nargs="*", default=[])
    parser.add_argument("--root", help="folder of data sets; DUBITO_DATA if not given")
    parser.add_argument("--seconds", type=float, default=280.0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="smoke size, on any device")
    parser.add_argument("--most", type=int, default=0, help="waves at most")
    options = parser.parse_args()
    until = time.monotonic() + options.seconds
    known = {
        json.loads(line)["id"]
        for path in options.known
        if path.is_file()
        for line in path.read_text().splitlines()
    }
    able = Able(options.device, options.root, options.tiny)
    print("captured:", able.captured, able.form, f"{until - time.monotonic():.0f} s left", flush=True)
    rate = 0.0

    def report(results: list[Result]) -> None:
        with options.out.open("a", encoding="utf-8") as file:
            for result in results:
                file.write(json.dumps(result.to_json(), sort_keys=True) + "\n")
        show(results)

    for i, every in enumerate(waves(options.tiny)):
        wave = [c for c in every if run_id(c) not in known]
        work, left = sum(map(length, wave)), until - time.monotonic()
        if not wave or (options.most and i >= options.most):
            continue
        if left < 5 or (rate and work / rate > 0.95 * left):
            print(f"wave {i}: {len(wave)} runs left out, {left:.0f} s left", flush=True)
            continue
        started, done = time.monotonic(), []
        for capture in (True, False):
            part = [c for c in wave if able.captured.get(c.method, True) == capture]
            if part:
                done += stacked_crowds.run(
                    part, root=options.root, device=options.device, until=until, report=report,
                    capture=capture, **able.form,
                )  # fmt: skip
        known |= {r.id for r in done}
        seconds = time.monotonic() - started
        if done:
            rate = sum(length(r.config) for r in done) / seconds
        print(
            f"wave {i}: {len(done)} of {len(wave)} runs, {seconds:.1f} s, {rate:.0f} run-steps/s", flush=True
        )


if __name__ == "__main__":
    main()
