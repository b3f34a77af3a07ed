"""The trained networks of a run on disk: sealed, without code, and enough to build them again."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import checkpoint
from .._identity import describe, same_data
from ..data import LabelledData
from ..errors import DubitoError
from ..model import Model
from ..runs import read_config
from .reading import Scale, read
from .sources import Source, from_plain
from .training import Setting, empty

FINAL, GIVEN = "final", "given"


@dataclass(frozen=True)
class Stored:
    """A method's final network and those of its folds.

    Fields:
        given: parameters of the method that are tensors (a transition matrix).
        revision: 0, and one more with every update by gold labels.
    """

    method: str
    setting: Setting
    scale: Scale
    source: Source
    classes: tuple[str, ...]
    final: dict[str, Tensor]
    folds: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    given: dict[str, Tensor] = field(default_factory=dict)
    revision: int = 0
    facts: dict[str, Any] = field(default_factory=dict)

    def located(self) -> Source:
        """The data that the run was made from, also when asked from another folder than then."""
        base = Path(str(self.facts.get("base", ".")))
        found: dict[str, Any] = {}
        for name in ("path", "images"):
            told = getattr(self.source, name)
            if told is None or not (base / told).exists():
                continue
            if not Path(told).exists() or not Path(told).samefile(base / told):
                found[name] = str(base / told)
        return replace(self.source, **found)

    def read(self, run: Path) -> tuple[LabelledData, Source]:
        """The data that the run was made from, scaled as then; other data at its place is refused."""
        raw, source = read(self.located())
        data = self.scale.apply(raw)
        then, now = read_config(run)["config"].get("data"), describe(data)
        if then and now and not same_data(then, now):
            data = self._narrow(raw)
            now = describe(data)
        if then and now and not same_data(then, now):
            count = then["examples"], now["examples"]
            raise DubitoError(
                "the data has changed since the run",
                where=source.path,
                expected="the rows, labels and order of that time",
                got=f"{count[1]:,} examples for {count[0]:,}" if count[0] != count[1] else None,
                remedy="put the file back as it was, or fit it as a new run",
            )
        return data, source

    def _narrow(self, raw: LabelledData) -> LabelledData:
        """The data as earlier runs read and scaled it, in float32, so that they go on."""
        if self.source.kind == "table" and isinstance(raw.inputs, Tensor) and raw.inputs.dim() == 2:
            raw = replace(raw, inputs=raw.inputs.float())
        return self.scale.apply(raw, torch.float32)

    def model(self) -> Model:
        """The final network, ready to predict."""
        model = empty(self.setting, self.method, self.given)
        model.load_state_dict(self.final)
        return model.eval()


def save(folder: Path, stored: Stored) -> None:
    """Write one revision; the one before is kept beside it."""
    tensors = {FINAL: stored.final, GIVEN: stored.given or {"none": torch.zeros(1)}}
    tensors |= {f"fold-{fold}": weights for fold, weights in stored.folds.items()}
    state = {
        "method": stored.method,
        "setting": asdict(stored.setting),
        "scale": asdict(stored.scale),
        "source": stored.source.plain(),
        "classes": list(stored.classes),
        "facts": stored.facts,
    }
    checkpoint.save(folder, stored.revision, tensors, state)


def load(run: Path) -> Stored:
    """The latest revision of a run's model."""
    found = checkpoint.load_latest(run / "model")
    if found is None:
        raise DubitoError(
            "this run has no model yet",
            where=str(run),
            remedy="let `dubito fit` finish: the same command goes on",
        )
    state = found.state
    setting = {**state["setting"], "shape": tuple(state["setting"]["shape"])}
    scale = {name: tuple(values) for name, values in state["scale"].items()}
    given = {k: v for k, v in found.tensors[GIVEN].items() if k != "none"}
    folds = {int(k[5:]): v for k, v in found.tensors.items() if k.startswith("fold-")}
    return Stored(
        state["method"],
        Setting(**setting),
        Scale(**scale),
        from_plain(state["source"]),
        tuple(state["classes"]),
        found.tensors[FINAL],
        folds,
        given,
        found.step,
        state["facts"],
    )
