"""`dubito audit`: of a run, of data with someone's probabilities, or of data alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor

from .._audit import Audit, audit
from .._files import make_folder
from .._report import ReportData, report, without_names
from .._report.audits import from_audit, how_many, kind_of
from ..crowd import CrowdLabels
from ..data import LabelledData, read_npz
from ..errors import DubitoError
from . import gold as golden
from . import page, stored, writing
from .findings import Findings, find
from .given import read_labels, read_probs
from .overview import repeats, sentence
from .sources import find as find_source
from .tasks import FitJob, Say, fit, task_of
from .training import GOLD
from .writing import write_csv

SHOWN = 10


def run(job: FitJob, probs: Path | None, say: Say) -> tuple[Path, Path]:
    """Rank the labels and say what is wrong with them; returns the paths of the table and of the page.

    `job.data` is a run, or data: with the file `probs` nothing is trained, without it a run is made in `job.out`.
    """
    if probs is not None:
        found, people = _judge(job, probs), None
        made = from_audit(found.audit, title=f"{job.data.name}: label audit", command=job.command)
    else:
        folder = job.data
        if not (folder / "config.json").is_file():
            find_source(job)  # refused before anything is said
            say(f"No run and no --probs: training out of fold first, in {job.out}.")
            fit(replace(job, gold=None), say)
            folder = job.out
        found, data = of_run(folder, job)
        people = found.people
        rows = found.to_check[: page.MOST_SUSPICIONS]
        shown = replace(found.audit, order=np.array(rows, dtype=np.int64))
        made = from_audit(
            shown,
            thumbnails=page.thumbnails(data, found, rows),
            title=f"{folder.name}: label audit",
            command=job.command,
        )
        made = replace(
            made, suspicions=[replace(s, ask=found.ask.get(row)) for s, row in zip(made.suspicions, rows)]
        )
        if people is not None:
            names = [str(c) for c in data.classes]
            made = replace(
                made, annotators=page.skills(people), annotator_matrices=page.matrices(people, names)
            )
    make_folder(job.out)
    table = ranked(job.out / "audit.csv", found)
    page_of_it = report(made, job.out / "audit.html", anonymise=job.anonymise)
    sampled = bool(found.spot and found.to_check)
    sample = writing.spot_check(job.out / "spot_check.csv", found) if sampled else None
    for line in summary(found, _aliases(made) if job.anonymise else {}):
        say(line)
    if sample:
        say(f"to make the numbers surer: check the labels of {sample} and give it back with --gold")
    return table, page_of_it


def of_run(folder: Path, job: FitJob | None = None) -> tuple[Findings, LabelledData]:
    """What a finished run knows about its labels, judged anew from its out-of-fold probabilities.

    Checked labels of the job are looked at, and stay outside of the run: `dubito fit RUN --gold` takes them in.
    """
    if task_of(folder) != "classes":
        raise DubitoError(
            "an audit is of runs with one class per item", where=str(folder), got=task_of(folder)
        )
    before = stored.load(folder)
    data, _ = before.read(folder)
    saved = read_npz(folder / "out_of_fold.npz", ["probs", "rows"])
    rows = torch.from_numpy(saved["rows"].astype(np.int64))
    known = golden.kept(folder, data)
    if job is not None and job.gold is not None:
        known |= golden.read_gold(job.gold, data, job.item, job.label, job.options.get("delimiter"))
    codes = golden.codes_of(known, data)[rows]
    part = data.subset(rows)
    part = replace(part, extra={**part.extra, GOLD: codes})
    log_p = torch.from_numpy(saved["probs"]).double().clamp(min=1e-30).log()
    found = find(part, log_p, before.setting.seed)
    if part.crowd is not None:
        found = replace(found, audit=_told(found.audit, *part.crowd))
    return found, part


def _told(a: Audit, item: Tensor, annotator: Tensor, label: Tensor) -> Audit:
    """The audit with a note on labels that one annotator gave one item."""
    return replace(a, notes=(*a.notes, *map(sentence, repeats(item, annotator, label))))


def _judge(job: FitJob, path: Path) -> Findings:
    """Labels and probabilities from two files."""
    labels = read_labels(job)
    items = labels.items
    if labels.annotator is None and len(items) < len(labels.item):
        twice = next(name for name, n in Counter(labels.item).items() if n > 1)
        raise DubitoError(
            "an item has two labels, and no column says who gave them",
            where=labels.path,
            got=repr(twice),
            remedy="name the column with --annotator, or make the ids distinct",
        )
    probs, classes = read_probs(path, labels)
    several = labels.annotator is not None and len(items) < len(labels.item)
    if several:
        if job.gold is not None:
            raise DubitoError(
                "checked labels of a crowd go into a run",
                got=str(job.gold),
                remedy="dubito fit RUN --gold FILE",
            )
        crowd = CrowdLabels(
            labels.item,
            labels.annotator,
            labels.label,
            classes=classes,
            item_ids=items,
            duplicates="keep",
        )
        found = _told(audit(crowd, probs), crowd.item, crowd.annotator, crowd.label)
        place = {name: i for i, name in enumerate(items)}
        rows = np.array([place[str(i)] for i in found.ids])
        return Findings(found, rows, probs, probs, np.full(len(probs), -1))
    known = np.full(len(items), -1)
    if job.gold is not None:
        named = SimpleNamespace(ids=items, classes=classes)
        known = golden.codes_of(
            golden.read_gold(job.gold, named, delimiter=job.options.get("delimiter")), named
        ).numpy()
    found = audit(
        labels.label,
        probs,
        classes=classes,
        ids=labels.item,
        annotators=labels.annotator,
        checked=None if job.gold is None else [classes[k] if k >= 0 else None for k in known.tolist()],
    )
    rows = np.flatnonzero(known < 0)
    return Findings(found.part(rows), rows, probs, probs, known)


def ranked(path: Path, found: Findings) -> Path:
    """Every label, the most suspicious first; those that gold has settled are left out."""
    a = found.audit
    names = [str(c) for c in a.classes.tolist()]
    rows = (
        [
            rank,
            str(a.ids[row]),
            "" if a.annotators is None else str(a.annotators[row]),
            names[a.given[row]],
            names[a.suggested[row]],
            float(a.p_wrong[row]),
            *a.why[row].tolist(),
            found.ask.get(row, ""),
            "",
        ]
        for rank, row in enumerate(found.to_check, 1)
    )
    head = ["rank", "id", "annotator", "given", "suggested", "p_wrong", "model", "annotators", "prior"]
    return write_csv(path, [*head, "ask", "gold"], rows)


def _aliases(made: ReportData) -> dict[str, str]:
    """What the page calls each annotator once it names nobody."""
    hidden = without_names(made)
    out = {str(a.name): str(b.name) for a, b in zip(made.annotators, hidden.annotators)}
    for a, b in zip(made.suspicions, hidden.suspicions):
        out |= {str(x): str(y) for x, y in ((a.annotator, b.annotator), (a.ask, b.ask)) if x is not None}
    return out


def summary(found: Findings, aliases: Mapping[str, str] | None = None) -> Iterator[str]:
    """The audit for a terminal, with `aliases` in place of annotators' names."""
    a = found.audit

    def named(who: object) -> str:
        return (aliases or {}).get(str(who), str(who))

    names = [str(c) for c in a.classes.tolist()]
    yield f"{len(a.given):,} labels{_checked(found)}, {len(names)} classes"
    yield how_many(a, "labels")
    yield "kind of noise: " + " - ".join(kind_of(a))
    best = a.kind.evidence[0].bic
    yield "  evidence (BIC above the best): " + ", ".join(
        f"{e.model} {e.bic - best:+,.0f}" for e in a.kind.evidence
    )
    for g in a.kind.groups:
        if g.by != "annotators":
            shares = ", ".join(f"{100 * r:.0f} %" for r in g.rates)
            verdict = "" if g.differ else ": no difference that matters"
            yield f"  noise by {g.by}: {shares} ({g.names[0]} first){verdict}"
    yield "commonest confusions, true -> given:"
    yield from _confusions(a, names)
    yield from _people(found, named)
    yield "check first:"
    for row in found.to_check[:SHOWN]:
        who = "" if a.annotators is None else f" by {named(a.annotators[row])}"
        ask = f", ask {named(found.ask[row])}" if row in found.ask else ""
        yield (
            f"  {a.ids[row]}: {names[a.given[row]]}{who}, rather {names[a.suggested[row]]} "
            f"({100 * a.p_wrong[row]:.1f} % likely to be wrong){ask}"
        )
    yield "what checking brings:"
    for p in a.plan[:5]:
        yield f"  {p.checked:,} labels: {p.found.value:,.0f} errors found, {100 * p.left.value:.1f} % left wrong"
    for note in a.notes:
        yield f"note: {note}"


