"""From an audit to the content of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._versions import versions
from ..errors import DubitoError
from .data import Annotator, Check, Fact, Matrix, ReportData, Suspicion

if TYPE_CHECKING:
    from .._audit import Audit, Step

SENTENCES = {
    "none": "There is hardly any label noise that shows",
    "symmetric": "Wrong labels go to all other classes alike (symmetric noise)",
    "pairwise": "Each class is mistaken for one other (pairwise noise)",
    "class-dependent": "How often labels are wrong, and what they become, depends on the class",
    "input-dependent": "How often labels are wrong depends on the input, beyond its class",
    "annotator-specific": "How often labels are wrong depends on who gave them",
    "unclear": "What kind of noise that is, these labels cannot tell",
}


def kind_of(audit: Audit) -> tuple[str, str]:
    """The kind of noise by name and in a sentence; there may be noise whose kind so few labels do not tell."""
    return audit.noise, SENTENCES.get(audit.noise, audit.noise)


def from_audit(
    audit: Any, *, most: int = 200, thumbnails: Any = None, title: str | None = None, command: str = ""
) -> ReportData:
    """Fill the sections that an audit knows about."""
    from .._audit import Audit

    if not isinstance(audit, Audit):
        raise DubitoError(
            "cannot report on this", expected="ReportData or an Audit", got=type(audit).__name__
        )
    told = audit.informed >= 0.5  # a list that is no better than chance would only mislead
    names = [str(c) for c in audit.classes.tolist()]
    low, high = audit.transition_interval[..., 0], audit.transition_interval[..., 1]
    known = bool((low < high).any())  # no refits, no intervals: those of no width would look like certainty
    return ReportData(
        title=title or "Label audit",
        summary=_summary(audit),
        facts=_facts(audit),
        noise=_noise(audit),
        transition=Matrix(
            "Transition matrix",
            names,
            names,
            audit.transition.tolist(),
            low.tolist() if known else None,
            high.tolist() if known else None,
        ),
        annotators=_annotators(audit),
        suspicions=[
            Suspicion(
                s.id,
                s.given,
                s.suggested,
                s.p_wrong,
                s.annotator,
                _why(s.why, audit.annotators is not None),
                s.neighbours,
                _picture(thumbnails, s.row),
            )
            for s in audit.suspicious(most if told else 0)
        ],
        plan=[
            Check(
                p.checked,
                Fact("errors found", p.found.value, p.found.low, p.found.high),
                Fact("error rate left", p.left.value, p.left.low, p.left.high),
            )
            for p in (audit.plan if told else ())
        ],
        notes=audit.notes,
        command=command,
        versions=versions(),
    )


def _why(parts: dict[str, float], annotators: bool) -> dict[str, float]:
    """Where nobody was named, how such labels come about is not said of annotators."""
    return parts if annotators else {"noise" if k == "annotators" else k: v for k, v in parts.items()}


def _picture(thumbnails: Any, row: int) -> Any:
    if thumbnails is None:
        return None
    if isinstance(thumbnails, dict):
        return thumbnails.get(row)
    if row >= len(thumbnails):
        raise DubitoError("too few thumbnails", expected=f"more than {row}", got=len(thumbnails))
    return thumbnails[row]


def _summary(audit: Audit) -> list[str]:
    N = audit.unchecked
    of = f"{N:,} labels" if len(audit.given) == N else f"{N:,} unchecked labels"
    return [how_many(audit, of), f"{kind_of(audit)[1]}.", worth_checking(audit)]


def how_many(audit: Audit, of: str) -> str:
    """How many labels are wrong, and what the interval leaves out; of a model that knows nothing, the interval."""
    rate = audit.noise_rate
    span = _span(audit)
    if audit.informed < 0.5:
        return (
            f"The model cannot tell which of the {of} are wrong, nor how many: from {100 * rate.low:.0f} to "
            f"{100 * rate.high:.0f} % would fit."
        )
    spread = "" if rate.low == rate.high else f" (95 % interval {span})"
    if audit.beyond is None:
        return f"About {100 * rate.value:.1f} % of the {of} are wrong{spread}."
    return (
        f"About {100 * rate.value:.1f} % of the {of} show as wrong{spread}; where people err on the very items "
        f"that are hard, up to {100 * audit.beyond:.0f} % are."
    )


def _span(audit: Audit) -> str:
    return f"{100 * audit.noise_rate.low:.1f} to {100 * audit.noise_rate.high:.1f} %"


def worth_checking(audit: Audit) -> str:
    """What checking the first labels brings: while most are wrong, and as many as find half of the errors."""
    if not audit.plan:
        return "Every label was checked."
    if audit.informed < 0.5:
        return "Check the spot sample first: the list of suspicious labels finds no more errors than chance would."
    half = 0.5 * audit.noise_rate.value * audit.unchecked
    steps = zip((None, *audit.plan), audit.plan)
    rewarding = [p for before, p in steps if _new(before, p) >= 0.5]
    worth = next((p for p in audit.plan if p.found.value >= half), audit.plan[-1])
    worth = max(worth, *rewarding, key=lambda p: p.checked) if rewarding else worth
    return (
        f"Checking the {worth.checked:,} most suspicious labels finds about {worth.found.value:,.0f} errors and "
        f"leaves {100 * worth.left.value:.1f} % wrong."
    )


def _new(before: Step | None, step: Step) -> float:
    """The share of errors among the labels that a step checks beyond the one before."""
    checked, found = (0, 0.0) if before is None else (before.checked, before.found.value)
    return (step.found.value - found) / (step.checked - checked)


def _facts(audit: Audit) -> list[Fact]:
    facts = [Fact("labels", len(audit.given)), Fact("classes", len(audit.classes))]
    if audit.annotators is not None:
        facts.append(Fact("annotators", len({repr(a) for a in audit.annotators.tolist()})))
    counts = [int((audit.given == k).sum()) for k in range(len(audit.classes))]
    facts.append(Fact("labels per class", f"{min(counts):,} to {max(counts):,}"))
    return facts


def _noise(audit: Audit) -> list[Fact]:
    rate, best = audit.noise_rate, audit.kind.evidence[0].bic
    known = f"{100 * rate.value:.1f} %" if audit.informed >= 0.5 else "not known"
    out = [
        Fact("wrong labels", known, note=f"95 % interval {_span(audit)}" if rate.low < rate.high else ""),
        Fact("kind of noise", kind_of(audit)[0]),
    ]
    for e in audit.kind.evidence:
        gap = f"BIC {e.bic - best:,.0f} above the best" if e.bic > best else "explains the labels best"
        out.append(Fact(f"pattern: {e.model}", gap, note=f"numbers to estimate: {e.parameters}"))
    for g in audit.kind.groups:
        note = "the share differs" if g.differ else "no difference that matters"
        if g.by != "annotators":
            shares = ", ".join(f"{100 * r:.0f} %" for r in g.rates)
            out.append(Fact(f"wrong labels by {g.by}", shares, note=f"{g.names[0]} first; {note}"))
        else:
            out.append(Fact("wrong labels by annotator", note))
    return out


def _annotators(audit: Audit) -> list[Annotator]:
    """Annotators with the share of their labels that is right, the worst first."""
    if audit.annotators is None:
        return []
    groups: dict[str, tuple[Any, list[float]]] = {}
    for name, wrong in zip(audit.annotators.tolist(), audit.p_wrong.tolist()):
        groups.setdefault(repr(name), (name, []))[1].append(wrong)
    out = []
    for name, wrong in groups.values():
        skill, n = 1 - sum(wrong) / len(wrong), len(wrong)
        error = 1.96 * (max(skill * (1 - skill), 0.25 / n) / n) ** 0.5
        out.append(Annotator(name, n, skill, max(0.0, skill - error), min(1.0, skill + error)))
    return sorted(out, key=lambda a: a.skill)
