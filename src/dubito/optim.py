"""The papers' optimisers and schedules, as functions that the config of a run can name.

An optimiser is a function of named parameters; a schedule is a pure function of the step that returns a factor on
the learning rate. Both are importable functions or partials of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim.adam import adam as adam_update

from .errors import DubitoError

Named = Iterable[tuple[str, nn.Parameter]]
DECAYS = ("all", "matrices", "networks")
Made = TypeVar("Made", bound=torch.optim.Optimizer)


def adam(
    parameters: Named,
    *,
    lr: float | Tensor = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-7,
    weight_decay: float = 0.0,
    decay: str = "all",
    **options: Any,
) -> torch.optim.Adam:
    """Adam with the papers' eps of 1e-7 (the Keras default), all parameters in one kernel where torch has it."""
    found = groups(parameters, weight_decay, decay)
    return _made(torch.optim.Adam, found, lr=lr, betas=betas, eps=eps, **_fused(found, options))


def row_adam(
    parameters: Named,
    *,
    lr: float | Tensor = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-7,
    weight_decay: float = 0.0,
    decay: str = "all",
) -> RowAdam:
    """Adam for models with row-sparse gradients (thousands of annotators): see `RowAdam`."""
    found = groups(parameters, weight_decay, decay)
    return _made(RowAdam, found, lr=lr, betas=betas, eps=eps, **_fused(found, {}))


def sgd(
    parameters: Named,
    *,
    lr: float | Tensor = 0.01,
    momentum: float = 0.9,
    nesterov: bool = True,
    weight_decay: float = 0.0,
    decay: str = "all",
    **options: Any,
) -> torch.optim.SGD:
    """SGD with Nesterov momentum; with ``momentum=0, nesterov=False`` and one batch it is gradient descent."""
    found = groups(parameters, weight_decay, decay)
    return _made(
        torch.optim.SGD, found, lr=lr, momentum=momentum, nesterov=nesterov, **_fused(found, options)
    )


def lars(
    parameters: Named,
    *,
    lr: float = 1.0,
    momentum: float = 0.9,
    weight_decay: float = 1e-4,
    trust: float = 1e-3,
    decay: str = "matrices",
) -> LARS:
    """Layer-wise adaptive rates: see `LARS`."""
    return _made(LARS, groups(parameters, weight_decay, decay), lr=lr, momentum=momentum, trust=trust)


def _made(kind: type[Made], found: list[dict[str, Any]], **options: Any) -> Made:
    """The optimiser; settings that torch refuses become one sentence."""
    try:
        return kind(found, **options)
    except (ValueError, IndexError, RuntimeError) as error:
        raise DubitoError("the optimiser refuses its settings", where=kind.__name__, got=str(error)) from None


def groups(parameters: Named, weight_decay: float, decay: str) -> list[dict[str, Any]]:
    """Parameter groups with weight decay on all parameters, or on some.

    Arguments:
        decay: ``"all"``; ``"matrices"``, those with two or more axes; ``"networks"``, matrices except those of the
            channel, which weight decay would pull towards uniform confusion.
    """
    if decay not in DECAYS:
        raise DubitoError("unknown rule for weight decay", expected=" or ".join(DECAYS), got=repr(decay))
    if not weight_decay >= 0:
        raise DubitoError("weight decay must be at least 0", got=weight_decay)
    named = [(name, p) for name, p in parameters if p.requires_grad]
    if decay == "all":
        return [{"params": [p for _, p in named], "weight_decay": weight_decay}]
    skipped = "channel" if decay == "networks" else None
    chosen = [p.dim() > 1 and skipped not in name.split(".") for name, p in named]
    matrices = [p for (_, p), yes in zip(named, chosen) if yes]
    others = [p for (_, p), yes in zip(named, chosen) if not yes]
    found = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return [group for group in found if group["params"]]


def _fused(found: list[dict[str, Any]], options: dict[str, Any]) -> dict[str, Any]:
    """The options, with ``fused=True`` where nothing else is asked for and every parameter allows it."""
    named = {"fused", "foreach", "differentiable"} & options.keys()
    devices = {p.device.type for group in found for p in group["params"]}
    floating = all(p.is_floating_point() for group in found for p in group["params"])
    if named or not floating or not devices <= {"cpu", "cuda"}:
        return options
    return {**options, "fused": True}


