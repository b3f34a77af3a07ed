"""Expectation maximisation around a network: generalised, model-bootstrapped and cross-fitted.

The posteriors of the training items are a buffer of the procedure, so that checkpoints hold them. They change
only between epochs; within an epoch the network learns from them as soft labels.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from .._batches import Batch
from .._random import permutation
from ..data import LabelledData
from ..data._alike import as_first, together
from ..data._labelled import Triplets
from ..errors import DubitoError
from ..evaluate import predict
from ..model import Model, example_losses
from .plain import Draw, Plain, latent_source, weighted
from .posterior import count_matrices, log_evidence, posterior, vote_shares

MOST_FOLDS = 1000


class GeneralisedEM(Plain):
    """Alternate between training the network on posteriors and updating the posteriors by its predictions.

        start     q = share of each class among the item's labels
        repeat    theta: some epochs on  - sum_k q[n, k] log p(k | x_n)
                  A[r, k, j] = sum over labels j of r of q[n, k] / sum over labels of r of q[n, k]
                  q[n, k] ~ p(k | x_n) prod over labels of A[r, k, y]

    With one label per item this never leaves its start: q is the label, every A the identity, and the network
    learns the raw labels.

    Arguments:
        rounds: how often this is repeated, at most once per epoch; the epochs are divided among the rounds.
        strength: pseudo-labels per true class in A, see `posterior.count_matrices`; 0 in the paper.

    Buffers: `posteriors` ``(N, K)``, `matrices` ``(R, K, K)``. Items without labels teach nothing.

    Reference:
        tanno2019 alg. 2
        Raykar et al. 2010
    """

    posteriors: Tensor
    matrices: Tensor
    labelled: Tensor
    unread = ("target", "penalty")

    def __init__(self, model: Model, *, rounds: int = 10, strength: float = 0.0, **stages: Any) -> None:
        super().__init__(model, **stages)
        if model.channel is not None:
            raise DubitoError("EM counts its own matrices", remedy="leave out the model's channel")
        if rounds < 1 or not strength >= 0:
            raise DubitoError("rounds >= 1 and strength >= 0", got=f"{rounds} and {strength}")
        self.rounds, self.strength = rounds, strength

    def begin(self, data: LabelledData) -> None:
        """Posteriors from the votes, and matrices from the posteriors."""
        crowd, K = crowd_of(data), self.model.num_classes
        self.num_annotators = count_annotators(data)
        self.register_buffer("posteriors", vote_shares(crowd, len(data), K))
        self.register_buffer("matrices", count_matrices(self.posteriors, crowd, self.num_annotators))
        self.register_buffer("labelled", torch.bincount(crowd.item, minlength=len(data)) > 0)

    def begin_epoch(self, epoch: int, data: LabelledData) -> None:
        """At the end of a round: new matrices, new posteriors."""
        super().begin_epoch(epoch, data)
        if self.round_ends(epoch):
            self.update(data)

    def round_ends(self, epoch: int) -> bool:
        """Whether a round ends before this epoch."""
        done, before = (e * self.rounds // self.epochs for e in (epoch, epoch - 1))
        return epoch > 0 and done != before

    def end(self, data: LabelledData) -> None:
        """Update the posteriors after the last round too."""
        self.update(data)

    @torch.no_grad()
    def update(self, data: LabelledData) -> None:
        """Update matrices and posteriors, with the network's predictions on the training items."""
        self.absorb(crowd_of(data), self.predictions(data))

    @torch.no_grad()
    def absorb(self, crowd: Triplets, log_p: Tensor) -> None:
        """Matrices from `counted`, then posteriors from predictions and matrices."""
        known = self.counted(log_p)
        self.matrices.copy_(count_matrices(known, crowd, self.num_annotators, strength=self.strength))
        evidence = log_evidence(self.matrices, crowd, len(log_p))
        self.posteriors.copy_(posterior(self.log_prior(log_p, evidence), evidence))

    def predictions(self, data: LabelledData) -> Tensor:
        """log p(k | x_n) of every item, ``(N, K)``."""
        return predict(self.model, data).log_p

    def counted(self, log_p: Tensor) -> Tensor:
        """What the matrices are counted against, class probabilities ``(N, K)``: the last round's posteriors."""
        return self.posteriors

    def log_prior(self, log_p: Tensor, evidence: Tensor) -> Tensor:
        """The log-prior that the labels' evidence is added to: the network's predictions."""
        return log_p

    def forward(self, batch: Batch, draw: Draw) -> Tensor:
        """Mean cross-entropy of the network against the posteriors."""
        return self.soft_loss(self.model, batch, draw)

    def soft_loss(self, model: Model, batch: Batch, draw: Draw, purpose: str = "latent") -> Tensor:
        """Mean over the items of the step of the loss against their posteriors, 0 for items without labels."""
        losses = example_losses(
            model,
            model.latent(batch.x),
            self.posteriors[batch.positions],
            self.loss,
            generator=latent_source(model, draw, purpose),
        )
        losses = torch.where(self.labelled[batch.positions], losses, 0.0)
        return weighted(losses, batch).sum() / batch.divisor


