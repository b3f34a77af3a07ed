"""From the labels of a crowd to a consensus: one function, several models."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..errors import DubitoError, nearest
from . import _rules
from ._arguments import check_count, check_crowd, check_number, check_seed
from ._dependence import settle
from ._em import Base, Result, Shared, expectation_maximisation
from ._hierarchical import Hierarchical
from ._layout import Layout, lay_out
from ._simple import by_glad, by_vote
from ._warm import carry_over, changed_part, spread_out
from .labels import CrowdLabels
from .result import Aggregate, State, check_aggregate, company_of, diagonal_of, gold_codes

METHODS = ("auto", "hierarchical", "dawid-skene", "one-coin", "skill", "glad", "vote", "soft-vote")
_RULES: dict[str, tuple[type[Any], float]] = {
    # name: (rule, default strength of its prior)
    "hierarchical": (Hierarchical, 2.0),
    "dawid-skene": (_rules.Full, 2.0),
    "one-coin": (_rules.OneCoin, 2.0),
    "skill": (_rules.Skill, 1.0),
}
# Cells (labels x classes) up to which double precision costs nothing worth saving.
DOUBLE = 1 << 22


def aggregate(
    crowd: CrowdLabels,
    method: str = "auto",
    *,
    strength: float | None = None,
    gold: Any = None,
    start: Aggregate | None = None,
    iterations: int = 200,
    tolerance: float = 3e-6,
    seed: int = 0,
    dtype: torch.dtype | None = None,
    distributed: bool = False,
) -> Aggregate:
    """The consensus of a crowd, its annotators' matrices, and how sure we are.

    Models, from loose to rigid. All but the votes give item n the posterior
    ``q[n, k] ~ prior_k prod_r A[r, k, y_nr]``:

    * ``"hierarchical"``: a matrix per annotator, drawn towards the annotator's skill over the crowd's pattern of
      errors by as much as the crowd itself shows to be right (variational Bayes). ``"auto"`` is this model: with
      many labels it is as free as Dawid-Skene, with five per annotator as safe as the vote. Its last step allows
      for labels of one item that err together (`Aggregate.dependence`). It was chosen without truth, as the model
      here whose worst case is best in predicting held-out labels, over families of simulated crowds
      (`benchmarks/crowd_choice.py`, `crowd_confirm.py`). `compare` judges models on a crowd of your own.
    * ``"dawid-skene"``: a matrix per annotator, `strength` pseudo-labels per true class spread like the
      crowd's pooled matrix (MAP); ``strength=0`` is maximum likelihood.
    * ``"skill"``: an ability per annotator and an easiness per class over one pattern of errors.
    * ``"one-coin"``: a skill per annotator, errors uniform.
    * ``"glad"``: ability of annotators against difficulty of items.
    * ``"vote"`` and ``"soft-vote"``: counts. The skill is the agreement with the consensus. Ties of a vote are
      drawn with `seed`; the tied classes share the probability evenly.

    Arguments:
        crowd: the labels.
        strength: of the prior, by default 2, and 1 for "skill": pseudo-labels per true class ("dawid-skene") or per
            annotator ("one-coin"), or the precision of abilities ("skill"). 0: none ("hierarchical" needs one).
        gold: known classes, ``{item: class}`` or ``(items, classes)``; they are kept and teach the matrices.
        start: an earlier aggregate of the same classes, to begin from its matrices instead of the vote.
        iterations, tolerance: stop when a step gains less than `tolerance` per label.
        dtype: of the posteriors; float64 up to 2^22 labels x classes, float32 above, unless given. Sums are
            float64 always.
        distributed: labels are sharded by item over the processes of `torch.distributed`; all know the same
            annotators and classes. Matrices and skills come out for the whole, items for the shard.

    Reference:
        tanno2019 alg. 2
        Dawid and Skene 1979; Whitehill et al. 2009 (GLAD); Kim and Ghahramani 2012 (variational form)

    Example:
        >>> crowd = CrowdLabels.from_dense([[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0], [0, 0, 1]])
        >>> result = aggregate(crowd)
        >>> result.labels.tolist(), int(result.skills.argmin())
        ([0, 1, 0, 1, 0], 2)
    """
    _check(crowd, method, strength, iterations, tolerance, dtype, start, seed)
    known = gold_codes(gold, crowd.item_ids, crowd.classes)
    known = None if known is None else known.to(crowd.item.device)
    name, why = (method, "asked for") if method != "auto" else ("hierarchical", _why(crowd))
    dtype = dtype or (torch.float64 if len(crowd) * crowd.num_classes <= DOUBLE else torch.float32)
    if name in ("vote", "soft-vote", "glad"):
        if distributed or start is not None:
            raise DubitoError(f"method {name!r} has no start and no shards", remedy="use a matrix model")
        if name == "glad":
            return by_glad(crowd, dtype, iterations, tolerance, known)
        return by_vote(crowd, name, seed, known, dtype)
    rule, default = _RULES[name]
    s = default if strength is None else float(strength)
    present = _same_everywhere(crowd) if distributed else None
    layout = lay_out(crowd, dtype=dtype, gold=known, present=present)
    shared = Shared(distributed)
    result = expectation_maximisation(
        layout,
        rule(s),
        pseudo=1.0 if s else 0.0,
        iterations=iterations,
        tolerance=tolerance,
        start=None if start is None else carry_over(start, crowd, layout, rule(s)),
        shared=shared,
    )
    if name == "hierarchical":
        result = settle(layout, rule(s), result, shared=shared)
    return _package(crowd, layout, result, rule(s), name, why, s, gold=known, distributed=distributed)


def update(
    previous: Aggregate, crowd: CrowdLabels, *, iterations: int = 20, tolerance: float = 3e-6
) -> Aggregate:
    """Take in labels that were appended to the crowd, or replaced, at a cost that follows the new labels.

    Items whose labels changed are worked out again with all their labels, against the counts of the others,
    which keep their posteriors; known classes stay known; matrices, skills and class prior follow. `trace` and
    `log_likelihood` are those of the touched items. For the exact answer on all items use
    ``aggregate(crowd, start=previous)``.

    Arguments:
        previous: aggregate of the crowd as it was (a matrix model).
        crowd: the same crowd after `CrowdLabels.append`; labels may be replaced (``duplicates="last"``) or missing.

    Example:
        >>> crowd = CrowdLabels.from_dense([[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0]])
        >>> before = aggregate(crowd)
        >>> after = update(before, crowd.append([4, 4], [0, 1], [1, 1]))
        >>> after.labels.tolist()
        [0, 1, 0, 1, 1]
    """
    check_aggregate(previous)
    check_crowd(crowd)
    check_count(iterations, "iterations")
    check_number(tolerance, "tolerance")
    if previous.method not in _RULES:
        raise DubitoError(f"method {previous.method!r} has nothing to update", remedy="aggregate again")
    part = changed_part(previous, crowd)
    if part is None:
        return previous
    s = previous.state.strength
    rule = _RULES[previous.method][0](s)
    known = part.known()
    layout = lay_out(
        part.crowd,
        dtype=previous.probabilities.dtype,
        gold=None if known is None else known[part.touched],
        present=part.present,
    )
    base, shared = Base(part.rest(layout), part.items), Shared(False)
    result = expectation_maximisation(
        layout,
        rule,
        pseudo=1.0 if s else 0.0,
        iterations=iterations,
        tolerance=tolerance,
        start=carry_over(previous, crowd, layout, rule),
        base=base,
        shared=shared,
    )
    if previous.method == "hierarchical":
        rho = previous.dependence
        result = settle(layout, rule, result, shared=shared, base=base, rho=rho)
    whole = replace(
        result.sums,
        counts=result.sums.counts + base.counts,
        squares=result.sums.squares + part.rest_squares(layout),
        prior=result.sums.prior + base.prior,
        posterior=spread_out(previous, part, result.sums.posterior),
    )
    result = replace(result, sums=whole)
    return _package(
        crowd, layout, result, rule, previous.method, "update of an earlier aggregate", s, gold=known
    )


def _why(crowd: CrowdLabels) -> str:
    each = len(crowd) / max(crowd.num_annotators, 1)
    per_item = len(crowd) / max(crowd.num_items, 1)
    return (
        f"the default for every crowd: {per_item:.1f} labels per item and {each:.0f} per annotator decide, by the "
        "evidence of the labels alone, how far matrices may differ between annotators"
    )


def _package(
    crowd: CrowdLabels,
    layout: Layout,
    result: Result,
    rule: Any,
    name: str,
    why: str,
    strength: float,
    *,
    gold: Tensor | None,
    distributed: bool = False,
) -> Aggregate:
    posterior = result.sums.posterior
    bare = replace(layout, blocks=(), gold=None)
    company, told = company_of(crowd, gold, distributed=distributed)
    state = State(
        layout=bare,
        fitted=result.fitted,
        counts=result.sums.counts,
        squares=result.sums.squares,
        items=result.sums.prior,
        given=(crowd.item, crowd.annotator, crowd.label),
        strength=strength,
        company=company,
        told=told,
        gold=gold,
    )
    return Aggregate(
        items=crowd.item_ids,
        annotators=crowd.annotator_ids,
        classes=crowd.classes,
        codes=posterior.argmax(1),
        probabilities=posterior,
        skills=diagonal_of(bare, result.fitted).mean(1),
        class_prior=result.prior,
        log_likelihood=result.log_likelihood,
        trace=torch.tensor(result.trace, dtype=torch.float64),
        objective="log-likelihood" if strength == 0 and name != "hierarchical" else rule.objective,
        method=name,
        why=why,
        converged=result.converged,
        state=state,
        dependence=result.dependence,
    )


def _check(
    crowd: CrowdLabels,
    method: str,
    strength: float | None,
    iterations: int,
    tolerance: float,
    dtype: torch.dtype | None,
    start: Aggregate | None,
    seed: int,
) -> None:
    check_crowd(crowd)
    if method not in METHODS:
        raise DubitoError(f"unknown method {method!r}", remedy=nearest(str(method), METHODS))
    if strength is not None:
        check_number(strength, "strength")
    check_count(iterations, "iterations")
    check_number(tolerance, "tolerance")
    check_seed(seed)
    if strength is not None and not (strength >= 0 and strength < float("inf")):
        raise DubitoError("strength must be a finite number", expected=">= 0", got=strength)
    if strength == 0 and method in ("auto", "hierarchical"):
        raise DubitoError("the hierarchical model needs a prior", expected="strength > 0", got=strength)
    if not tolerance >= 0:
        raise DubitoError("tolerance must not be negative", expected=">= 0", got=tolerance)
    if dtype not in (None, torch.float32, torch.float64):
        raise DubitoError("dtype must be float32 or float64", got=dtype)
    if start is not None:
        check_aggregate(start)
    if start is not None and start.classes.tolist() != crowd.classes.tolist():
        raise DubitoError(
            "the start has other classes", expected=crowd.classes.tolist(), got=start.classes.tolist()
        )


def _same_everywhere(crowd: CrowdLabels) -> Tensor:
    """All processes must number annotators and classes alike; then they share the union of their keys."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        raise DubitoError(
            "distributed=True without a process group", remedy="torch.distributed.init_process_group"
        )
    text = repr((crowd.annotator_ids.tolist(), crowd.classes.tolist())).encode()
    mark = int.from_bytes(hashlib.sha256(text).digest()[:7], "big")
    device = crowd.item.device
    low, high = torch.tensor([mark], device=device), torch.tensor([mark], device=device)
    dist.all_reduce(low, op=dist.ReduceOp.MIN)
    dist.all_reduce(high, op=dist.ReduceOp.MAX)
    if int(low) != int(high):
        raise DubitoError(
            "processes know different annotators or classes",
            where=f"rank {dist.get_rank()}",
            remedy="pass the same annotator_ids=[...] and classes=[...] to CrowdLabels everywhere",
        )
    seen = torch.zeros(crowd.num_annotators * crowd.num_classes, dtype=torch.uint8, device=device)
    seen[crowd.annotator.long() * crowd.num_classes + crowd.label] = 1
    dist.all_reduce(seen, op=dist.ReduceOp.MAX)
    return seen.bool()