class RowAdam(torch.optim.Adam):
    """Adam that, for row-sparse gradients, updates only the rows that have one.

    Dense gradients are treated as by Adam. For a sparse one, only the rows in it are read and written: their
    moments decay at the steps in which they occur, and weight decay does not apply. If every row occurs in every
    step, this is Adam.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One update of every parameter that has a gradient, and of the rows that have one."""
        sparse = []
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None and p.grad.is_sparse:
                    sparse.append((group, p, _rows_once(p.grad)))
                    p.grad = None
        found = super().step(closure)
        for group, p, gradient in sparse:
            self._rows(group, p, gradient)
            p.grad = gradient
        return found

    def _rows(self, group: dict[str, Any], p: nn.Parameter, gradient: Tensor) -> None:
        state, (beta1, beta2) = self.state[p], group["betas"]
        if not state:
            place = p.device if group["fused"] else None
            state["step"] = torch.tensor(0.0, device=place)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        tables = (p, state["exp_avg"], state["exp_avg_sq"])
        rows, values = gradient._indices()[0], gradient._values()
        taken = [table.index_select(0, rows) for table in tables]
        # The dense update on a copy of the rows.
        adam_update(
            [taken[0]], [values], [taken[1]], [taken[2]], [], [state["step"]],
            fused=group["fused"], foreach=False, amsgrad=False, maximize=False, weight_decay=0.0,
            beta1=beta1, beta2=beta2, lr=group["lr"], eps=group["eps"],
        )  # fmt: skip
        for table, new in zip(tables, taken):
            table.flatten(1).index_copy_(0, rows, new.flatten(1))


def _rows_once(gradient: Tensor) -> Tensor:
    """A sparse gradient in which every row occurs once.

    On the CPU, rows that already rise are returned as they are: autograd drops the mark that they are coalesced,
    and the comparison is cheaper than sorting them again.
    """
    rows = gradient._indices()[0]
    rises = gradient.device.type == "cpu" and bool((rows[1:] > rows[:-1]).all())
    return gradient if rises else gradient.coalesce()


class LARS(torch.optim.Optimizer):
    """Momentum SGD whose step is scaled per tensor by trust |w| / (|g| + wd |w|).

    Arguments:
        trust: the trust coefficient. Tensors with zero norm use the plain rate, as do vectors (biases, scales of
            normalisation) without weight decay.

    Reference:
        lukasik2020 sec. B.2
        You, Gitman & Ginsburg 2017
    """

    def __init__(self, params: Any, lr: float = 1.0, momentum: float = 0.9, trust: float = 1e-3) -> None:
        if not min(lr, momentum, trust) >= 0 or not math.isfinite(lr + momentum + trust):
            got = f"{lr}, {momentum} and {trust}"
            raise DubitoError("lr, momentum and trust must be at least 0", got=got)
        super().__init__(params, {"lr": lr, "momentum": momentum, "trust": trust, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                update = p.grad + group["weight_decay"] * p
                if p.dim() > 1 or group["weight_decay"] > 0:
                    ratio = group["trust"] * p.norm() / (p.grad.norm() + group["weight_decay"] * p.norm())
                    usable = (p.norm() > 0) & (p.grad.norm() > 0)
                    update = update * torch.where(usable, ratio, 1.0)
                buffer = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
                buffer.mul_(group["momentum"]).add_(update, alpha=group["lr"])
                p.sub_(buffer)


def milestones(step: int, steps: int, *, at: tuple[int, ...], factor: float = 0.1) -> float:
    """factor ** (number of milestones passed), milestones in steps.

    Example:
        >>> [milestones(s, 100, at=(30, 60)) for s in (0, 30, 99)]
        [1.0, 0.1, 0.010000000000000002]
    """
    return float(factor ** sum(step >= milestone for milestone in at))


def cosine(step: int, steps: int, *, warmup: int = 0) -> float:
    """Linear warm-up over `warmup` steps, then half a cosine down to zero."""
    _check_steps(step, steps)
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def polynomial(step: int, steps: int, *, power: float = 0.9) -> float:
    """(1 - step / steps) ** power, the usual schedule of segmentation."""
    _check_steps(step, steps)
    if not power >= 0:
        raise DubitoError("a rate cannot grow without bound", where="power", expected="0 or more", got=power)
    return float((1 - min(1.0, step / steps)) ** power)


def _check_steps(step: int, steps: int) -> None:
    if step < 0 or steps < 1:
        raise DubitoError("no such step", expected="0 <= step and steps >= 1", got=(step, steps))
