"""A plain PyTorch loop: the loss is the only line that changes."""

import torch
from digits import load
from torch import nn

import dubito


def train(loss_function, x, y, epochs=60):
    """An ordinary loop."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(y)).split(64):
            loss = loss_function(net(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return net


def main():
    """Cross-entropy beside a robust loss, on labels of which 40 % are wrong."""
    x, y, test_x, test_y = load(rate=0.4)
    scores = {}
    for name, loss in {"cross-entropy": nn.functional.cross_entropy, "gce": dubito.gce}.items():
        net = train(loss, x, y)
        scores[name] = (net(test_x).argmax(-1) == test_y).float().mean().item()
        print(f"{name:15s} accuracy on clean test labels {scores[name]:.3f}")
    return scores


if __name__ == "__main__":
    main()
