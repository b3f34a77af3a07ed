"""Make the scorecard of docs/reliability.md, docs/mutation.md and recorded.json from results/reliability.

    DUBITO_SCORECARD=results/reliability/each-commit.jsonl pytest -m rel
    DUBITO_SCORECARD=results/reliability/kills.jsonl pytest -m nightly tests/train/test_processes.py   ...
    python tools/mutate.py --all --out results/reliability/mutation.jsonl
    python tools/scorecard.py            write the pages
    python tools/scorecard.py --check    only say what is not up to date

No number on these pages is typed by hand. Of several records of one test the latest session counts; a record of a
test that is gone does not. Beside each figure stands which parts of the package that its tests reach were changed
since (covered_parts.py), seen from the source that the pages were written with.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from dubito.verify.scorecard import CARD, Verdict, judge, some

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from covered_parts import Marks  # noqa: E402

from scorecard_recorder import source  # noqa: E402

LINES = Path("results/reliability")
PAGE, MUTATION = Path("docs/reliability.md"), Path("docs/mutation.md")
RECORDED = Path("src/dubito/verify/recorded.json")
UNKNOWN = "no test distinguishes it yet"
SINCE = "Changed since: "
BEGIN, END = "<!-- scorecard:begin -->", "<!-- scorecard:end -->"


def sessions(folder: Path) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Every file's head and its records, the oldest session first."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        found.append(({**lines[0]["session"], "file": path.name}, lines[1:]))
    yield from sorted(found, key=lambda pair: str(pair[0]["date"]))


def records(folder: Path, marks: Marks) -> list[dict[str, Any]]:
    """The latest record of every test, with the date and torch version of its session and what changed since.

    Sessions that chose cases by name (``-k``) are parts of one whole: the latest of each part counts.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for head, lines in sessions(folder):
        part = str(head["command"]).partition(" -k ")[2]
        for line in lines:
            if "test" in line and line["passed"] + line["failed"] and marks.exists(line):
                told = {
                    "covers": marks.covers(line),
                    "changed": marks.changed(head, line) + measured_before(line),
                }
                found[line["test"], part] = {
                    **line,
                    **told,
                    "date": head["date"],
                    "torch": head["versions"]["torch"],
                }
    return [found[key] for key in sorted(found)]


def measured_before(line: dict[str, Any]) -> list[str]:
    """What had changed already when a test read figures that something else had measured."""
    told = [figures.get("changed_since", []) for figures in line["figures"].values()]
    return sorted({part for lists in told for parts in lists for part in parts})


def mutation(folder: Path) -> tuple[list[dict[str, Any]], str]:
    """The latest line of every module that was mutated and is still there, and the date of the oldest of these."""
    found: dict[str, dict[str, Any]] = {}
    for head, lines in sessions(folder):
        for line in lines:
            if "module" in line and line["tried"] and _is_there(line["module"]):
                found[line["module"]] = {**line, "date": head["date"], "torch": head["versions"]["torch"]}
    lines = [found[name] for name in sorted(found)]
    return lines, min((str(line["date"]) for line in lines), default="")


def _is_there(module: str) -> bool:
    place = ROOT / "src" / "dubito" / module.replace(".", "/")
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def score(lines: Iterable[dict[str, Any]]) -> tuple[int, int]:
    """How many mutants were noticed, of how many."""
    pairs = [(line["killed"] + line["timeouts"], line["tried"]) for line in lines]
    return sum(a for a, _ in pairs), sum(b for _, b in pairs)


def card(folder: Path, marks: Marks) -> list[Verdict]:
    """A verdict for each of the checks."""
    lines = records(folder, marks)
    return [judge(entry, lines) for entry in CARD]


