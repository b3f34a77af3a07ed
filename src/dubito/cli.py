"""The command line. Commands import what they need when they run, so that --help answers at once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ._product.commands import register
from .errors import DubitoError, printable
from .papers.commands import app as paper_app
from .signals import unwind_on_signals

app = typer.Typer(
    name="dubito",
    help="Learning from labels you cannot trust.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog="Start with one of these:\n\ndubito demo\n\ndubito fit labels.csv --out runs/mine",
)
app.add_typer(paper_app, name="paper", help="Tables and figures of the papers: run, print, check.")


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from . import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.command(epilog="Example: dubito demo --out my-demo")
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the data, the run and the report.")] = Path(
        "dubito-demo"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Seed of annotators, split and weights.")] = 0,
) -> None:
    """See it work, in under a minute: digits labelled by five simulated people, and a report."""
    from . import demo as job

    skills = ", ".join(f"{name} {100 * skill:.0f} %" for name, skill in job.SKILLS.items())
    typer.echo("1,797 handwritten digits; 1,197 of them are labelled by two of five simulated people each.")
    typer.echo(f"How often these are right: {skills}. dubito is not told.")
    found = job.run(out, seed, typer.echo)
    typer.echo("")
    typer.echo(f"{'':<30}{'training digits filed right':>30}{'new digits read right':>24}")
    for row in found.rows:
        typer.echo(f"{row.name:<30}{f'{100 * row.training:.1f} %':>30}{f'{100 * row.test:.1f} %':>24}")
    typer.echo(printable(f"report, to be opened in a browser: {found.report}"))


register(app)


@app.command(epilog="Example: dubito crowd labels.csv")
def crowd(
    labels: Annotated[Path, typer.Argument(help="CSV or Parquet with one row per given label.")],
    item: Annotated[str | None, typer.Option(help="Column of the item.")] = None,
    annotator: Annotated[str | None, typer.Option(help="Column of the annotator.")] = None,
    label: Annotated[str | None, typer.Option(help="Column of the label.")] = None,
    method: Annotated[str, typer.Option(help="How to reach a consensus.")] = "auto",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the four files; beside LABELS unless given."),
    ] = None,
    files: Annotated[
        bool, typer.Option(help="Write consensus.csv, label_quality.csv, annotators.csv, questions.csv.")
    ] = True,
    anonymise: Annotated[bool, typer.Option(help="Show numbers in place of annotators' names.")] = False,
    duplicates: Annotated[
        str, typer.Option(help="A second label of one annotator for one item: refuse, first, last or keep.")
    ] = "refuse",
    delimiter: Annotated[
        str | None, typer.Option(help="Of a text table; a comma, and a tab in .tsv.")
    ] = None,
    missing: Annotated[str | None, typer.Option(help="A label that means that there is none, as -1.")] = None,
    questions: Annotated[
        int, typer.Option(min=1, help="How many questions to ask next, as a budget allows.")
    ] = 5,
) -> None:
    """Whom to trust and what they agree on: skills, confusions, agreement, whom to ask next."""
    from rich.console import Console

    from ._files import exists
    from .crowd.command import run
    from .crowd.summary import render

    if not exists(labels):
        raise DubitoError("no such file", where=str(labels))
    place = (out or labels.with_name(f"{labels.stem}-consensus")) if files else None
    done = run(
        labels,
        item=item,
        annotator=annotator,
        label=label,
        method=method,
        out=place,
        anonymise=anonymise,
        duplicates=duplicates,
        delimiter=delimiter,
        missing=missing,
        questions=questions,
    )
    Console().print(render(done.summary))
    for path in done.files:
        typer.echo(printable(f"written: {path}"))


@app.command(epilog="Example: dubito verify")
def verify() -> None:
    """Run the promises that matter on this machine, in about a minute; show what was recorded of the others."""
    from .verify import CHECKS, recorded_lines, run

    failed = 0
    for verdict in run(CHECKS):
        failed += not verdict.passed
        mark = "pass" if verdict.passed else "FAIL"
        check = verdict.check
        typer.echo(f"{mark}  {check.number:>2}  {check.promise}: {verdict.figure} (target {check.target})")
    for line in recorded_lines({check.number for check in CHECKS}):
        typer.echo(line)
    raise typer.Exit(1 if failed else 0)


def main() -> None:
    """Entry point: an error of ours, of the disk or of memory is one sentence, not a traceback."""
    try:
        with unwind_on_signals():
            app()
    except DubitoError as error:
        said = str(error)
    except OSError as error:
        place = f" at {error.filename!r}" if error.filename is not None else ""
        said = f"the system refuses{place}: got {error.strerror or error}"
    except MemoryError:
        said = "there is not enough memory for this"
    else:
        return
    typer.echo(f"dubito: {printable(said)}", err=True)
    sys.exit(2)
