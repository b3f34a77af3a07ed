"""Heteroscedastic segmentation on CamVid, with clean labels and with noisy borders.

    python benchmarks/segmentation.py prepare --folder camvid
    python benchmarks/segmentation.py train --folder camvid --out results/segmentation/camvid.jsonl

`prepare` writes the images and the noisy masks as arrays. `train` runs every (labels, temperature, seed) once,
several at a time, and appends one line of JSON as each ends; runs that have a line already are left out. All
methods of a seed share the network's start, the order of the images and their augmentation.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dubito import heads, optim
from dubito._random import generator
from dubito.backbones import EncoderDecoder
from dubito.data import LabelledData, load
from dubito.segmentation import Pixels, SegmentationModel
from dubito.segmentation.augment import scale_crop_flip
from dubito.segmentation.noise import BorderHabits, border_noise
from dubito.segmentation.scores import score_masks
from dubito.train import fit

HABITS = BorderHabits(grow=(-3.0, 3.0), shift=2.0, simplify=2.0)
TAUS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
SEEDS = (0, 1, 2)
WIDTHS, DECODER = (32, 64, 128, 256), 64


def jobs(seeds: tuple[int, ...]) -> list[dict[str, Any]]:
    """Seeds outermost, so that a run that is cut has whole seeds; then the cells that the question is about."""
    taus: tuple[float | None, ...] = (None, 1.0, 0.2, 0.05, 0.5, 0.1, 2.0, 5.0)
    curve = [
        {"labels": labels, "tau": tau, "seed": seed, "upsample": "log_probs"}
        for seed in seeds
        for labels in ("border", "clean")
        for tau in taus
    ]
    places = [
        {"labels": "border", "tau": tau, "seed": seed, "upsample": where}
        for seed in seeds
        for where in ("latent", "features")
        for tau in (0.2, 1.0)
    ]
    return curve + places


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


def read(folder: Path, split: str, labels: str, few: int | None) -> LabelledData:
    """A split with clean or noisy masks; the clean ones are known either way."""
    images = torch.from_numpy(np.load(folder / f"{split}_images.npy")[:few])
    clean = torch.from_numpy(np.load(folder / f"{split}_masks.npy")[:few]).long()
    observed = clean
    if labels == "border" and split != "test":
        observed = torch.from_numpy(np.load(folder / "border.npz")[split][:few]).long()
    mean, std = (0.4109, 0.4248, 0.4264), (0.3016, 0.3091, 0.3033)
    return LabelledData(images, observed, clean, mean=mean, std=std, name=f"camvid {split}")


def model_of(job: dict[str, Any], classes: int = 11, widths: tuple[int, ...] = WIDTHS) -> SegmentationModel:
    network = EncoderDecoder(
        3, widths=widths, decoder=DECODER, generator=generator(job["seed"], 0, "network")
    )
    source = generator(job["seed"], 0, "head")
    kind = heads.Point if job["tau"] is None else heads.Diagonal
    head: torch.nn.Module = kind(DECODER, classes, generator=source)
    return SegmentationModel(
        network,
        head,
        temperature=1.0 if job["tau"] is None else job["tau"],
        upsample=job["upsample"],
        integration=job.get("integration", "auto"),
        samples=job.get("samples", 256),
    )


def run(job: dict[str, Any], folder: Path, steps: int, few: int | None, device: str) -> dict[str, Any]:
    """Train one model, then score it on validation (observed labels) and test."""
    begun = time.perf_counter()
    model = model_of(job, widths=WIDTHS if few is None else (8, 16))
    if device == "cuda":
        model.backbone.to(memory_format=torch.channels_last)
    data = read(folder, "train", job["labels"], few)
    fitted = fit(
        model,
        data,
        procedure=Pixels,
        optimizer=partial(optim.adam, lr=2e-3, weight_decay=1e-4),
        schedule=optim.polynomial,
        steps=steps,
        batch_size=min(16, len(data)),
        batching="stream",
        augment=partial(scale_crop_flip, crop=(160, 208), scales=(0.75, 1.5)),
        amp=device == "cuda",
        seed=job["seed"],
        device=device,
        evaluate_every=10_000,
        progress=False,
    )
    trained = time.perf_counter() - begun
    found: dict[str, Any] = {**job, "steps": fitted.steps, "train_seconds": round(trained, 2)}
    for split in ("val", "test"):
        part = read(folder, split, job["labels"], few).to(device)
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


def done(out: Path) -> set[str]:
    keys = ("labels", "tau", "seed", "upsample")
    lines = [json.loads(text) for text in out.read_text().splitlines()] if out.exists() else []
    return {json.dumps([line[k] for k in keys]) for line in lines if "test" in line}


def train(args: argparse.Namespace, device: str) -> None:
    """The jobs, shared among so many processes; each appends its own lines."""
    if args.worker is None and args.workers > 1:
        command = [sys.executable, *sys.argv]
        running = [subprocess.Popen([*command, "--worker", str(i)]) for i in range(args.workers)]
        for process in running:
            process.wait()
        return
    seeds = tuple(range(args.seeds))
    have = done(args.out)
    keys = ("labels", "tau", "seed", "upsample")
    todo = [job for job in jobs(seeds) if json.dumps([job[k] for k in keys]) not in have]
    mine = todo if args.worker is None else todo[args.worker :: args.workers]
    for job in mine[: args.most]:
        if time.time() > args.until:
            return
        try:
            line = run(job, args.folder, args.steps, args.few, device)
        except Exception as error:
            line = {**job, "failed": f"{type(error).__name__}: {error}"[:500]}
        append(args.out, {**line, **stamp(device), "workers": args.workers})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=["prepare", "train"])
    parser.add_argument("--folder", type=Path, default=Path("camvid"))
    parser.add_argument("--out", type=Path, default=Path("results/segmentation/camvid.jsonl"))
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--worker", type=int, help="which of the workers this is; set by the first process")
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
