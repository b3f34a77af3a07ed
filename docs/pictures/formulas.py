"""Pictures that follow from formulas alone. `python docs/pictures/formulas.py` draws them anew, in seconds."""

from __future__ import annotations

import numpy as np
import torch
from style import COLOURS, GREY, heat, panels, save

from dubito import channels, heads, links, losses, noise, targets, weights


def draw_losses() -> None:
    """Loss and pull on the label's logit against the probability of the label, two classes."""
    p = torch.linspace(0.004, 0.996, 300, dtype=torch.float64)
    z = torch.stack([p.log(), (1 - p).log()], -1).requires_grad_()
    y = torch.zeros(len(p), dtype=torch.long)
    named = {
        "nll": losses.nll,
        "gce, q = 0.7": lambda z, y, **k: losses.gce(z, y, q=0.7, **k),
        "truncated gce, k = 0.5": lambda z, y, **k: losses.truncated_gce(z, y, q=0.7, k=0.5, **k),
        "bi-tempered, 0.7 and 1.3": lambda z, y, **k: losses.bi_tempered(z, y, t1=0.7, t2=1.3, **k),
        "bootstrap, 0.8": lambda z, y, **k: losses.bootstrap(z, y, beta=0.8, **k),
    }
    figure, (left, right) = panels(2, 3.0, 3.6)
    for name, loss in named.items():
        value = loss(z, y, reduction="none")
        (pull,) = torch.autograd.grad(value.sum(), z)
        left.plot(p, value.detach(), label=name)
        right.plot(p, -pull[:, 0])
    left.set(ylim=(-0.1, 4), xlabel="probability of the given label", title="loss")
    right.set(xlabel="probability of the given label", title="pull towards the label")
    right.axhline(0, color=GREY, linewidth=0.8)
    left.legend(fontsize=8)
    save(figure, "losses")


def draw_targets() -> None:
    """What a label of class 1 becomes."""
    y, T = torch.tensor(1), noise.flip_to_other(4, 0.3)
    kinds = {
        "one-hot": targets.smooth(y, 4, 0.0),
        "smooth, 0.2": targets.smooth(y, 4, 0.2),
        "backward, T⁻¹": targets.smear(y, targets.backward_matrix(T)),
        "noise, σ 0.5": targets.label_noise(y, 4, 0.5, torch.Generator().manual_seed(1)),
    }
    figure, axes = panels(4, 2.2, 1.9)
    for place, (name, weight), colour in zip(axes, kinds.items(), COLOURS):
        place.bar(range(4), weight.double().numpy(), color=colour)
        place.axhline(0, color=GREY, linewidth=0.8)
        place.set(title=name, ylim=(-0.8, 1.8), xlabel="class", xticks=range(4))
    save(figure, "targets")


def draw_heads() -> None:
    """Draws of the class probabilities of one input, on the triangle of three classes."""
    mean = torch.tensor([1.0, 0.4, 0.0])
    one, factors = torch.full((3,), 0.7), torch.tensor([[1.4], [-1.4], [0.0]])
    kinds = {
        "Point": heads.Latent(mean),
        "Diagonal": heads.Latent(mean, one),
        "LowRank": heads.Latent(mean, 0.2 * torch.ones(3), factors),
    }
    corners = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.5, 3**0.5 / 2]])
    generator = torch.Generator().manual_seed(0)
    figure, axes = panels(3, 2.7, 2.6)
    for place, (name, latent), colour in zip(axes, kinds.items(), COLOURS):
        u = mean.expand(150, 3)
        if latent.scale is not None:
            u = u + latent.scale * torch.randn(150, 3, generator=generator)
        if latent.factors is not None:
            u = u + torch.randn(150, 1, generator=generator) @ latent.factors.T
        xy = u.softmax(-1) @ corners
        place.plot(*corners[[0, 1, 2, 0]].T, color=GREY, linewidth=1)
        place.scatter(*xy.T, s=9 if latent.scale is not None else 60, color=colour, alpha=0.6, linewidths=0)
        place.set(aspect="equal")
        place.set_title(name, pad=14)
        place.set_axis_off()
        for corner, text, lift in zip(corners, ("cat", "dog", "bird"), (-0.1, -0.1, 0.04)):
            place.text(corner[0], corner[1] + lift, text, ha="center")
    save(figure, "heads")


