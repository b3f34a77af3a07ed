"""`dubito compare`: methods on the same splits with the same budget, judged by noisy validation labels."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import checkpoint
from .._files import replace_file
from ..data import LabelledData
from ..errors import DubitoError, nearest
from ..estimate import fold_numbers
from ..evaluate import evaluate
from ..metrics import holm, paired_t_test
from ..runs import RunFolder
from ..train import Run
from .choice import Choice, choose
from .classify import check_method, prepare
from .overview import sentences
from .tasks import FitJob, Say
from .training import Folds, Setting, slug, train
from .writing import read_json, write_json

FORMATS = ("text", "csv", "json")
PARTS = 5  # a fifth of the items validates
SCORES = ("accuracy", "log_likelihood", "clean_accuracy")


@dataclass(frozen=True)
class Line:
    """One method: mean and deviation over seeds, and its paired difference from the first method."""

    method: str
    seeds: int
    accuracy: float
    accuracy_sd: float
    log_likelihood: float
    clean_accuracy: float | None
    difference: float | None
    p: float | None
    p_holm: float | None
    seconds: float
    chosen: str = ""


def run(job: FitJob, methods: Sequence[str], seeds: int, folder: Path | None, say: Say) -> list[Line]:
    """Train every method with every seed; finished ones in `folder` are not trained again."""
    if len(set(methods)) != len(methods) or not methods:
        raise DubitoError("methods must be different names", got=", ".join(methods) or "none")
    if seeds < 1:
        raise DubitoError("at least one seed is needed", got=seeds)
    plan = prepare(replace(job, out=folder or Path(".")))
    for method in methods:
        if method != "auto":
            check_method(method, plan.data.crowd is not None)
    told = replace(plan.setting, annotators=_people(plan.data))
    for line in sentences(plan.data, plan.source, told, ", ".join(methods), job.folds)[:-1]:
        say(line)
    say(f"  training: {', '.join(methods)}; network {told.backbone}, {told.epochs} epochs, {seeds} seeds")
    rows = (plan.data.labels >= 0) if plan.data.crowd is None else None
    data = plan.data if rows is None else plan.data.subset(rows.nonzero().flatten())
    found: dict[str, list[dict[str, Any]]] = {method: [] for method in methods}
    for seed in range(job.seed, job.seed + seeds):
        number = fold_numbers(data, folds=PARTS, seed=seed)
        rest, valid = (data.subset(part.nonzero().flatten()) for part in (number != 0, number == 0))
        for method in methods:
            place = None if folder is None else folder / "training" / f"seed-{seed}"
            options: dict[str, Any] = {"folds": job.folds, "place": place, "table": plan.table, "say": say}
            made = _one(replace(told, seed=seed), method, rest, valid, **options)
            found[method].append(made)
            say(f"  seed {seed}, {method}: {made['accuracy']:.4f} of the noisy validation labels")
    return lines(found)


def _people(data: LabelledData) -> int | None:
    return None if data.crowd is None else len(data.annotators)


def _one(
    setting: Setting,
    method: str,
    data: LabelledData,
    valid: LabelledData,
    *,
    place: Path | None,
    **options: Any,
) -> dict[str, Any]:
    began = time.monotonic()
    choice, made = learn(setting, method, data, valid, place=place, **options)
    spent = time.monotonic() - began
    if place is not None:
        spent = _first_time(place / slug(method), spent)
    scores = evaluate(made.model.cpu(), valid.to("cpu"))
    chosen = choice.method if method == "auto" else ""
    return {**scores, "seconds": spent, "chosen": chosen}


def _first_time(place: Path, spent: float) -> float:
    """The seconds that the network at this place took to train: those noted before, unless it is a new one."""
    done = checkpoint.load_latest(place / "done")
    key, file = None if done is None else done.state.get("key"), place / "seconds.json"
    noted = read_json(file) if file.is_file() else {}
    if noted.get("network") == key and isinstance(noted.get("seconds"), float):
        return float(noted["seconds"])
    write_json(file, {"network": key, "seconds": spent})
    return spent


def learn(
    setting: Setting,
    method: str,
    data: LabelledData,
    valid: LabelledData | None = None,
    *,
    folds: int = 5,
    place: Path | None = None,
    table: bool = False,
    say: Say,
) -> tuple[Choice, Run]:
    """A network by a method, or by the one that "auto" chooses from `data` alone."""
    if method == "auto":
        number = fold_numbers(data, folds=folds, seed=setting.seed)
        inner = Folds(setting, data, number, None if place is None else place / "auto", lambda _: None)
        choice = choose(inner, setting.seed, table=table)
        setting = replace(setting, **choice.network)
        say(f"  auto chose {choice.method}")
    else:
        choice = Choice(method, {})
    out = None if place is None else place / slug(method)
    return choice, train(setting, choice.method, choice.params, data, valid, out=out)


def lines(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Line]:
    """Means over seeds, the best accuracy first, with tests against the first method that was named."""
    base, *others = list(found)
    p = {}
    for method in others:
        ours, theirs = (np.array([r["accuracy"] for r in found[m]]) for m in (method, base))
        # Equal differences, common with few seeds and small validation sets, leave no spread to test by.
        if len(ours) > 1 and np.ptp(ours - theirs) > 1e-9:
            p[method] = paired_t_test(ours, theirs).p
    fixed = dict(zip(p, holm(list(p.values())))) if p else {}
    made = []
    for method, runs in found.items():
        accuracy = np.array([r["accuracy"] for r in runs])
        clean = [r["clean_accuracy"] for r in runs if "clean_accuracy" in r]
        gap = accuracy - np.array([r["accuracy"] for r in found[base]])
        made.append(
            Line(
                method,
                len(runs),
                float(accuracy.mean()),
                float(accuracy.std(ddof=1)) if len(runs) > 1 else 0.0,
                float(np.mean([r["log_likelihood"] for r in runs])),
                float(np.mean(clean)) if clean else None,
                None if method == base else float(gap.mean()),
                p.get(method),
                fixed.get(method),
                float(np.mean([r["seconds"] for r in runs])),
                ", ".join(dict.fromkeys(r["chosen"] for r in runs if r["chosen"])),
            )
        )
    return sorted(made, key=lambda line: -line.accuracy)


def render(table: Sequence[Line], form: str) -> str:
    """The table as text, CSV or JSON."""
    if form not in FORMATS:
        raise DubitoError("unknown format", got=repr(form), remedy=nearest(form, FORMATS))
    if form == "json":
        return json.dumps([asdict(line) for line in table], indent=1) + "\n"
    if form == "csv":
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, list(asdict(table[0])), lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(line) for line in table)
        return buffer.getvalue()
    return _text(table)


def _text(table: Sequence[Line]) -> str:
    base = next(line.method for line in table if line.difference is None)
    clean = any(line.clean_accuracy is not None for line in table)
    wide = max(len("method"), *(len(line.method) for line in table)) + 2
    head = f"{'method':<{wide}}{'noisy accuracy':>18}{'against ' + base:>{max(14, len(base) + 10)}}{'p (Holm)':>10}"
    head += f"{'log-lik.':>10}" + (f"{'true acc.':>11}" if clean else "") + f"{'s':>7}"
    out = [head]
    for line in table:
        row = f"{line.method:<{wide}}{f'{line.accuracy:.4f} ± {line.accuracy_sd:.4f}':>18}"
        row += f"{'' if line.difference is None else f'{line.difference:+.4f}':>{max(14, len(base) + 10)}}"
        row += f"{'' if line.p_holm is None else f'{line.p_holm:.3f}':>10}{line.log_likelihood:>10.3f}"
        if clean:
            row += f"{'' if line.clean_accuracy is None else f'{line.clean_accuracy:.4f}':>11}"
        out.append(row + f"{line.seconds:>7.1f}" + (f"   ({line.chosen})" if line.chosen else ""))
    seeds = table[0].seeds
    out.append(
        f"{seeds} seed{'s'[: seeds > 1]}; the same splits and budget for all; accuracy on noisy validation labels; "
        + ("paired t-tests over seeds." if seeds > 1 else "more seeds give tests: --seeds 3.")
    )
    return "\n".join(out) + "\n"


def hold(folder: Path, job: FitJob, methods: Sequence[str], seeds: int) -> RunFolder:
    """The folder of a comparison, of one process at a time."""
    options = {**asdict(job), "out": None, "command": None}
    if job.groups is None:
        del options["groups"]  # as it was before there were any, so that older comparisons go on
    config = {"task": "compare", "methods": list(methods), "seeds": seeds, "job": options}
    return RunFolder(folder, config, seed=job.seed)


def write(folder: Path, table: Sequence[Line]) -> None:
    """compare.csv and compare.json."""
    for form in ("csv", "json"):
        replace_file(folder / f"compare.{form}", render(table, form).encode())
