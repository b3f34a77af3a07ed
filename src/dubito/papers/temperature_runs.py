"""The runs of `temperature` on one GPU: a stack for each number of samples, all temperatures and seeds together.

Unlike the stacks of the papers' tables, every example has draws of its own, as in the plain loop: with one sample
that is the variance which the study is about. Predictions are integrated class by class with the fixed rule, which
is held against the refined one on some examples of each run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from .. import fast
from .._lanes.replay import Noise
from ..evaluate import scores
from ..integrals.fixed import fixed_log_likelihood
from ..integrals.quadrature import solve
from . import prepare
from .configs import Config, alike
from .results import Result, finished
from .stacked import StackedRuns, rows_of
from .streams import side_by_side
from .temperature import PAPER

_CHECKED = 50  # test examples of each run on which the fixed rule is checked


def stackable(config: Config) -> bool:
    """Whether a config belongs to the study."""
    return config.paper == PAPER and config.network in ("lenet5", "cnn4", "mlp")


class OwnDraws(fast.Stack):
    """A stack whose examples have draws of their own, and none where the integral is exact."""

    def _noise(self, examples: int) -> Noise:
        if self.static.get("integration") != "mc":
            return {}
        shape = len(self.models), self.static["samples"], examples, self.models[0].num_classes
        return {"latent": torch.randn(shape, device=self.inputs.device)}

    @torch.no_grad()
    def latents(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """mean, scale ``(R, n, K)`` and temperature ``(R, n, 1)`` for rows ``(R, n)`` of the inputs."""
        mean, scale = torch.vmap(self._latent)(self._state(), self._inputs(rows))
        tau = self.hyper.get("temperature", torch.ones(len(mean), device=mean.device))
        return mean, scale, tau[:, None, None].expand(*mean.shape[:2], 1)

    def _latent(self, state: dict[str, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = functional_call(_LatentOf(self.template), state, (x,))
        return found


class _LatentOf(nn.Module):
    """Mean and scale of a model's latent, 0 where it has no noise."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Of a batch."""
        latent = self.model.latent(x)  # type: ignore[operator]
        return latent.mean, torch.zeros_like(latent.mean) if latent.scale is None else latent.scale


class TemperatureRuns(StackedRuns):
    """Configs that differ in temperature and seed only, trained together and judged once at the end."""

    Stack = OwnDraws
    stack: OwnDraws

    def parameters(self, config: Config) -> dict[str, Any]:
        """With the same integral, where it is exact, as a step that can be mapped."""
        params = super().parameters(config)
        return {**params, "integration": "fixed"} if params.get("integration") == "auto" else params

    def steps(self) -> Iterator[None]:
        """Train, then score."""
        self.found: list[dict[str, float]] = [{} for _ in self.configs]
        yield from self.train(self.configs[0].epochs)

    def results(self) -> list[Result]:
        """One result per config; the seconds of the stack are shared evenly."""
        share = self.seconds / len(self.configs)
        return [
            finished(c, found, share, hardware=self.hardware) for c, found in zip(self.configs, self.found)
        ]

    def score(self, epoch: int) -> None:
        """By the fixed rule, and how far that is off on some examples."""
        runs, test = len(self.configs), self.data[0].test
        at = rows_of(test).to(self.device) + self.offset
        log_p = torch.cat([self._log_probs(part.expand(runs, -1)) for part in at.split(512)], 1)
        clean = (test.labels if test.clean is None else test.clean).to(self.device)
        for i, (of_run, parts) in enumerate(zip(log_p, self.data)):
            self._note(i, "test", scores(of_run, clean))
            self._note(i, "noisy_test", scores(of_run, parts.test.labels.to(self.device)))
        valid = [p.valid for p in self.data if p.valid is not None]
        if valid:
            rows = torch.stack([rows_of(v) for v in valid]).to(self.device)
            labels = torch.stack([v.labels for v in valid]).to(self.device)
            split = zip(rows.split(1024, 1), labels.split(1024, 1))
            own = torch.cat([self._of_labels(*part) for part in split], 1)
            for i, mean in enumerate(own.double().mean(1).tolist()):
                self.found[i]["validation_log_likelihood"] = mean
        self._check_rule(at[:_CHECKED].expand(runs, -1))

    def _log_probs(self, rows: Tensor) -> Tensor:
        """log p of all classes, ``(R, n, K)``."""
        inputs = self.stack.latents(rows)
        classes = inputs[0].shape[-1]
        mean, scale, tau = (x.unsqueeze(-2).expand(*x.shape[:-1], classes, -1) for x in inputs)
        target = torch.arange(classes, device=mean.device).expand(mean.shape[:-1])
        return fixed_log_likelihood(mean, scale, tau, target)[0]

    def _of_labels(self, rows: Tensor, labels: Tensor) -> Tensor:
        return fixed_log_likelihood(*self.stack.latents(rows), labels)[0]

    def _check_rule(self, rows: Tensor) -> None:
        """How far the fixed rule is off on labels drawn at random: mean and largest error of log p."""
        mean, scale, tau = self.stack.latents(rows)
        source = torch.Generator().manual_seed(0)
        target = torch.randint(mean.shape[-1], mean.shape[:-1], generator=source).to(mean.device)
        log_p, _ = fixed_log_likelihood(mean, scale, tau, target)
        m, s, t = (x.reshape(-1, x.shape[-1]).double() for x in (mean, scale, tau))
        truth, _ = solve(m, s, t, target.reshape(-1), 1e-6)
        off = (log_p.double() - truth.log_p.reshape(log_p.shape)).abs()
        for i, of_run in enumerate(off):
            self.found[i] |= {"rule_error": float(of_run.mean()), "rule_error_most": float(of_run.max())}

    def _note(self, run: int, name: str, found: dict[str, float]) -> None:
        self.found[run] |= {f"{name}_{key}": value for key, value in found.items()}


def group(configs: Sequence[Config]) -> list[list[Config]]:
    """Configs of one data set and number of samples, together."""
    return alike(configs, lambda c: (c.item, c.data, c.method, c.samples, c.size))


def run(
    configs: Sequence[Config],
    *,
    root: str | None = None,
    device: str = "cuda",
    report: Callable[[list[Result]], None] = lambda results: None,
) -> list[Result]:
    """Train stack by stack; `report` gets the results of each."""
    return [result for some in _each(configs, root, device, report) for result in some]


def _each(
    configs: Sequence[Config], root: str | None, device: str, report: Callable[[list[Result]], None]
) -> Iterator[list[Result]]:
    torch.set_float32_matmul_precision("high")
    for stack in group(configs):
        data = {c.seed: prepare.parts(c, root=root) for c in {c.seed: c for c in stack}.values()}
        since = time.monotonic()
        runs = TemperatureRuns(stack, [data[c.seed] for c in stack], device=device)
        done = [result for ended in side_by_side([runs], since) for result in ended.results()]
        report(done)
        yield done
