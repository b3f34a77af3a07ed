"""Features for images learned without labels, and a classifier on them: a decent model that trains on a CPU.

Patches of 6 x 6 pixels are normalised, whitened and clustered; an image is described by how near its patches are to
each centre, summed over the four quarters (Coates, Lee, Ng 2011). No label enters, so one table of features
serves every set of noisy labels. A softmax regression on them reaches three quarters of CIFAR-10.

    python benchmarks/audit_features.py OUT --seeds 3 --device cuda    seconds on a GPU, minutes without
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

Array = Any
SIDE = 6  # of a patch, in pixels


def patches(images: Tensor) -> Tensor:
    """(B, C, H, W) -> (B, P, C SIDE^2), each patch centred and scaled by its own spread."""
    p = F.unfold(images, SIDE).transpose(1, 2)
    p = p - p.mean(-1, keepdim=True)
    return p / (p.var(-1, keepdim=True) + 10.0 / 255**2).sqrt()


def dictionary(images: Tensor, centres: int, seed: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, whitening matrix and centres of random patches."""
    generator = torch.Generator().manual_seed(seed)
    some = images[torch.randperm(len(images), generator=generator)[:4000]].to(device).float() / 255
    p = torch.cat([_few(patches(b), generator) for b in some.split(200)])
    mean = p.mean(0)
    values, vectors = torch.linalg.eigh((p - mean).T @ (p - mean) / len(p))
    whiten = vectors @ torch.diag((values + 0.1).rsqrt()) @ vectors.T
    p = (p - mean) @ whiten
    c = p[torch.randperm(len(p), generator=generator)[:centres].to(device)]
    for _ in range(15):
        nearest = (p @ c.T - 0.5 * (c**2).sum(1)).argmax(1)
        size = torch.bincount(nearest, minlength=centres)
        total = torch.zeros_like(c).index_add_(0, nearest, p)
        lost = p[torch.randperm(len(p), generator=generator)[:centres].to(device)]
        c = torch.where(size[:, None] > 0, total / size[:, None].clamp(min=1), lost)
    return mean, whiten, c


def _few(p: Tensor, generator: torch.Generator) -> Tensor:
    rows = torch.randint(p.shape[1], (p.shape[0], 20), generator=generator).to(p.device)
    return p.gather(1, rows[..., None].expand(-1, -1, p.shape[2])).flatten(0, 1)


@torch.no_grad()
def encode(images: Array, centres: int = 600, seed: int = 0, device: str = "cpu") -> Array:
    """(N, H, W, C) bytes -> (N, 4 centres) standardised features in float16."""
    x = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2)
    mean, whiten, c = dictionary(x, centres, seed, device)
    side = x.shape[-1] - SIDE + 1
    out = []
    for batch in x.split(100):
        p = (patches(batch.to(device).float() / 255) - mean) @ whiten
        far = ((p**2).sum(-1, keepdim=True) - 2 * p @ c.T + (c**2).sum(1)).clamp(min=0).sqrt()
        near = (far.mean(-1, keepdim=True) - far).clamp(min=0)
        near = near.view(len(p), side, side, centres)
        half = side // 2
        quarters = [
            near[:, a, b].sum((1, 2))
            for a in (slice(half), slice(half, None))
            for b in (slice(half), slice(half, None))
        ]
        out.append(torch.cat(quarters, 1))
    f = torch.cat(out)
    return ((f - f.mean(0)) / f.std(0).clamp(min=1e-6)).half().cpu().numpy()


def softmax_regression(x: Tensor, y: Tensor, decay: float, steps: int = 60) -> Tensor:
    """Weights and bias (d + 1, K) with the least cross-entropy plus ``decay / 2 |W|^2`` per example, by L-BFGS."""
    K = int(y.max()) + 1
    w = torch.zeros(x.shape[1] + 1, K, device=x.device, requires_grad=True)
    search = torch.optim.LBFGS([w], max_iter=steps, history_size=10, line_search_fn="strong_wolfe")

    def value() -> Tensor:
        search.zero_grad()
        loss = F.cross_entropy(torch.addmm(w[-1], x, w[:-1]), y) + decay / 2 * (w[:-1] ** 2).sum()
        loss.backward()
        return loss

    search.step(value)
    return w.detach()


def out_of_fold(x: Array, labels: Array, seed: int, decay: float = 0.02, device: str = "cpu") -> Array:
    """Probabilities (N, K) of models that did not see the row's label, five folds."""
    from sklearn.model_selection import StratifiedKFold

    data, y = torch.from_numpy(x).to(device).float(), torch.from_numpy(labels).to(device)
    probs = torch.zeros(len(y), int(y.max()) + 1)
    for kept, left in StratifiedKFold(5, shuffle=True, random_state=seed).split(x, labels):
        w = softmax_regression(data[kept], y[kept], decay)
        probs[left] = torch.addmm(w[-1], data[left], w[:-1]).softmax(1).cpu()
    return probs.numpy()


def cached(path: Path, images: Array, centres: int = 600) -> Array:
    """Features from a file, made when it is not there."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, encode(images, centres))
    return np.load(path)


def main() -> None:
    """Write out-of-fold probabilities of CIFAR-10N's label sets into a folder: one npz per set and seed."""
    import argparse

    from dubito import data

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--centres", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--labels", nargs="+", default=["aggre", "random1", "worst"])
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    x: Array = None
    for name in options.labels:
        human = data.load("cifar10n", "train", labels=name)
        if x is None:
            images = human.inputs[: options.rows].permute(0, 2, 3, 1).numpy()  # type: ignore[union-attr,index]
            x = encode(images, options.centres, device=options.device)
        y, true = (t[: options.rows].numpy() for t in (human.labels, human.clean))  # type: ignore[index]
        for seed in range(options.seeds):
            probs = out_of_fold(x, y, seed, device=options.device)
            np.savez(options.out / f"cifar10n_{name}_patches_{seed}.npz", labels=y, true=true, probs=probs)
            print(name, seed, "agrees with", (probs.argmax(1) == y).mean(), "of the labels", flush=True)


if __name__ == "__main__":
    main()
