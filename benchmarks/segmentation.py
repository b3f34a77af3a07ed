"""Heteroscedastic segmentation on CamVid, with clean labels and with noisy borders.

    python benchmarks/segmentation.py prepare --folder camvid
    python benchmarks/segmentation.py train --folder camvid --out results/segmentation/camvid.jsonl

`prepare` writes the images and the noisy masks as arrays. `train` runs every (network, labels, temperature, seed,
place of enlarging) once, several at a time, and appends one line of JSON as each ends; runs that have a line
already are left out. All methods of a seed share the start, the order of the images and their augmentation.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from segmentation_networks import COLOURS, model_of

from dubito import optim
from dubito.data import LabelledData, load
from dubito.segmentation import Pixels
from dubito.segmentation.augment import scale_crop_flip
from dubito.segmentation.noise import BorderHabits, border_noise
from dubito.segmentation.scores import score_masks
from dubito.train import fit

HABITS = BorderHabits(grow=(-3.0, 3.0), shift=2.0, simplify=2.0)
TAUS: tuple[float | None, ...] = (None, 1.0, 0.5, 0.2, 2.0, 0.05, 0.1, 5.0)
SEEDS = (0, 1, 2)
CROP, SCALES, BATCH = (160, 208), (0.75, 1.5), 16
RATES = {"compact": 2e-3, "deeplab": 5e-4, "deeplab-xception": 5e-4}
PAPER, PLACES = "log_probs", ("latent", "features")
KEYS = ("network", "labels", "tau", "seed", "upsample")


def jobs(seeds: tuple[int, ...]) -> list[dict[str, Any]]:
    """What the question is about first, with all seeds; then the places, DeepLabv3+, the rest of the curves."""

    def of(network: str, labels: str, taus: tuple[float | None, ...], where: str = PAPER) -> list[Any]:
        rest = {"network": network, "labels": labels, "upsample": where}
        return [{"tau": tau, "seed": seed, **rest} for seed in seeds for tau in taus]

    core: tuple[float | None, ...] = (None, 1.0, 0.5, 0.2)
    found = of("compact", "border", core) + of("compact", "border", (2.0, 0.05))
    found += of("compact", "clean", core) + of("compact", "clean", (2.0, 0.05))
    found += [job for where in PLACES for job in of("compact", "border", (1.0,), where)]
    for taus in ((None, 1.0, 0.05), (0.2, 0.5)):
        found += of("deeplab", "border", taus) + of("deeplab", "clean", taus)
    for network in ("compact", "deeplab"):
        for labels in ("border", "clean"):
            found += of(network, labels, TAUS)
    return list({name_of(job): job for job in found}.values())


def prepare(folder: Path) -> None:
    """Images and masks of CamVid, and training and validation masks with noisy borders unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    noisy = folder / "border.npz"
    sets = {split: load("camvid", split) for split in ("train", "val", "test")}
    for split, data in sets.items():
        np.save(folder / f"{split}_images.npy", data.inputs.numpy())  # type: ignore[union-attr]
        np.save(folder / f"{split}_masks.npy", data.labels.to(torch.int8).numpy())
    if not noisy.exists():
        drawn = {
            split: border_noise(sets[split].labels, HABITS, seed=0, annotator=number)
            for number, split in enumerate(("train", "val"))
        }
        np.savez_compressed(noisy, **{split: masks.to(torch.int8).numpy() for split, masks in drawn.items()})
    for split, masks in np.load(noisy).items():
        clean = sets[split].labels
        wrong = (torch.from_numpy(masks).long() != clean)[clean >= 0]
        print(split, "share of wrong pixels", float(wrong.float().mean()))


def read(folder: Path, split: str, job: dict[str, Any], few: int | None) -> LabelledData:
    """A split with clean or noisy masks; the clean ones are known either way."""
    images = torch.from_numpy(np.load(folder / f"{split}_images.npy")[:few])
    clean = torch.from_numpy(np.load(folder / f"{split}_masks.npy")[:few]).long()
    observed = clean
    if job["labels"] == "border" and split != "test":
        observed = torch.from_numpy(np.load(folder / "border.npz")[split][:few]).long()
    mean, std = COLOURS[job["network"]]
    return LabelledData(images, observed, clean, mean=mean, std=std, name=f"camvid {split}")