def recorded(found: list[Verdict], marks: Marks) -> str:
    """What the package ships: the digests of its parts, and one object per check."""
    rows: list[dict[str, Any]] = [
        {
            "number": v.entry.number,
            "title": v.entry.title,
            "target": v.entry.target,
            "figure": v.figure,
            "passed": v.passed,
            "date": v.date,
            "torch": v.torch,
            "nightly": v.entry.nightly,
            "covers": list(v.covers),
            "changed": list(v.changed),
        }
        for v in found
    ]
    checks = ",\n".join(" " + json.dumps(row, ensure_ascii=False) for row in rows)
    return f'{{"parts": {json.dumps(marks.now)},\n"checks": [\n{checks}\n]}}\n'


def section(folder: Path, found: list[Verdict], marks: Marks) -> str:
    """The part of docs/reliability.md between its marks."""
    good, older = sum(v.passed for v in found), sum(bool(v.changed) for v in found)
    noticed, tried = score(mutation(folder)[0])
    rows = [
        f"{good} of {len(found)} checks meet their target in the recorded runs (results/reliability). N: in the",
        "nightly set. Written by `python tools/scorecard.py`.",
        "",
        f"{SINCE}the code that {older} of the {len(found)} checks reach; the last column says which parts of the"
        f" package, or that the tests themselves were. Seen from source {source()}; `dubito verify` says it of the"
        " files at hand.",
        "",
        "| # | check | target | recorded figure | met | date | torch | changed since |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for v in found:
        night = " (N)" if v.entry.nightly else ""
        met = "yes" if v.passed else "**no**"
        rows.append(
            f"| {v.entry.number} | {v.entry.title}{night} | {v.entry.target} | {v.figure} | {met} "
            f"| {v.date or '-'} | {v.torch or '-'} | {some(v.changed) or '-'} |"
        )
    rows += ["", "Sessions:", ""]
    for head, _ in sessions(folder):
        rows.append(
            f"- {head['file']}: {head['date']}, `{_short(head['command'])}`, {head['seconds']:.0f} s, "
            f"commit {head['commit']}, source {head['source']}, "
            f"Python {head['versions']['python']}, torch {head['versions']['torch']}, "
            f"{head['machine']}"
        )
    if lowest := records(folder / "lowest", marks):
        passed, failed = (sum(line[word] for line in lowest) for word in ("passed", "failed"))
        torches = ", ".join(sorted({str(line["torch"]) for line in lowest}))
        since = min(str(line["date"]) for line in lowest)[:10]
        rows += [
            "",
            f"Lowest supported versions: {passed:,} of {passed + failed:,} tests of the scorecard pass with torch",
        ]
        rows[-1] += f" {torches} ({since}, {len(lowest)} test functions)."
        rows += since_then({part for line in lowest for part in line["changed"]})
    if tried:
        rows += ["", f"Mutation score on the mathematical modules: {noticed} of {tried} mutants noticed"]
        rows[-1] += f" ({100 * noticed / tried:.1f} %), module by module in [mutation.md](mutation.md)."
        rows += since_then(marks.mutated(mutation(folder)[0]))
    rows += coverage(folder, marks)
    return "\n".join(rows)


def since_then(names: Iterable[str]) -> list[str]:
    """A line that names what was changed after a record was made, if anything was."""
    listed = sorted(names)
    return ["", f"{SINCE}{some(listed)}."] if listed else []


def coverage(folder: Path, marks: Marks) -> list[str]:
    """A sentence about the branches of the mathematical modules that the tests take; nothing if not recorded."""
    said: list[str] = []
    for head, lines in sessions(folder):
        mine = [line for line in lines if "covered" in line]
        if mine:
            counts = [sum(line[word] for line in mine) for word in ("statements", "branches")]
            left = [sum(len(line[f"missing_{w}"]) for line in mine) for w in ("statements", "branches")]
            said = [
                "",
                f"Coverage of the {len(mine)} mathematical modules: {counts[0] - left[0]:,} of {counts[0]:,} "
                f"statements and {counts[1] - left[1]:,} of {counts[1]:,} branches ({head['date'][:10]}, "
                f"torch {head['versions']['torch']}, {head['file']}).",
                *since_then(marks.modules(head, mine)),
            ]
    return said


def _short(command: str) -> str:
    """A command without folders of its own machine, and not longer than a line; the file has all of it."""
    text = re.sub(r"(?<!\S)/[\w./-]*/", "", command)
    return text if len(text) < 120 else text[:117] + "..."


def mutation_page(folder: Path) -> str:
    """docs/mutation.md: the score of every module and each survivor with a reason."""
    lines, since = mutation(folder)
    noticed, tried = score(lines)
    reasons = json.loads((folder / "survivors.json").read_text(encoding="utf-8"))
    rows = [
        "# Mutation testing",
        "",
        "One thing is changed in a mathematical module (a sign, an operator, a constant, a transpose, a sum for a",
        "mean), and the module's tests have to notice. `python tools/mutate.py` does it; this page is written from",
        "its lines by `python tools/scorecard.py`. Where fewer were tried than there are, they are a sample.",
        "",
    ]
    if not tried:
        return "\n".join([*rows, "Nothing is recorded yet."]) + "\n"
    known = sum(
        reason(line["module"], survivor["mutant"], reasons) != UNKNOWN
        for line in lines
        for survivor in line["survivors"]
    )
    whole = sum(line["mutants"] for line in lines)
    rows += [
        f"{noticed} of {tried} noticed ({100 * noticed / tried:.1f} %), since {since[:10]}; there are {whole}.",
        f"Of the {tried - noticed} survivors {known} have a reason why no promised value changes;",
        f"{tried - noticed - known} are waiting for a test.",
        "",
    ]
    rows += ["| module | mutants | tried | noticed | score | torch |", "|---|---|---|---|---|---|"]
    for line in lines:
        killed = line["killed"] + line["timeouts"]
        share = f"{100 * killed / line['tried']:.0f} %"
        rows.append(
            f"| {line['module']} | {line['mutants']} | {line['tried']} | {killed} | {share} | {line['torch']} |"
        )
    rows += ["", "## Survivors", "", "| module | change | why it is not noticed |", "|---|---|---|"]
    for line in lines:
        for survivor in line["survivors"]:
            text = survivor["mutant"].replace("|", "\\|").replace("\n", " ")
            rows.append(
                f"| {line['module']} | `{text}` | {reason(line['module'], survivor['mutant'], reasons)} |"
            )
    return "\n".join(rows) + "\n"


def reason(module: str, mutant: str, reasons: list[list[str]]) -> str:
    """The first reason whose patterns match the module and the mutant."""
    for where, what, why in reasons:
        if re.search(where, module) and re.search(what, mutant):
            return why
    return UNKNOWN


def pages(root: Path) -> dict[Path, str]:
    """Every file that is written, by its path below the repository."""
    text = (root / PAGE).read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    marks = Marks(root)
    found = card(root / LINES, marks)
    made = f"{before}{BEGIN}\n\n{section(root / LINES, found, marks)}\n\n{END}{after}"
    return {PAGE: made, MUTATION: mutation_page(root / LINES), RECORDED: recorded(found, marks)}


def unmarked(text: str) -> str:
    """A page without what it says of later changes: those come with every commit, the figures with the lines."""
    if text.startswith("{"):
        checks = json.loads(text)["checks"]
        return json.dumps(
            [{k: v for k, v in row.items() if k not in ("covers", "changed")} for row in checks]
        )
    kept = [line for line in text.splitlines() if not line.startswith(SINCE)]
    return re.sub(r"\n{2,}", "\n\n", re.sub(r"(?m)^(\| \d+ \|.*)\|[^|]*\|$", r"\1", "\n".join(kept)))


def stale(root: Path) -> list[str]:
    """The files whose figures are not what the recorded lines give."""
    made = {root / p: text for p, text in pages(root).items()}
    return [
        p.name for p, text in made.items() if not p.is_file() or unmarked(p.read_text()) != unmarked(text)
    ]


def main() -> None:
    """The command line."""
    if "--check" in sys.argv[1:]:
        sys.exit("\n".join(f"not up to date: {name}" for name in stale(ROOT)) or 0)
    for path, text in pages(ROOT).items():
        (ROOT / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
