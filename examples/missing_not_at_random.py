"""A feature that is hidden makes labels noisy: a classifier that knows where loses less.

The label is a plain function of three features, and the third is never recorded. It depends on the two that are
seen, more loosely where the second is high, so that a label can be foretold in one place and hardly in another
(figure 5b of Collier et al. 2020). A linear classifier must be equally sure everywhere; with a scale beside each
logit it is sure where it may be.
"""

from functools import partial

import torch

import dubito
from dubito.data import LabelledData
from dubito.evaluate import predict
from dubito.noise import hidden_feature_task
from dubito.optim import adam


def task(count, seed):
    """Two features, the label, and the probability that it is not the likelier one."""
    made = hidden_feature_task(count, torch.Generator().manual_seed(seed))
    return LabelledData(made.features.float(), made.labels), made.noise


def main():
    """Log-likelihood of both on new data, and how well the scales tell where labels are noisy."""
    train, _ = task(2_000, seed=0)
    test, noise = task(4_000, seed=1)
    found = {}
    for name, head in (("plain", dubito.Point(2, 2)), ("heteroscedastic", dubito.Diagonal(2, 2))):
        model = dubito.Model(torch.nn.Identity(), head)
        dubito.fit(model, train, optimizer=partial(adam, lr=0.1), epochs=30, batch_size=200, progress=False)
        log_p = predict(model, test).log_p
        found[name] = float(log_p.gather(-1, test.labels[:, None]).mean())
        doubt = 1 - log_p.exp().amax(-1).double()
        found[f"{name}, doubt against noise"] = float(torch.corrcoef(torch.stack([doubt, noise]))[0, 1])
    return found


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name}: {value:.3f}")
