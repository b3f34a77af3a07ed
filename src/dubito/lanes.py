"""A lane: one run of any network, its steps captured as a CUDA graph and replayed on a stream of their own.

`fast.Stack` trains many small networks as one. Networks with batch norm cannot be stacked, and those with large
kernels gain little by it: several lanes that advance in turn (`fast.together`) fill the GPU instead.

A lane makes the steps of `train.fit` with ``batching="stream"``: same order, same augmentation, same optimiser.
Only noise and dropout differ, which come from the device's own generator. On the CPU the steps run uncaptured, with
the results of the plain loop. A batch that spans two epochs is made after the first of them is scored. A lane can
stop at the end of an epoch and be resumed in another process.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import checkpoint
from ._fused import Fast, fast, suits
from ._lanes import replay
from ._lanes.plan import Plan
from ._lanes.replay import Step, is_label_noise
from ._lanes.rules import PROCEDURES, Rule, Taught, rule_of
from ._method import Stages
from .data import LabelledData
from .errors import DubitoError
from .heads import Latent
from .model import Model
from .procedures import Distillation

AHEAD = 48  # steps queued at most: they keep a lane busy while the host waits for the scores of another


def runs_as_lane(stages: Stages) -> bool:
    """Whether the procedure is one that a lane knows, without a penalty.

    Example:
        >>> runs_as_lane(Stages())
        True
    """
    procedure: Any = stages.procedure
    return getattr(procedure, "func", procedure) in PROCEDURES and stages.penalty is None


@contextmanager
def settings(lanes: int) -> Iterator[None]:
    """TF32 products, and the choice of cuDNN's algorithms that suits so many lanes; restored at the end.

    cuDNN's search times each algorithm alone and finds one that fills the device. Its heuristics choose algorithms
    that leave room for one another: eight WRN-28-2 together are faster with these, one alone is slower
    (`benchmarks/lanes.py`).

    Example:
        >>> with settings(4):
        ...     torch.backends.cudnn.benchmark, torch.get_float32_matmul_precision()
        (False, 'high')
    """
    cudnn, before = torch.backends.cudnn, torch.get_float32_matmul_precision()
    searched, cudnn.benchmark = cudnn.benchmark, lanes == 1
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        cudnn.benchmark = searched
        torch.set_float32_matmul_precision(before)


class Lane:
    """A model, its data on the device, and a stream.

    Arguments:
        stages: the method's stages; its procedure is `Plain`, `CoTeaching`, `SelfPaced` or `Distillation`.
        data: training examples; moved to `device`.
        augment: as in `train.fit`.
        half: on a GPU, run the backbone in bfloat16: by our own kernels (`_fused`) where there are any for the
            network, else by autocast with channels-last memory.
        compile: on a GPU, compile backbones without kernels of their own by torch.compile.
    """

    def __init__(
        self,
        model: Model,
        stages: Stages,
        data: LabelledData,
        *,
        seed: int,
        device: str = "cuda",
        augment: Callable[..., Tensor] | None = None,
        half: bool = True,
        compile: bool = True,
    ) -> None:
        if not runs_as_lane(stages):
            what = "a lane runs plain training, co-teaching, MentorNet and distillation, without a penalty"
            raise DubitoError(what, remedy="use train.fit")
        self.on_gpu = torch.device(device).type == "cuda"
        self.half = half and self.on_gpu
        self.model = model.to(device)
        self.procedure = stages.procedure(self.model, loss=stages.loss, target=stages.target).to(device)
        if compile and self.on_gpu:
            augment = None if augment is None else torch.compile(augment, dynamic=False)
        self.stages, self.data, self.seed, self.augment = stages, data.to(device), seed, augment
        # A tensor, so that compiled augmentation serves lanes of any seed.
        self.key = torch.tensor(seed, device=device)
        self.compile, self.fused = compile and self.on_gpu, dict[Model, Fast]()
        self.models: list[Model] = []  # those of the procedure, and a teacher
        self.networks = [self._network(m) for m in self.procedure.children() if isinstance(m, Model)]
        self.stream = replay.own_stream(self.on_gpu)
        self.waiting: deque[torch.cuda.Event] = deque()  # one for the end of each step not known to be done
        self.epoch = 0
        self.memory: dict[str, Any] = {"notes": {}}  # JSON that travels with the checkpoint

    def steps(
        self,
        *,
        epochs: int,
        batch_size: int,
        optimizer: Callable[..., torch.optim.Optimizer],
        schedule: Callable[[int, int], float] | None = None,
        visit: Callable[[int], None] | None = None,
        every: int = 1,
        folder: str | Path | None = None,
        leave: Callable[[], bool] = lambda: False,
        steps: int | None = None,
        save_every: int = 0,
    ) -> Iterator[None]:
        """Train, one step per item of the iterator; `visit(e)` is called after each `every`-th epoch.

        Arguments:
            steps: the length of the run, where it ends within the last epoch.
            folder: where checkpoints are written; the latest one there is resumed.
            leave: asked at the end of each epoch; if True, a checkpoint is written and the iterator ends.
            save_every: epochs between checkpoints that guard against a killed process; 0 for none.
        """
        count, device = len(self.data), self.data.device
        total = steps or math.ceil(count * epochs / batch_size)
        self._make_fast(batch_size)
        with self.context():
            plan = Plan(math.ceil(count / batch_size) + 1, batch_size, device)
            opt, rule = self._optimizer(optimizer), rule_of(self.procedure, batch_size)
            rates = [float(group["lr"]) for group in opt.param_groups]  # before those of a checkpoint's step
            self.epoch = 0 if folder is None else self._resume(folder, opt)
            done = self.epoch * count // batch_size
            if schedule is not None:
                plan.set_rates(opt, rates, schedule, total, done)
        step = replay.captured(lambda: self._step(opt, plan, rule), self.stream)
        batches = replay.stream_batches(count, [self.seed], epochs, batch_size, device, start=self.epoch)
        for number in range(self.epoch + 1, epochs + 1):
            self.procedure.train()
            with self.context():
                first, positions = next(batches)
                positions = positions[: total - done, 0]
                plan.set_epoch(positions, first, number - 1)
            for _ in range(len(positions)):
                with self.context():
                    step()
                    if self.stream is not None:
                        self.waiting.append(self.stream.record_event())
                done += 1
                yield
            self.epoch = number
            if visit is not None and (number % every == 0 or number == epochs):
                with self.context():
                    visit(number)
            if folder is None or number == epochs:
                continue
            over = leave()
            if over or (save_every and number % save_every == 0):
                self._save(folder, opt)
            if over:
                break
        replay.hand_over(self.stream)

    def behind(self) -> bool:
        """Whether `AHEAD` steps are queued already, so that other lanes should go first.

        CUDA blocks a caller whose queue is full: one lane of many small kernels would then hold up all the others.
        """
        while self.waiting and self.waiting[0].query():
            self.waiting.popleft()
        return len(self.waiting) >= AHEAD

    def _save(self, folder: str | Path, opt: torch.optim.Optimizer) -> None:
        with self.context():
            moments, meta = checkpoint.optimizer_tensors(opt)
            tensors = {"model": self.model.state_dict(), "optimizer": moments}
            if more := self._procedure_state():
                tensors["procedure"] = more
            checkpoint.save(
                folder, self.epoch, tensors, {"optimizer": meta, "seed": self.seed, **self.memory}
            )

    def _resume(self, folder: str | Path, opt: torch.optim.Optimizer) -> int:
        found = checkpoint.load_latest(folder)
        if found is None:
            return 0
        self.model.load_state_dict(found.tensors["model"])
        for name, value in self._procedure_state().items():
            value.copy_(found.tensors["procedure"][name])
        checkpoint.restore_optimizer(opt, found.tensors["optimizer"], found.state["optimizer"])
        self.memory |= {k: found.state[k] for k in self.memory}
        return found.step

    def _procedure_state(self) -> dict[str, Tensor]:
        """What a procedure holds besides the model that is evaluated: a second network, a threshold."""
        return {k: v for k, v in self.procedure.state_dict().items() if not k.startswith("model.")}

    @contextmanager
    def context(self) -> Iterator[None]:
        """Work on the lane's stream; needed around anything that reads its model while it trains."""
        if self.stream is None:
            yield
            return
        with torch.cuda.stream(self.stream):
            yield

    @torch.no_grad()
    def log_probs(self, data: LabelledData, *, batch_size: int = 1000) -> Tensor:
        """log p of the true class for every example, ``(N, K)``, in evaluation mode."""
        self.model.eval()
        found = []
        with self.context():
            for start in range(0, len(data), batch_size):
                rows = torch.arange(start, min(start + batch_size, len(data)), device=self.data.device)
                x = data.batch(rows)
                noise = replay.draw(self.model, self.stages, len(rows), x.device) if self.on_gpu else {}
                found.append(self.networks[0](x, None, noise).float())
            log_p = torch.cat(found)
        replay.hand_over(self.stream, log_p)
        return log_p

    def _step(self, opt: torch.optim.Optimizer, plan: Plan, rule: Rule) -> None:
        positions, epoch = plan.next(opt)
        x, y = self.data.batch(positions), self.data.labels[positions]
        if self.augment is not None:
            x = self.augment(x, seed=self.key, epoch=epoch, index=positions)
        drawn = [replay.draw(each.model, self.stages, len(positions), x.device) for each in self.networks]
        loss = rule([each.losses(x, y, noise) for each, noise in zip(self.networks, drawn)], epoch)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()

    def _network(self, model: Model) -> Step:
        """A network of the procedure as a step of this lane."""
        self._adopt(model)
        parts = model, self._tabulated(self.stages), partial(self._latent, model)
        if not isinstance(self.procedure, Distillation):
            return Step(*parts)
        teacher = self.procedure.teacher.to(self.data.device)
        self._adopt(teacher)
        return Taught(*parts, against=self.procedure.against, teacher=partial(self._log_probs_of, teacher))

    def _adopt(self, model: Model) -> None:
        self.models.append(model)
        if self.half:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def _log_probs_of(self, model: Model, x: Tensor) -> Tensor:
        return model.log_probs(self._latent(model, x))

    def _make_fast(self, batch_size: int) -> None:
        """Kernels for steps of this size: our own where there are any for the network, else compiled ones."""
        example = self.data.batch(torch.zeros(1, dtype=torch.int64, device=self.data.device))
        for model in self.models:
            if self.half and suits(model.backbone, (batch_size, *example.shape[1:])):
                self.fused[model] = fast(model.backbone)
            elif self.compile:
                # Not dynamic: a batch of another size, at scoring, would leave all lanes with slower kernels.
                model.backbone.compile(dynamic=False)

    def _tabulated(self, stages: Stages) -> Stages:
        """The stages with the target function as a table by class: a captured step cannot run it on the host."""
        if stages.target is None or is_label_noise(stages):
            return stages
        classes = self.model.num_classes
        rows = stages.target(torch.arange(classes), classes).to(self.data.device)
        return dataclasses.replace(stages, target=lambda y, _: rows[y])

    def _optimizer(self, make: Callable[..., Any]) -> torch.optim.Optimizer:
        options = replay.capturable(make) if self.on_gpu else {}
        return make(self.procedure.named_parameters(), **options)  # type: ignore[no-any-return]

    def _latent(self, model: Model, x: Tensor) -> Latent:
        """The backbone in half precision, if wanted; head, loss and scores in float32."""
        if not self.half:
            return model.latent(x)
        fused = self.fused.get(model)
        if fused is not None and fused.takes(x):
            return model.head(fused(x))  # type: ignore[no-any-return]
        # Without the cache, which would reuse a cast made during capture outside of it.
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            features = model.backbone(x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x)
        return model.head(features.float())  # type: ignore[no-any-return]
