"""What the examples share: handwritten digits, some of whose labels are wrong."""

import torch
from sklearn.datasets import load_digits

from dubito import noise


def load(rate=0.3, seed=0):
    """Training inputs (N, 64) with noisy labels, and test inputs with true ones."""
    x, y = load_digits(return_X_y=True)
    x, y = torch.as_tensor(x / 16, dtype=torch.float32), torch.as_tensor(y)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    train, test = order[:1200], order[1200:]
    noisy = noise.corrupt(y[train], noise.flip_to_other(10, rate), torch.Generator().manual_seed(seed + 1))
    return x[train], noisy, x[test], y[test]
