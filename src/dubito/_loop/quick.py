"""Fused Adam and backward on the CPU without the bookkeeping around them, which slows small networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

# Not part of torch's public interface: where it is missing, `Tensor.backward` does the same.
_ENGINE: Any = getattr(torch.autograd.Variable, "_execution_engine", None)
_ONE = torch.ones(())
# Options under which Adam does something other than the one kernel called here.
_OTHERWISE = ("amsgrad", "maximize", "capturable", "differentiable", "decoupled_weight_decay")


class _Group(NamedTuple):
    options: dict[str, Any]
    parameters: list[Tensor]
    means: list[Tensor]
    squares: list[Tensor]
    steps: list[Tensor]
    counter: Tensor  # all steps in one tensor


class QuickAdam:
    """Steps of a fused `torch.optim.Adam`: the same kernel on the same state, so the same bits.

    The state stays the optimiser's own and can be saved at any time. Unusual cases (the first step, a parameter
    without a gradient, hooks) go through the optimiser.
    """

    def __init__(self, optimizer: torch.optim.Adam) -> None:
        self.optimizer, self.groups = optimizer, list[_Group]()
        self._unrecorded = torch.no_grad()

    def __call__(self) -> None:
        """One update; gradients are not recorded."""
        optimizer = self.optimizer
        if not self.groups or optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
            optimizer.step()
            self.groups = self.groups or self._collected()
            self._counts = [len(group.parameters) for group in self.groups]
            return
        gradients = [[p.grad for p in group.parameters if p.grad is not None] for group in self.groups]
        if [len(several) for several in gradients] != self._counts:
            optimizer.step()
            return
        with self._unrecorded:
            for group, several in zip(self.groups, gradients):
                self._update(group, several)

    def _update(self, group: _Group, gradients: list[Tensor]) -> None:
        options = group.options
        beta1, beta2 = options["betas"]
        group.counter.add_(1)
        torch._fused_adam_(
            group.parameters, gradients, group.means, group.squares, [], group.steps, lr=options["lr"],
            beta1=beta1, beta2=beta2, weight_decay=options["weight_decay"], eps=options["eps"], amsgrad=False,
            maximize=False,
        )  # fmt: skip

    def _collected(self) -> list[_Group]:
        """The state of all parameters, once they all have one."""
        state, found = self.optimizer.state, []
        for options in self.optimizer.param_groups:
            parameters = options["params"]
            if not all("step" in state[p] for p in parameters):
                return []
            counter = torch.stack([state[p]["step"] for p in parameters])
            steps = list(counter.unbind())
            for p, step in zip(parameters, steps):
                state[p]["step"] = step
            means, squares = ([state[p][name] for p in parameters] for name in ("exp_avg", "exp_avg_sq"))
            found.append(_Group(options, parameters, means, squares, steps, counter))
        return found


def quick(optimizer: torch.optim.Optimizer) -> Callable[[], Any]:
    """A function that takes the optimiser's step, by a faster way if there is one."""
    groups = optimizer.param_groups
    ordinary = (
        type(optimizer) is torch.optim.Adam
        and "step" not in vars(optimizer)
        and all(group["fused"] and not any(group.get(o) for o in _OTHERWISE) for group in groups)
        and all(isinstance(group["lr"], float) for group in groups)
        and all(p.device.type == "cpu" and p.dtype == torch.float32 for g in groups for p in g["params"])
    )
    return QuickAdam(optimizer) if ordinary else optimizer.step  # type: ignore[arg-type]


def backward(total: Tensor) -> None:
    """``total.backward()``; of a number on the CPU straight to the engine, with the same gradients."""
    ordinary = type(total) is Tensor and not total.dim() and total.dtype == torch.float32
    if _ENGINE is None or not ordinary or total.device.type != "cpu":
        total.backward()
    else:
        _ENGINE.run_backward(
            (total,), (_ONE,), False, False, (), allow_unreachable=True, accumulate_grad=True
        )
