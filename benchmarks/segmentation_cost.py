"""What heteroscedastic segmentation costs: steps against the homoscedastic model, the link against samples, memory.

    python benchmarks/segmentation_cost.py --out results/segmentation/cost.jsonl

Times are medians of a call in alternated blocks of calls (`alternated`). One line of JSON per figure, written as it
is found.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from alternated import alternated
from segmentation_networks import model_of
from torch import Tensor
from torch.nn import functional as F

from dubito import optim
from dubito.segmentation import Pixels
from segmentation import append, stamp


def eager_samples(mean: Tensor, scale: Tensor, tau: float, samples: int = 1000) -> Tensor:
    """What every public implementation does: all draws of all pixels at once."""
    noise = torch.randn(samples, *mean.shape, device=mean.device)
    log_p = torch.log_softmax((mean + scale * noise) / tau, -1)
    return torch.logsumexp(log_p, 0) - float(np.log(samples))


def links(out: Path, device: str, rows: int, classes: int, turns: int) -> None:
    """The link alone, there and back, against 1,000 samples, at two temperatures."""
    from dubito.links import expected_log_softmax

    for tau in (1.0, 0.05):
        g = torch.Generator().manual_seed(0)
        mean = (2 * torch.randn(rows, classes, generator=g)).to(device).requires_grad_()
        scale = F.softplus(torch.randn(rows, classes, generator=g)).to(device).requires_grad_()
        weight = torch.randn(rows, classes, generator=g).to(device) / rows
        makers: dict[str, Callable[[], Tensor]] = {
            "exact": partial(expected_log_softmax, mean, scale, temperature=tau),
            "qmc 256": partial(expected_log_softmax, mean, scale, temperature=tau, method="qmc", samples=256),
            "samples 1000": partial(eager_samples, mean, scale, tau),
        }

        def there_and_back(make: Callable[[], Tensor], ends: Any = (mean, scale), w: Tensor = weight) -> Any:
            return torch.autograd.grad((make() * w).sum(), ends)

        works = {name: partial(there_and_back, make) for name, make in makers.items()}
        times = alternated(works, device == "cuda", least=turns)
        found = {name: each.ms for name, each in times.items()}
        line = {"what": "link", "rows": rows, "classes": classes, "tau": tau, "milliseconds": found}
        line["first"] = {name: each.first for name, each in times.items()}
        if device == "cuda":
            line["gigabytes"] = {name: _peak(work) for name, work in works.items()}
        line["samples_over_exact"] = found["samples 1000"] / found["exact"]
        append(out, {**line, **stamp(device)})


MODELS: dict[str, dict[str, Any]] = {
    "homoscedastic": {"tau": None, "upsample": "log_probs"},
    "exact, tau 1": {"tau": 1.0, "upsample": "log_probs"},
    "exact, tau .05": {"tau": 0.05, "upsample": "log_probs"},
    "qmc 256, tau 1": {"tau": 1.0, "upsample": "log_probs", "integration": "qmc"},
    "qmc 256, tau .05": {"tau": 0.05, "upsample": "log_probs", "integration": "qmc"},
    "exact at full size, tau 1": {"tau": 1.0, "upsample": "latent"},
}


def steps(out: Path, device: str, size: tuple[int, int, int, int], network: str, turns: int) -> None:
    """Whole steps on a fixed batch, as ratios to the homoscedastic model's."""
    works = {name: _step(*size, {**job, "network": network}, device) for name, job in MODELS.items()}
    found = {name: each.ms for name, each in alternated(works, device == "cuda", least=turns).items()}
    line: dict[str, Any] = {"what": "step", "network": network, "batch": list(size), "milliseconds": found}
    line["ratios"] = {name: value / found["homoscedastic"] for name, value in found.items()}
    append(out, {**line, **stamp(device)})


def _step(
    n: int, height: int, width: int, classes: int, job: dict[str, Any], device: str
) -> Callable[[], object]:
    """Forward, backward and update on a fixed batch, without the loader."""
    from dubito._batches import Batch

    model = model_of({"seed": 0, **job}, classes).to(device)
    if device == "cuda":
        model.backbone.to(memory_format=torch.channels_last)
    trained = Pixels(model).to(device).train()
    optimizer = optim.adam(trained.named_parameters())
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, 3, height, width, generator=g).to(device)
    y = torch.randint(classes, (n, height, width), generator=g).to(device)
    batch = Batch(torch.arange(n, device=device), x, y, complete=True)

    def work() -> None:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            total = trained(batch, lambda purpose: torch.Generator(device=device).manual_seed(0))
        total.backward()
        optimizer.step()

    return work


def memory(out: Path, device: str, n: int, size: int, classes: int = 21) -> None:
    """Peak bytes of a step with 21 classes at 512 x 512, beyond those of the network alone."""
    x = torch.randn(n, 3, size, size, device=device)
    for name, job in MODELS.items():
        work = _step(n, size, size, classes, job, device)
        model = model_of({"seed": 0, **job}, classes).to(device)

        def network(model: Any = model) -> None:
            with torch.autocast(device, torch.bfloat16):
                model.backbone(x).float().square().mean().backward()

        peaks = {"step": _peak(work), "network": _peak(network)}
        gigabytes = {**peaks, "beyond": peaks["step"] - peaks["network"]}
        line = {"what": "memory", "batch": [n, size, size, classes], "model": name, "gigabytes": gigabytes}
        append(out, {**line, **stamp(device)})
        del work, model


def _peak(work: Callable[[], object]) -> float:
    """Gigabytes that a second call allocates at most."""
    work()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("results/segmentation/cost.jsonl"))
    parser.add_argument("--few", action="store_true", help="tiny sizes, to try the script")
    args = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if args.few:
        links(args.out, device, 216, 11, 1)
        steps(args.out, device, (2, 36, 48, 11), "compact", 1)
        return
    # CamVid as it is trained, then images of 512 x 512 with 21 classes; feature maps have a quarter of the size.
    works: list[Callable[[], None]] = [
        partial(links, args.out, device, 16 * 40 * 52, 11, 9),
        partial(links, args.out, device, 8 * 128 * 128, 21, 5),
        partial(steps, args.out, device, (16, 160, 208, 11), "compact", 25),
        partial(steps, args.out, device, (8, 512, 512, 21), "compact", 11),
        partial(memory, args.out, device, 8, 512) if device == "cuda" else lambda: None,
        partial(steps, args.out, device, (16, 160, 208, 11), "deeplab", 15),
    ]
    for work in works:
        try:
            work()
        except Exception as error:  # the figures after it are worth having all the same
            append(args.out, {"failed": f"{type(error).__name__}: {error}"[:500], **stamp(device)})


if __name__ == "__main__":
    main()
