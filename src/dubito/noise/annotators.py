"""Simulated annotators as confusion matrices A[r, true, observed] that do not look at the input."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ..errors import DubitoError, nearest
from ._checks import count, probability, stochastic, torch_generator

# How often a group of annotators is drawn again before dominance is given up.
ATTEMPTS = 1000

KINDS = ("tanno", "tanno-resample", "khetan", "khetan-classwise")

# CIFAR-10 classes that look alike: airplane/ship, automobile/truck, bird/frog, cat/dog, deer/horse.
SIMILAR = {0: 8, 8: 0, 1: 9, 9: 1, 2: 6, 6: 2, 3: 5, 5: 3, 4: 7, 7: 4}


def is_dominant(A_mean: Tensor) -> bool:
    """Whether right labels outnumber each single confusion among the labels that read the same.

    ``A[c, c] > A[i, c]`` for all c and i != c: a condition on *columns* of A[true, observed], not the usual one on
    row sums. For the mean over annotators it makes the matrices identifiable.

    Arguments:
        A_mean: (K, K), rows sum to one; for a group take ``A.mean(0)``.

    Reference:
        tanno2019 lemma 1, theorem 1

    Example:
        >>> is_dominant(torch.tensor([[0.9, 0.1], [0.4, 0.6]]))
        True
    """
    A = stochastic(A_mean, "A_mean", 2)
    own = torch.eye(len(A), dtype=torch.bool)
    return bool((A.diagonal() > A.masked_fill(own, 0.0).amax(0)).all())


def pairwise_flippers(
    num_annotators: int,
    num_classes: int,
    skill: float,
    generator: torch.Generator,
    *,
    dominant: bool = False,
    jitter: float = 0.01,
) -> Tensor:
    """Annotators who are right with probability p_r and else give one wrong class, fixed for each true class.

    ``A[r, i, i] = p_r``, ``A[r, i, t_r(i)] = 1 - p_r`` with ``p_r ~ Normal(skill, jitter)`` clipped to [0, 1] and
    ``t_r(i)`` uniform over the other classes.

    When m of R annotators share a (class, target) pair the mean is dominant only above ``m / (R + m)``, so that
    a group of five at skill 0.3 is dominant in one draw of three.

    Arguments:
        num_annotators: R.
        num_classes: K, at least 2.
        skill: the mean probability of a right label.
        dominant: draw groups until the mean matrix is dominant (see `is_dominant`).
        jitter: standard deviation of the annotators' skills.

    Returns:
        (R, K, K) in float64.

    Reference:
        tanno2019 fig. 8

    Example:
        >>> A = pairwise_flippers(5, 10, 0.35, torch.Generator().manual_seed(0), dominant=True)
        >>> A.shape, is_dominant(A.mean(0))
        (torch.Size([5, 10, 10]), True)
    """
    R, K = count(num_annotators, "num_annotators", 1), count(num_classes, "num_classes", 2)
    torch_generator(generator)
    for _ in range(ATTEMPTS if dominant else 1):
        p = _skills(R, skill, jitter, generator)
        shift = torch.randint(1, K, (R, K), generator=generator, device=generator.device).cpu()
        target = (torch.arange(K) + shift) % K
        A = torch.zeros(R, K, K, dtype=torch.float64)
        A.scatter_(-1, target.unsqueeze(-1), (1 - p).view(R, 1, 1).expand(R, K, 1))
        A += p.view(R, 1, 1) * torch.eye(K, dtype=torch.float64)
        if not dominant or is_dominant(A.mean(0)):
            return A
    raise DubitoError(
        f"no dominant group of pairwise flippers in {ATTEMPTS} draws",
        got=f"skill {skill} with {R} annotators and {K} classes",
        remedy=f"raise the skill above {2 / (R + 2):.3f} or pass dominant=False",
    )


def hammer_spammers(
    num_annotators: int,
    num_classes: int,
    skill: float,
    generator: torch.Generator,
    *,
    kind: Literal["tanno", "tanno-resample", "khetan", "khetan-classwise"] = "tanno",
    jitter: float = 0.01,
) -> Tensor:
    """Annotators between a hammer, who is always right, and a spammer, who guesses.

    | kind | matrix |
    |---|---|
    | `tanno` | diagonal ``p_r ~ Normal(skill, jitter)`` clipped to [0, 1], all else ``(1 - p_r)/(K - 1)`` |
    | `tanno-resample` | right with probability p_r, else uniform over all: diagonal ``p_r + (1 - p_r)/K`` |
    | `khetan` | the identity with probability `skill`, else uniform with 0.01 added on the diagonal, normalised |
    | `khetan-classwise` | the same choice for each class; a guessing row is ones plus U(.1, .11) on the diagonal |

    Arguments:
        num_annotators: R.
        num_classes: K, at least 2.
        skill: mean probability of a right label (tanno), or probability of a hammer (khetan).
        kind: one of the definitions above.
        jitter: standard deviation of the annotators' skills; used by the tanno kinds.

    Returns:
        (R, K, K) in float64.

    Reference:
        tanno2019 fig. 8
        Khetan et al. 2018

    Example:
        >>> hammer_spammers(1, 3, 0.8, torch.Generator().manual_seed(0), jitter=0.0)[0, 0]
        tensor([0.8000, 0.1000, 0.1000], dtype=torch.float64)
    """
    R, K = count(num_annotators, "num_annotators", 1), count(num_classes, "num_classes", 2)
    torch_generator(generator)
    eye = torch.eye(K, dtype=torch.float64)
    if kind in ("tanno", "tanno-resample"):
        p = _skills(R, skill, jitter, generator).view(R, 1, 1)
        rest = (1 - eye) / (K - 1) if kind == "tanno" else torch.full((K, K), 1 / K, dtype=torch.float64)
        return p * eye + (1 - p) * rest
    gamma = probability(skill, "skill")
    if kind == "khetan":
        hammer = _uniform((R, 1, 1), generator) < gamma
        return torch.where(hammer, eye, (1 / K + 0.01 * eye) / 1.01)
    if kind == "khetan-classwise":
        hammer = _uniform((R, K, 1), generator) < gamma
        extra = 0.1 + 0.01 * _uniform((R, K, 1), generator)
        return torch.where(hammer, eye, (1 + extra * eye) / (K + extra))
    raise DubitoError(f"unknown kind of hammer-spammer {kind!r}", remedy=nearest(str(kind), KINDS))


def cifar10_annotators(generator: torch.Generator | None = None) -> Tensor:
    """Four annotators of CIFAR-10 who are right 45 % of the time, with a dominant mean matrix.

    1. right 60 %, else any other class;
    2. right 60 %, else the class that looks alike (airplane/ship, automobile/truck, bird/frog, cat/dog,
       deer/horse);
    3. right 60 %, else one of the two neighbouring class numbers;
    4. an adversary with permuted class names, never right.

    The paper shows its matrices in a picture only: this is our construction from its description, so levels are
    not comparable digit by digit.

    Arguments:
        generator: draws the adversary's permutation among those that avoid the confusions of annotators 2 and 3;
            without it the permutation is c -> c + 5 mod 10.

    Returns:
        (4, 10, 10) in float64.

    Reference:
        tanno2019 table 1, fig. 2

    Example:
        >>> A = cifar10_annotators()
        >>> A.diagonal(dim1=1, dim2=2).mean().item(), is_dominant(A.mean(0))
        (0.45, True)
    """
    classes = torch.arange(10)
    A = torch.zeros(4, 10, 10, dtype=torch.float64)
    A[0] = 0.4 / 9
    for c in range(10):
        A[1, c, SIMILAR[c]] = 0.4
        A[2, c, (c + 1) % 10] = A[2, c, (c - 1) % 10] = 0.2
    A[:3, classes, classes] = 0.6
    A[3, classes, _adversary(generator)] = 1.0
    return A


def _adversary(generator: torch.Generator | None) -> Tensor:
    classes = torch.arange(10)
    if generator is None:
        return (classes + 5) % 10
    similar = torch.tensor([SIMILAR[c] for c in range(10)])
    while True:
        other = torch.randperm(10, generator=torch_generator(generator), device=generator.device).cpu()
        step = (other - classes) % 10
        if not bool(((step == 0) | (step == 1) | (step == 9) | (other == similar)).any()):
            return other


def _skills(R: int, skill: float, jitter: float, generator: torch.Generator) -> Tensor:
    mean = probability(skill, "skill")
    if not 0.0 <= jitter < float("inf"):
        raise DubitoError("jitter must be a standard deviation", expected="0 or more", got=jitter)
    normal = torch.randn(R, generator=generator, device=generator.device, dtype=torch.float64).cpu()
    return (mean + jitter * normal).clamp(0.0, 1.0)


def _uniform(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float64).cpu()
