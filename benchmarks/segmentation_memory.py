"""Peak memory of training on 512 x 512 images with 21 classes, beyond that of the network, on a CPU.

    python benchmarks/segmentation_memory.py --out results/segmentation/memory.jsonl

Each figure is the peak resident memory of a process of its own that takes one step: of the network alone (feature
maps summed and sent back), of whole steps, and of 1,000 samples kept at once, which is computed rather than tried.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from dubito import heads
from dubito._batches import Batch
from dubito.backbones import EncoderDecoder
from dubito.segmentation import Pixels, SegmentationModel

SIZE, CLASSES = 512, 21


def step(kind: str, images: int) -> None:
    """One forward and backward pass: of the network, or of a model that enlarges this or that."""
    network = EncoderDecoder(3, widths=(16, 32, 64), decoder=32)
    g = torch.Generator().manual_seed(0)
    x = torch.randn(images, 3, SIZE, SIZE, generator=g)
    y = torch.randint(CLASSES, (images, SIZE, SIZE), generator=g)
    if kind == "network":
        network(x).square().mean().backward()
        return
    model = SegmentationModel(network, heads.Diagonal(32, CLASSES), upsample=kind)
    batch = Batch(torch.arange(images), x, y, complete=True)
    Pixels(model)(batch, lambda purpose: torch.Generator().manual_seed(0)).backward()


def peak(kind: str, images: int) -> float:
    """Gigabytes of a fresh process that does it."""
    command = [sys.executable, __file__, "--step", kind, "--images", str(images)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(said)


def measure(kinds: list[str], images: int) -> Iterator[dict[str, Any]]:
    """One line per kind, as it is found."""
    network = peak("network", images)
    pixels = images * (SIZE // 4) ** 2
    sampled = 1000 * pixels * CLASSES * 4 / 1e9
    for kind in kinds:
        whole = peak(kind, images)
        line = {
            "batch": [images, SIZE, SIZE, CLASSES],
            "upsample": kind,
            "gigabytes": whole,
            "network": network,
        }
        yield {**line, "beyond": whole - network, "one tensor of 1,000 samples": sampled}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("results/segmentation/memory.jsonl"))
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--kinds", nargs="*", default=["log_probs", "latent"])
    parser.add_argument("--step")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.step:
        step(args.step, args.images)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9)
        return
    args.out.parent.mkdir(parents=True, exist_ok=True)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    with args.out.open("a") as file:
        for line in measure(args.kinds, args.images):
            stamp = {"machine": platform.machine(), "torch": torch.__version__, "date": today}
            file.write(json.dumps({**line, **stamp}) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