def draw_links() -> None:
    """The expected softmax against the temperature, and the error of sampling it."""
    mean, scale = torch.tensor([1.0, 0.0, -0.5]).double(), torch.tensor([0.5, 1.0, 2.0]).double()
    taus = np.geomspace(0.05, 20, 60)
    p = torch.stack([links.expected_log_softmax(mean, scale, temperature=float(t)).exp() for t in taus])
    plain = torch.stack([links.log_softmax(mean, float(t)).exp() for t in taus])
    figure, (left, right) = panels(2, 3.0, 3.6)
    for k, colour in zip(range(3), COLOURS):
        left.plot(taus, p[:, k], color=colour, label=f"class {k}")
        left.plot(taus, plain[:, k], color=colour, linestyle=":", linewidth=1.3)
    left.set(xscale="log", xlabel="temperature", title="expected softmax (dotted: softmax of the mean)")
    left.legend(fontsize=8)
    exact = links.expected_log_softmax(mean, scale).exp()
    sizes = [2**k for k in range(4, 15)]
    for method, colour in (("mc", COLOURS[1]), ("qmc", COLOURS[2])):
        errors = [_error(mean, scale, exact, method, n) for n in sizes]
        right.plot(sizes, errors, "o-", markersize=4, color=colour, label=method)
    right.set(xscale="log", yscale="log", xlabel="draws", title="error of sampling")
    right.legend(fontsize=8)
    save(figure, "links")


def _error(mean: torch.Tensor, scale: torch.Tensor, exact: torch.Tensor, method: str, n: int) -> float:
    tries = []
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        found = links.expected_log_softmax(mean, scale, method=method, samples=n, generator=generator)
        tries.append((found.exp() - exact).pow(2).mean())
    return float(torch.stack(tries).mean().sqrt())


def draw_channels() -> None:
    """The model's belief, a transition matrix, and what it expects to be told."""
    T = noise.flip_map(3, {0: 1}, 0.4)
    log_p = torch.tensor([0.8, 0.15, 0.05]).log()
    seen = channels.FixedTransition(T)(log_p).exp()
    figure, (left, middle, right) = panels(3, 2.5, 2.5)
    left.bar(range(3), log_p.exp(), color=COLOURS[0])
    left.set(title="p(true | x)", ylim=(0, 1), xticks=range(3), xlabel="true")
    heat(middle, T.numpy(), "T[true, observed]")
    right.bar(range(3), seen, color=COLOURS[1])
    right.set(title="p(observed | x)", ylim=(0, 1), xticks=range(3), xlabel="observed")
    save(figure, "channels")


def draw_weights() -> None:
    """How much examples count: over epochs in co-teaching, over losses in MentorNet."""
    epochs = range(31)
    figure, (left, right) = panels(2, 2.7, 3.4)
    for exponent, colour in zip((0.5, 1.0, 2.0), COLOURS):
        kept = [1 - weights.forget_rate(e, 0.4, 10, exponent) for e in epochs]
        left.plot(epochs, kept, color=colour, label=f"exponent {exponent:g}")
    left.set(xlabel="epoch", title="share kept, 40 % wrong labels", ylim=(0.5, 1.02))
    left.legend(fontsize=8)
    loss = torch.linspace(0, 4, 200)
    for lambda2, colour in zip((0.0, 0.5, 1.0, 2.0), COLOURS):
        right.plot(
            loss, weights.self_paced(loss, 1.0, lambda2=lambda2), color=colour, label=f"λ₂ = {lambda2:g}"
        )
    right.axvline(1.0, color=GREY, linewidth=0.8)
    right.set(xlabel="loss (threshold at 1)", title="self-paced weight")
    right.legend(fontsize=8)
    save(figure, "weights")


if __name__ == "__main__":
    for draw in (draw_losses, draw_targets, draw_heads, draw_links, draw_channels, draw_weights):
        draw()
