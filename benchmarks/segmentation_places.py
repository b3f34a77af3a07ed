"""What is gained by integrating at full size: three places to enlarge, on scenes whose truth is known, on a CPU.

    python benchmarks/segmentation_places.py --steps 60 --out results/segmentation/places.jsonl

Small scenes of simple shapes, training masks with noisy borders, clean test masks. Feature maps have a quarter of
the image's resolution. All forms of a seed share start, order and data; one line of JSON per run, as it ends.
"""

from __future__ import annotations

import argparse
import datetime
import json
import time
from functools import partial
from pathlib import Path

import torch

from dubito import heads, optim
from dubito._random import generator
from dubito.backbones import EncoderDecoder
from dubito.segmentation import BorderHabits, Pixels, SegmentationModel, border_noise, score_masks
from dubito.segmentation.shapes import shapes
from dubito.train import fit

HABITS = BorderHabits(grow=(-2.0, 2.0), shift=1.0, simplify=1.0)
FORMS = ("homoscedastic", "log_probs", "latent", "features")


def run(form: str, seed: int, tau: float, steps: int) -> dict[str, object]:
    """Train on noisy masks, score on clean ones."""
    size = (32, 40)
    train = shapes(48, size=size, seed=seed, purpose="train")
    test = shapes(48, size=size, seed=seed, purpose="test")
    data = train.with_labels(border_noise(train.labels, HABITS, seed=seed))
    network = EncoderDecoder(3, widths=(16, 32), decoder=16, generator=generator(seed, 0, "network"))
    kind = heads.Point if form == "homoscedastic" else heads.Diagonal
    model = SegmentationModel(
        network,
        kind(16, 4, generator=generator(seed, 0, "head")),
        temperature=1.0 if form == "homoscedastic" else tau,
        upsample="log_probs" if form == "homoscedastic" else form,
    )
    begun = time.process_time()
    done = fit(
        model,
        data,
        procedure=Pixels,
        optimizer=partial(optim.adam, lr=5e-3),
        schedule=optim.polynomial,
        steps=steps,
        batch_size=8,
        batching="stream",
        seed=seed,
        device="cpu",
        evaluate_every=10_000,
        progress=False,
    )
    seconds = time.process_time() - begun
    found = score_masks(done.model, test).results()
    return {"form": form, "seed": seed, "tau": tau, "steps": steps, "cpu_seconds": seconds, "test": found}


def main() -> None:
    """Seeds outermost, so that a run that is cut has whole seeds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("results/segmentation/places.jsonl"))
    parser.add_argument("--steps", type=int, default=90)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tau", type=float, default=1.0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    for seed in range(args.seeds):
        for form in FORMS:
            line = {**run(form, seed, args.tau, args.steps), "torch": torch.__version__, "date": today}
            with args.out.open("a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
