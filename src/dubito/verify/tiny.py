"""A training run of a second, in a process of its own: ``python -m dubito.verify.tiny FOLDER SEED``.

Prints the SHA-256 of the final weights, and nothing else.
"""

from __future__ import annotations

import hashlib
import signal
import sys

import torch
from torch import nn

from .. import heads, noise
from ..data import LabelledData
from ..model import Model
from ..train import fit

EPOCHS, BATCH, EXAMPLES = 5, 16, 320


def main(folder: str, seed: int) -> str:
    """Train a small network with dropout on noisy labels, with a checkpoint every few steps."""
    torch.set_num_threads(1)
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(EXAMPLES, 6, generator=g)
    y = noise.corrupt((x[:, 0] > 0).long() + (x[:, 1] > 0).long(), noise.resample(3, 0.2), g)
    backbone = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.2))
    with torch.no_grad():
        for p in backbone.parameters():
            p.copy_(torch.randn(p.shape, generator=g) / 4)
    model = Model(backbone, heads.Point(16, 3, generator=g))
    run = fit(
        model,
        LabelledData(x, y),
        epochs=EPOCHS,
        batch_size=BATCH,
        seed=seed,
        device="cpu",
        out=folder,
        checkpoint_every=6,
        progress=False,
    )
    digest = hashlib.sha256()
    for name, value in sorted(run.model.state_dict().items()):
        digest.update(name.encode() + value.contiguous().numpy().tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    sys.stdout.write(main(sys.argv[1], int(sys.argv[2])) + "\n")
