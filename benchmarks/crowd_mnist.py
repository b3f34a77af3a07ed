"""Tanno's digits: eight methods and the oracle on simulated annotators, stacked on one GPU, in order of worth.

    python benchmarks/crowd_mnist.py --out lines.jsonl --known lines.jsonl --seconds 280

Runs are the `small` size of figures 3, 5, 6, 9, 10 and 11 (all digits, a twentieth of the epochs, the best epoch
by noisy validation), three seeds, so that `dubito paper figure tanno2019.figure3 --size small` shows them. Waves,
first the one that matters most: flippers at skill .35 with one label per image; then other skills, all annotators,
weights of the trace, spammers. A wave that would not end in time, by the speed of the waves before it, is left out.
Finished runs are appended to `--out` as lines; those in `--known` are not repeated.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import torch

from dubito.papers import stacked_crowds, tanno2019
from dubito.papers.configs import Config, run_id
from dubito.papers.results import Result

FLIP, SPAM = "pairwise_flippers", "hammer_spammers"
SEEDS = (0, 1, 2)
# (noise, labels per image, skills), in order of worth.
WAVES: tuple[tuple[str, int, tuple[float, ...]], ...] = (
    (FLIP, 1, (0.35,)),
    (FLIP, 1, (0.25, 0.5)),
    (FLIP, 0, (0.35,)),
    (FLIP, 1, (0.3, 0.7)),
    (FLIP, 0, (0.25, 0.5)),
    (SPAM, 1, (0.2, 0.35)),
    (FLIP, 1, (0.2, 0.4)),
    (SPAM, 0, (0.2, 0.35)),
    (SPAM, 1, (0.15, 0.5)),
    (FLIP, 0, (0.3, 0.7)),
)


def waves(tiny: bool) -> Iterator[list[Config]]:
    """The runs of each wave; the weights of the trace and the rounds of EM (figure 5) come after the fourth."""
    size = "smoke" if tiny else "small"
    made = [
        c
        for name in ("figure3", "figure6", "figure9", "figure10", "figure11")
        for c in tanno2019.FIGURES[name].make(size, None, None)
    ]
    runs = list(dict.fromkeys(dataclasses.replace(c, seed=s) for c in made for s in SEEDS))
    fifth = tanno2019.FIGURES["figure5"].make(size, None, None)
    for i, (noise, per_item, skills) in enumerate(WAVES):
        yield [c for c in runs if c.noise == noise and c.per_item == per_item and c.skill in skills]
        if i == 3:
            yield list(dict.fromkeys(dataclasses.replace(c, seed=s) for c in fifth for s in SEEDS))


def length(config: Config) -> int:
    """Steps of a run."""
    return config.steps or config.train // config.batch * config.epochs


def show(results: list[Result]) -> None:
    """One line per method and place: accuracy and confusion error of each seed."""
    cells = defaultdict(list)
    for r in results:
        c = r.config
        cells[c.item, c.noise, c.per_item, c.skill, c.method, c.param("trace"), c.param("rounds")].append(r)
    for key, found in cells.items():
        accuracy = " ".join(f"{100 * r.metrics['test_accuracy']:.2f}" for r in found)
        error = " ".join(f"{r.metrics['cm_error']:.3f}" for r in found if "cm_error" in r.metrics)
        print(*key, "accuracy", accuracy, "error", error or "none", flush=True)


def probe(device: str, root: str, tiny: bool) -> dict[str, bool]:
    """Whether a step of each method can be captured on this machine; found on a few steps of two runs."""
    able = {}
    for config in next(waves(tiny)):
        if config.method in able or not device.startswith("cuda"):
            continue
        few = dataclasses.replace(config, train=config.batch * 4, validation=64, epochs=2, steps=0, test=64)
        try:
            stacked_crowds.run([few, dataclasses.replace(few, seed=1)], root=root, device=device)
            torch.cuda.synchronize()
            able[config.method] = True
        except Exception:
            traceback.print_exc()
            able[config.method] = False
    return able


def main() -> None:
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
    captured = probe(options.device, options.root, options.tiny)
    print("captured:", captured, f"{until - time.monotonic():.0f} s left", flush=True)
    rate = 0.0

    def report(results: list[Result]) -> None:
        with options.out.open("a", encoding="utf-8") as file:
            for result in results:
                file.write(json.dumps(result.to_json(), sort_keys=True) + "\n")
        show(results)

    for i, every in enumerate(waves(options.tiny)):
        wave = [c for c in every if run_id(c) not in known]
        work = sum(length(c) for c in wave)
        left = until - time.monotonic()
        if not wave or (options.most and i >= options.most):
            continue
        if left < 5 or (rate and work / rate > 0.95 * left):
            print(f"wave {i}: {len(wave)} runs left out, {left:.0f} s left", flush=True)
            continue
        started = time.monotonic()
        done: list[Result] = []
        for capture in (True, False):
            part = [c for c in wave if captured.get(c.method, True) == capture]
            if part:
                done += stacked_crowds.run(
                    part,
                    root=options.root,
                    device=options.device,
                    capture=capture,
                    until=until,
                    report=report,
                )
        known |= {r.id for r in done}
        seconds = time.monotonic() - started
        if done:
            rate = sum(length(r.config) for r in done) / seconds
        print(
            f"wave {i}: {len(done)} of {len(wave)} runs, {seconds:.1f} s, {rate:.0f} run-steps/s", flush=True
        )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