class ModelBootstrappedEM(GeneralisedEM):
    """EM whose matrices are counted against the classes that the network predicts, not against the posteriors.

        c_n = argmax_k p(k | x_n)
        A[r, k, j] = share of label j among the labels that r gave to items with c_n = k
        prior_k = share of c_n = k
        q[n, k] ~ prior_k prod over labels of A[r, k, y]

    The network's probabilities do not enter the posterior. Because c_n can differ from the label, one label per
    item is enough to learn matrices.

    Arguments:
        class_prior: whether to use the prior; Khetan's released code does not.

    Reference:
        tanno2019 alg. 3
        Khetan et al. 2018
    """

    def __init__(self, model: Model, *, class_prior: bool = True, **options: Any) -> None:
        super().__init__(model, **options)
        self.class_prior = class_prior

    def counted(self, log_p: Tensor) -> Tensor:
        """The predicted classes."""
        return _hard(log_p)

    def log_prior(self, log_p: Tensor, evidence: Tensor) -> Tensor:
        """The logarithm of the share of each class among the predictions."""
        share = _hard(log_p).mean(0)
        if not self.class_prior:
            return torch.zeros_like(share)
        return share.clamp(min=torch.finfo(share.dtype).tiny).log()


class CrossFittedEM(GeneralisedEM):
    """EM whose posteriors never come from a network that was trained on the item.

    The items are cut into folds. Beside the network that is kept, one network per fold learns from the items of
    the other folds, and the posterior of an item uses the network of its own fold:

        q[n, k] ~ p_fold(n)(k | x_n) prod over labels of A[r, k, y]

    A network trained on an item repeats its labels, and EM would take the repetition for a second opinion. The
    matrices of rare annotators are drawn towards the crowd's (`strength`). If no item has two labels, matrices are
    counted against the predicted classes, as in model-bootstrapped EM, since the posteriors would never change.
    Predictions enter as they are: weighing them against the labels (`posterior.weigh_model`) did not predict
    held-out labels better (`benchmarks/labelme_choice.py`). Training costs folds + 1 times that of one network.

    Arguments:
        folds: number of folds.
        strength: pseudo-labels per true class in A.
        seed: keys the cut into folds.
    """

    fold: Tensor

    def __init__(
        self, model: Model, *, folds: int = 5, strength: float = 1.0, seed: int = 0, **options: Any
    ) -> None:
        super().__init__(model, strength=strength, **options)
        if not 2 <= folds <= MOST_FOLDS:
            raise DubitoError(
                "cross-fitting needs two folds and not too many",
                expected=f"2 to {MOST_FOLDS}, a network each",
                got=folds,
            )
        self.folds, self.seed, self.single = folds, seed, False
        self.others = nn.ModuleList(copy.deepcopy(model) for _ in range(folds))

    def begin(self, data: LabelledData) -> None:
        """Posteriors from the votes, and the cut into folds, which keeps items with the same input together."""
        super().begin(data)
        self.single = bool((torch.bincount(crowd_of(data).item) <= 1).all())
        order = permutation(len(data), self.seed, purpose="folds", device=data.device)
        self.register_buffer("fold", as_first(order % self.folds, together(data)))

    def forward(self, batch: Batch, draw: Draw) -> Tensor:
        """The losses of all networks; no parameter is shared, so each gets its own gradient."""
        total = self.soft_loss(self.model, batch, draw)
        share = 1 - 1 / self.folds  # of the items, which the network of a fold is trained on
        for f, other in enumerate(self.others):
            seen = self.fold[batch.positions] != f
            if bool(seen.any()):
                total = total + self.soft_loss(other, _part(batch, seen), draw, f"fold {f}") / share  # type: ignore[arg-type]
        return total

    @torch.no_grad()
    def predictions(self, data: LabelledData) -> Tensor:
        """log p of every training item by the network of its fold, ``(N, K)``."""
        found = torch.zeros_like(self.posteriors)
        for f, other in enumerate(self.others):
            rows = (self.fold == f).nonzero().flatten()
            if len(rows):
                found[rows] = predict(other, data.subset(rows)).log_p.to(found)  # type: ignore[arg-type]
        return found

    def counted(self, log_p: Tensor) -> Tensor:
        """The posteriors, or the predicted classes where no item has two labels."""
        return _hard(log_p) if self.single else self.posteriors


def _hard(log_p: Tensor) -> Tensor:
    return nn.functional.one_hot(log_p.argmax(-1), log_p.shape[-1]).to(log_p.dtype)


def _part(batch: Batch, keep: Tensor) -> Batch:
    """Some examples of a batch; labels and counts stay, as EM reads neither labels nor the size of the part."""
    weight = None if batch.weight is None else batch.weight[keep]
    return batch._replace(positions=batch.positions[keep], x=batch.x[keep], weight=weight)


def crowd_of(data: LabelledData) -> Triplets:
    """The labels of several annotators, without the missing ones (-1); data without annotators are refused."""
    if data.crowd is None:
        raise DubitoError(
            "this procedure learns from annotators", where=data.name, remedy="pass data with crowd labels"
        )
    given = data.crowd.label >= 0
    return data.crowd if bool(given.all()) else Triplets(*(part[given] for part in data.crowd))


def count_annotators(data: LabelledData) -> int:
    """R, the number of annotators: of their names, if they have any, else one more than the largest id."""
    crowd = crowd_of(data)
    return len(data.annotators) or (int(crowd.annotator.max()) + 1 if len(crowd.annotator) else 0)