def run(job: dict[str, Any], folder: Path, steps: int, few: int | None, device: str) -> dict[str, Any]:
    """Train one model, then score it on validation (observed labels) and test."""
    begun = time.perf_counter()
    model = model_of(job) if few is None else model_of(job, widths=(8, 16))
    if device == "cuda":
        model.backbone.to(memory_format=torch.channels_last)
    data = read(folder, "train", job, few)
    fitted = fit(
        model,
        data,
        procedure=Pixels,
        optimizer=partial(optim.adam, lr=RATES[job["network"]], weight_decay=1e-4),
        schedule=optim.polynomial,
        steps=steps,
        batch_size=min(BATCH, len(data)),
        batching="stream",
        augment=partial(scale_crop_flip, crop=CROP, scales=SCALES),
        amp=device == "cuda",
        seed=job["seed"],
        device=device,
        evaluate_every=10_000,
        progress=False,
    )
    trained = time.perf_counter() - begun
    found: dict[str, Any] = {**job, "steps": fitted.steps, "train_seconds": round(trained, 2)}
    for split in ("val", "test"):
        part = read(folder, split, job, few).to(device)
        scores = score_masks(fitted.model, part, batch_size=16)
        found[split] = scores.results()
        found[f"{split}_iou"] = [round(v, 6) for v in scores.class_iou()[0].tolist()]
        if split == "val" and job["labels"] != "clean":
            found["val_clean"] = score_masks(fitted.model, part, clean=True, batch_size=16).results()
    found["seconds"] = round(time.perf_counter() - begun, 2)
    return found


def stamp(device: str) -> dict[str, Any]:
    name = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine()
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"device": name, "torch": torch.__version__, "date": today}


def append(out: Path, line: dict[str, Any]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a") as file:
        file.write(json.dumps(line) + "\n")


def name_of(job: dict[str, Any]) -> str:
    return " ".join(str(job.get(k, "compact")) for k in KEYS)


def done(out: Path) -> set[str]:
    lines = [json.loads(text) for text in out.read_text().splitlines()] if out.exists() else []
    return {name_of(line) for line in lines if "test" in line}


def claimed(folder: Path, job: dict[str, Any]) -> bool:
    """Whether this process is the first to ask for a job; a folder of claims is of one invocation."""
    try:
        (folder / name_of(job)).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def train(args: argparse.Namespace, device: str) -> None:
    """The jobs, taken one by one by so many processes; each appends its own lines."""
    if args.claims is None:
        with tempfile.TemporaryDirectory() as claims:
            command = [sys.executable, *sys.argv, "--claims", claims]
            running = [subprocess.Popen(command) for _ in range(args.workers)]
            for process in running:
                process.wait()
        return
    have = done(args.out)
    for job in jobs(tuple(range(args.seeds))):
        if args.network not in (None, job["network"]) or name_of(job) in have:
            continue
        if time.time() > args.until:
            return
        if not claimed(args.claims, job):
            continue
        steps = args.steps if job["network"] == "compact" else args.deep_steps
        try:
            line = run(job, args.folder, steps, args.few, device)
        except Exception as error:
            line = {**job, "failed": f"{type(error).__name__}: {error}"[:500]}
        append(args.out, {**line, **stamp(device), "workers": args.workers})
        if args.most is not None:
            args.most -= 1
            if args.most == 0:
                return


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=["prepare", "train"])
    parser.add_argument("--folder", type=Path, default=Path("camvid"))
    parser.add_argument("--out", type=Path, default=Path("results/segmentation/camvid.jsonl"))
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--deep-steps", type=int, default=600, help="steps of the pre-trained network")
    parser.add_argument("--network", choices=sorted(RATES), help="only this one")
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--claims", type=Path, help="where workers claim runs; set by the first process")
    parser.add_argument("--few", type=int, help="so many images and a tiny network, to try the script")
    parser.add_argument("--most", type=int, help="at most so many runs per process")
    parser.add_argument("--until", type=float, default=float("inf"), help="start no run after this Unix time")
    args = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if args.task == "prepare":
        prepare(args.folder)
    else:
        train(args, device)


if __name__ == "__main__":
    main()