def _checked(found: Findings) -> str:
    """How many labels were checked: of a crowd those of checked items are among the others, else beside them."""
    if found.people is None:
        known = int((found.gold >= 0).sum())
        return f", besides {known:,} checked ones" if known else ""
    items = found.rows[found.gold[found.rows] >= 0]
    return f", {len(items):,} of them on {len(np.unique(items)):,} checked items" if len(items) else ""


def _confusions(a: Audit, names: list[str]) -> Iterator[str]:
    weight = a.transition * a.class_prior[:, None]
    np.fill_diagonal(weight, 0)
    for place in np.argsort(-weight, axis=None, kind="stable")[:5].tolist():
        i, j = divmod(place, len(names))
        low, high = a.transition_interval[i, j]
        if weight[i, j] > 0:
            yield f"  {names[i]} -> {names[j]}: {a.transition[i, j]:.3f} ({low:.3f} to {high:.3f})"


def _people(found: Findings, named: Callable[[object], str]) -> Iterator[str]:
    people = found.people
    if people is None:
        return
    order = np.argsort(-people.skills, kind="stable").tolist()
    yield f"annotators by skill ({len(order)}):"
    for r in order if len(order) <= SHOWN else [*order[: SHOWN // 2], *order[-SHOWN // 2 :]]:
        yield (
            f"  {named(people.names[r])}: {people.skills[r]:.2f} ({people.skill_low[r]:.2f} to "
            f"{people.skill_high[r]:.2f}), {int(people.labels[r]):,} labels"
        )
