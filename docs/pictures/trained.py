"""Pictures of small trained models. `python docs/pictures/trained.py` draws them anew, in about a minute."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from style import COLOURS, GREY, heat, panels, save

import dubito
from dubito import channels, crowd, estimate, heads, metrics, noise, penalties, procedures
from dubito.data import LabelledData, Triplets, from_arrays, with_noise
from dubito.evaluate import predict


def digits(rate_matrix: Any, seed: int = 0) -> tuple[LabelledData, LabelledData]:
    """Handwritten digits with noisy labels for training, and clean ones to look at."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    whole = from_arrays((x[order] / 16).astype(np.float32), y[order])
    train, test = whole.split(1300, 497, seed=seed)
    return with_noise(train, rate_matrix, seed=seed), test


def network(hidden: int = 64) -> dubito.Model:
    """A small perceptron."""
    generator = torch.Generator().manual_seed(0)
    body = dubito.backbones.MLP(64, (hidden,), generator=generator)
    return dubito.Model(body, heads.Point(hidden, 10, generator=generator))


def draw_procedures() -> None:
    """Accuracy on clean test labels while training on 45 % wrong labels."""
    train, test = digits(noise.flip_to_other(10, 0.45))
    kinds = {
        "plain": procedures.Plain,
        "co-teaching": partial(procedures.CoTeaching, rate=0.45, ramp=10),
        "self-paced": partial(procedures.SelfPaced, rate=0.45, lambda2=1.0, burn_in=5),
    }
    figure, axes = panels(1, 3.0, 5.4)
    for name, procedure in kinds.items():
        run = dubito.fit(
            network(512),
            train,
            valid=test,
            procedure=procedure,
            optimizer=partial(dubito.optim.adam, lr=3e-3),
            epochs=60,
            progress=False,
        )
        axes.plot(
            [r["epoch"] for r in run.history], [100 * r["valid_accuracy"] for r in run.history], label=name
        )
    axes.set(xlabel="epoch", title="digits, 45 % of the labels wrong: accuracy on clean test labels, %")
    axes.legend(fontsize=8)
    save(figure, "procedures")


def draw_metrics() -> None:
    """Trained on noisy labels, a network is calibrated to them: it doubts what is true."""
    train, test = digits(noise.flip_to_other(10, 0.3))
    figure, axes = panels(1, 3.2, 4.2)
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--")
    for name, epochs in (("10 epochs", 10), ("200 epochs", 200)):
        run = dubito.fit(network(256), train, epochs=epochs, progress=False)
        p = predict(run.model, test).log_p.exp()
        curve = metrics.reliability_curve(p, test.labels, bins=10)
        some = curve.size > 4
        ece = metrics.ece(p, test.labels, bins=10)
        axes.plot(curve.confidence[some], curve.accuracy[some], "o-", label=f"{name}, ECE {ece:.2f}")
    axes.set(
        xlabel="confidence",
        ylabel="accuracy",
        title="reliability on clean test labels",
        xlim=(0, 1),
        ylim=(0, 1),
    )
    axes.legend(fontsize=8)
    save(figure, "metrics")


def blobs(seed: int = 0) -> tuple[LabelledData, Any]:
    """Three clouds labelled by four annotators of different skill, one label per item."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (600,), generator=g)
    centres = 1.5 * torch.tensor([[1.0, 0.0], [-0.5, 0.9], [-0.5, -0.9]])
    x = centres[y] + 0.9 * torch.randn(600, 2, generator=g)
    A = torch.stack([noise.pair_flip(3, rate) for rate in (0.2, 0.4, 0.45, 0.3)])
    return LabelledData(x, y, crowd=Triplets(*noise.simulate(y, A, g, labels_per_item=1))), A


def draw_penalties() -> None:
    """The mean of the annotators' matrices: truth, and learned with and without the trace penalty."""
    data, A = blobs()
    figure, axes = panels(3, 2.7, 2.5)
    heat(axes[0], A.mean(0).numpy(), "truth (mean)")
    for place, weight in zip(axes[1:], (0.0, 0.1)):
        body = dubito.backbones.MLP(2, (64,), generator=torch.Generator().manual_seed(0))
        channel = channels.AnnotatorConfusion(4, 3)
        model = dubito.Model(body, heads.Point(64, 3), channel=channel)
        penalty = partial(penalties.trace, weight=weight)
        fast = partial(dubito.optim.adam, lr=0.01)
        dubito.fit(model, data, penalty=penalty, optimizer=fast, epochs=60, progress=False)
        found = channel.matrices().detach()
        error = metrics.confusion_error(A, found)
        heat(place, found.mean(0).numpy(), f"weight {weight:g}, error {error:.3f}")
    save(figure, "penalties")


def draw_estimates() -> None:
    """The transition matrix of asymmetric noise: truth, anchors, audit."""
    T = noise.asymmetric("mnist", 0.4)
    train, _ = digits(T)

    def learn(data: LabelledData) -> dubito.Model:
        return dubito.fit(network(), data, epochs=15, progress=False).model

    log_p = estimate.out_of_fold(learn, train, folds=5)
    figure, axes = panels(3, 3.2, 3.1)
    found = dubito.audit(train.labels.numpy(), log_p.exp().numpy(), bootstrap=0)
    anchors = estimate.anchor_transition(log_p.exp(), 99.0)
    for place, title, matrix in zip(axes, ("truth", "anchors", "audit"), (T, anchors, found.transition)):
        heat(place, np.asarray(matrix), title)
    save(figure, "estimates")


def draw_crowd() -> None:
    """Skills of simulated annotators with intervals, truth beside them."""
    g = torch.Generator().manual_seed(3)
    skills = [0.95, 0.9, 0.85, 0.75, 0.65, 0.5, 0.35]
    A = torch.stack([noise.flip_to_other(4, 1 - s) for s in skills])
    y = torch.randint(4, (400,), generator=g)
    item, who, label = noise.simulate(y, A, g, labels_per_item=3)
    votes = dubito.CrowdLabels(item, who, label)
    answer = crowd.aggregate(votes)
    facts = crowd.summarise(votes, answer)
    figure, axes = panels(1, 3.0, 5.0)
    rows = facts.skills
    for place, person in enumerate(rows):
        axes.plot([person.low, person.high], [place, place], color=COLOURS[0], linewidth=3)
        axes.plot(
            person.skill, place, "o", color=COLOURS[0], label="estimate, 95 % interval" if not place else None
        )
        true = skills[int(person.name)]
        axes.plot(true, place, "x", color=COLOURS[1], markersize=9, label="truth" if not place else None)
    axes.set(yticks=range(len(rows)), yticklabels=[f"annotator {p.name}" for p in rows], xlabel="skill")
    axes.invert_yaxis()
    axes.legend(fontsize=8, loc="upper left")
    save(figure, "crowd")


if __name__ == "__main__":
    for draw in (draw_procedures, draw_metrics, draw_penalties, draw_estimates, draw_crowd):
        draw()
