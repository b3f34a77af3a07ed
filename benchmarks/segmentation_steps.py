"""One run of `segmentation.py` as a captured step that is replayed, on a stream of its own.

A step is that of `dubito.fit` with the same order, augmentation and optimiser. It is captured once per kind of
model and replayed for every run of that kind: weights, moments, masks and temperature are set anew in place. A
graph has fixed shapes, so the rows that get more nodes are the worst ones, so many at most; others are counted
(`missed`, the share of all rows that were left above the tolerance).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from segmentation_links import BANKS, Full, banks_of, fixed_link
from segmentation_networks import model_of
from torch import Tensor

from dubito import optim
from dubito._batches import Order
from dubito._lanes.replay import captured
from dubito.channels._core import IMPOSSIBLE
from dubito.data import LabelledData
from dubito.evaluate import _judging
from dubito.segmentation.augment import scale_crop_flip
from dubito.segmentation.losses import _likelihood
from dubito.segmentation.scores import SegmentationScores
from segmentation import BATCH, CROP, RATES, SCALES, read


def kind_of(job: dict[str, Any]) -> tuple[Any, ...]:
    """What a captured step is made for: the network, the place of enlarging, and the nodes of the first rule."""
    nodes = None if job["tau"] is None else 64 if job["tau"] >= 0.5 else 128
    return job["network"], job["upsample"], nodes, job.get("points")


_STARTS: dict[tuple[Any, ...], dict[str, Tensor]] = {}


def _start_of(job: dict[str, Any]) -> tuple[Any, ...]:
    """What the first weights depend on."""
    return job["network"], job["seed"], job["tau"] is None


class Sets:
    """The images and masks of the set, read once and kept on the device."""

    def __init__(self, folder: Path, few: int | None, device: str) -> None:
        self.folder, self.few, self.device = folder, few, device
        self._made: dict[tuple[str, str, str], LabelledData] = {}

    def __call__(self, split: str, job: dict[str, Any]) -> LabelledData:
        """A split as a job reads it."""
        where = (split, job["network"], job["labels"])
        if where not in self._made:
            self._made[where] = read(self.folder, split, job, self.few).to(self.device)
        return self._made[where]


class Lane:
    """A captured step of one kind of model, and the run that it makes at the moment."""

    def __init__(self, job: dict[str, Any], sets: Sets, steps: int, few: int | None) -> None:
        self.sets, self.count, self.few, self.device = sets, steps, few, torch.device(sets.device)
        self.kind, on_gpu = kind_of(job), sets.device == "cuda"
        self.stream = torch.cuda.Stream() if on_gpu else None
        self.half = on_gpu
        data = sets("train", job)
        self.batch = min(BATCH, len(data))
        with self.place():
            self.model = self.fresh(job).to(self.device)
            if on_gpu:
                self.model.backbone.to(memory_format=torch.channels_last)
            options = {"fused": True, "capturable": True} if on_gpu else {}
            rate = RATES[job["network"]]
            self.opt = optim.adam(self.model.named_parameters(), lr=rate, weight_decay=1e-4, **options)
            for group in self.opt.param_groups if on_gpu else ():
                group["lr"] = torch.tensor(rate, device=self.device)
            here = {"device": self.device}
            self.images = data
            self.masks = torch.zeros(data.labels.shape, dtype=torch.int8, **here)
            self.places = torch.zeros(steps, self.batch, dtype=torch.int64, **here)
            self.epochs = torch.zeros(steps, dtype=torch.int64, **here)
            self.rates = torch.zeros(steps, **here)
            self.seed, self.at = (torch.zeros(1, dtype=torch.int64, **here) for _ in range(2))
            self.tau, self.loss = torch.ones(1, 1, **here), torch.zeros((), **here)
            self.banks = banks_of(job.get("points"), self.model.num_classes, self.device)
            self.missed = torch.zeros((), dtype=torch.int64, **here)
            self.set(job)
        self.step = captured(self._step, self.stream)
        for _ in range(4 if on_gpu else 0):  # the fourth call captures
            with self.place():
                self.step()

    def place(self) -> Any:
        """The lane's stream."""
        return torch.cuda.stream(self.stream)

    def fresh(self, job: dict[str, Any]) -> Any:
        """The model of a job at its start; its weights are remembered."""
        model = model_of(job) if self.few is None else model_of(job, widths=(8, 16))
        _STARTS[_start_of(job)] = {name: value.clone() for name, value in model.state_dict().items()}
        return model

    @torch.no_grad()
    def set(self, job: dict[str, Any]) -> None:
        """Begin another run of the same kind: nothing is left of the one before."""
        assert kind_of(job) == self.kind
        self.job, seed = job, job["seed"]
        self.model.train()
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)  # dropout of foreign networks
        if _start_of(job) not in _STARTS:
            self.fresh(job)
        start = _STARTS[_start_of(job)]
        for name, value in self.model.state_dict().items():
            value.copy_(start[name])
        for state in self.opt.state.values():
            for value in state.values():
                value.zero_()
        order = Order(len(self.masks), self.batch, "stream", seed=seed)
        steps = range(self.count)
        self.places[: self.count] = torch.stack([order.positions(i) for i in steps]).to(self.device)
        self.epochs[: self.count] = torch.tensor([order.epoch(i) for i in steps]).to(self.device)
        rate = RATES[job["network"]]
        rates = torch.tensor([rate * optim.polynomial(i, self.count) for i in steps])
        self.rates[: self.count] = rates.to(self.device)
        self.masks.copy_(self.sets("train", job).labels)
        self.seed.fill_(seed)
        self.tau.fill_(job["tau"] or 1.0)
        for value in (self.at, self.loss, self.missed):
            value.zero_()

    def run(self) -> Iterator[None]:
        """The steps of a run, one per item."""
        for _ in range(self.count):
            with self.place():
                self.step()
            yield

    def _step(self) -> None:
        places, epoch = (table.index_select(0, self.at).squeeze(0) for table in (self.places, self.epochs))
        rate = self.rates.index_select(0, self.at).squeeze(0)
        for group in self.opt.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].copy_(rate)
            else:
                group["lr"] = float(rate)
        masks = self.masks.index_select(0, places).long()
        keys = {"index": places, "seed": self.seed, "epoch": epoch}
        x, y = scale_crop_flip(self.images.batch(places), masks=masks, **keys, crop=CROP, scales=SCALES)
        assert y is not None
        x = x.contiguous(memory_format=torch.channels_last if self.half else torch.contiguous_format)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half, cache_enabled=False):
            features = self.model.features(x)
        losses, missed = self._losses(features, y.contiguous())
        loss = losses.sum() / (y >= 0).sum().clamp(min=1)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        self.loss.copy_(loss.detach())
        self.missed += missed
        self.at += 1

    def _losses(self, features: Tensor, y: Tensor) -> tuple[Tensor, Tensor | int]:
        """The loss of every pixel, 0 where it is void, as `segmentation.Pixels` has it."""
        size, model = (y.shape[1], y.shape[2]), self.model
        latent = model.latent_of(features, size)
        missed: Tensor | int = 0
        if latent.scale is None:
            log_p = model.log_probs(latent)
        elif model.upsample == "log_probs":
            low, missed = self._link(latent, self.kind[2])
            log_p = model._resize(low.clamp(min=IMPOSSIBLE), size).log_softmax(-1)
        elif self.half:
            rows = latent.mean.flatten(0, -2), latent.scale.flatten(0, -2)
            bank = None if self.banks is None else self.banks.index_select(0, self.at % BANKS).squeeze(0)
            own, missed = Full.apply(*rows, self.tau, y.flatten(), bank)  # type: ignore[no-untyped-call]
            return -own.view(y.shape), missed
        else:
            return _likelihood(model, latent, y, torch.Generator()), 0
        picked = log_p.gather(-1, y.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        return torch.where(y >= 0, -picked, 0.0), missed

    def _link(self, latent: Any, nodes: int) -> tuple[Tensor, Tensor]:
        """All classes where the latent is, and how many of its rows are left unfinished."""
        rows = latent.mean.flatten(0, -2), latent.scale.flatten(0, -2)
        log_p, missed = fixed_link(*rows, self.tau.expand(len(rows[0]), 1).contiguous(), nodes)
        return log_p.view(latent.mean.shape), missed

    def _judge(self, x: Tensor) -> Tensor:
        """log p of every pixel, by the link that the steps have."""
        latent = self.model.latent(x)
        if latent.scale is None or not self.half:
            return self.model.log_probs(latent)
        log_p = self._link(latent, 128)[0]
        if self.model.upsample != "log_probs":
            return log_p
        size = (x.shape[-2], x.shape[-1])
        return self.model._resize(log_p.clamp(min=IMPOSSIBLE), size).log_softmax(-1)

    @torch.no_grad()
    def finish(self) -> dict[str, Any]:
        """Scores on validation (observed labels, and clean ones where they differ) and test."""
        job, found = self.job, {}
        with self.place(), _judging(self.model):
            loss, rows = float(self.loss), self.count * self.batch * math.prod(CROP)
            if not math.isfinite(loss):
                raise RuntimeError("the loss is not finite")
            self.model.temperature = float(self.tau)
            size = 120 if self.kind[1] == "log_probs" else 24  # images at a time
            share = float(self.missed) / (rows if self.kind[1] != "log_probs" else rows / 16)
            for split in ("val", "test"):
                data = self.sets(split, job)
                kinds = {split: data.labels}
                if split == "val" and job["labels"] != "clean":
                    kinds["val_clean"] = data.clean
                scores = {
                    name: SegmentationScores(self.model.num_classes, device=self.device) for name in kinds
                }
                for part in torch.arange(len(data), device=self.device).split(size):
                    log_p = self._judge(data.batch(part))
                    for name, truth in kinds.items():
                        scores[name].add(log_p, truth[part].long())
                found |= {name: of.results() for name, of in scores.items()}
                found[f"{split}_iou"] = [round(v, 6) for v in scores[split].class_iou()[0].tolist()]
        return {**job, "steps": self.count, "loss": loss, "missed": share, **found}
