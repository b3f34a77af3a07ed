"""The command line. Commands import what they need when they run, so that --help answers at once."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from .errors import DubitoError
from .papers.commands import app as paper_app

app = typer.Typer(
    name="dubito",
    help="Learning from labels you cannot trust.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(paper_app, name="paper", help="Tables and figures of the papers: run, print, check.")


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if version:
        from . import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.command(epilog="Example: dubito demo --out my-demo")
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("dubito-demo"),
    seed: Annotated[int, typer.Option(help="Seed of noise, split and weights.")] = 0,
) -> None:
    """Train cross-entropy and five robust methods on digits with noisy labels; under a minute."""
    from rich.console import Console

    from . import demo as job

    console = Console(width=100)
    console.print(
        "1,797 digits. Labels of 5 to 9 are re-drawn at random with probability .2, .3, .4, .5, .6."
    )
    head = f"{'method':<46}{'noisy acc':>10}{'clean acc':>11}{'noisy LL':>10}{'ECE':>8}{'s':>7}"
    console.print(head, style="bold")

    def show(row: job.Row) -> None:
        console.print(
            f"{row.method:<46}{row.noisy_accuracy:>10.3f}{row.clean_accuracy:>11.3f}"
            f"{row.noisy_log_likelihood:>10.3f}{row.ece:>8.3f}{row.seconds:>7.1f}",
            highlight=False,
        )

    path = job.run(out, seed, show)
    console.print(
        "Accuracy, log-likelihood and ECE against noisy test labels; clean accuracy against the truth."
    )
    console.print(f"picture: {path}")


Images = Annotated[Path | None, typer.Option(help="Folder that image paths in the table refer to.")]
Label = Annotated[str | None, typer.Option(help="Column of the label.")]
Annotator = Annotated[str | None, typer.Option(help="Column of the annotator, for labels of several people.")]
Item = Annotated[str | None, typer.Option(help="Column of the item, where it has several labels.")]
Features = Annotated[str | None, typer.Option(help="Columns of numbers, with commas; else all that are.")]
Clean = Annotated[str | None, typer.Option(help="Column of true labels, for scoring only.")]
Backbone = Annotated[str, typer.Option(help="Network: auto, mlp, lenet5, cnn4, resnet32, timm:NAME, ...")]
Size = Annotated[int | None, typer.Option(help="Side that images are scaled to.")]
Epochs = Annotated[int | None, typer.Option(help="Passes over the data; by its size unless given.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Delimiter = Annotated[str | None, typer.Option(help="Of a text table; a comma, and a tab in .tsv.")]
Anonymise = Annotated[bool, typer.Option("--anonymise", help="Number the annotators in the report.")]


@app.command(
    epilog="Examples: dubito fit labels.csv --out runs/mine   |   dubito fit photos/ --out runs/photos   |   "
    "dubito fit crowd.csv --images photos/ --method trace --out runs/crowd   |   "
    "dubito fit runs/mine --gold runs/mine/relabel.csv"
)
def fit(
    data: Annotated[
        Path,
        typer.Argument(help="CSV, TSV, Parquet or npz file, a folder with one folder per class; or a run."),
    ],
    out: Annotated[Path | None, typer.Option(help="Folder for the run.")] = None,
    images: Images = None,
    label: Label = None,
    annotator: Annotator = None,
    item: Item = None,
    features: Features = None,
    clean: Clean = None,
    method: Annotated[
        str, typer.Option(help="auto, a method (ce, gce, ln, trace, ...) or mine.py:mine.")
    ] = "auto",
    backbone: Backbone = "auto",
    size: Size = None,
    epochs: Epochs = None,
    folds: Annotated[int, typer.Option(help="Parts that labels are judged in, out of fold.")] = 5,
    seed: Seed = 0,
    device: Device = "auto",
    gold: Annotated[Path | None, typer.Option(help="Checked labels for a run: columns id and gold.")] = None,
    delimiter: Delimiter = None,
    anonymise: Anonymise = False,
) -> None:
    """Train on labels that may be wrong: a model, predictions, the quality of every label, a report.

    The same command goes on where it was stopped. With --gold a run takes in labels that were checked.
    """
    from ._product.tasks import FitJob
    from ._product.tasks import fit as run

    is_run = (data / "config.json").is_file()
    if out is None and not is_run:
        raise DubitoError("where should the run go?", remedy="give a folder: --out RUN")
    job = FitJob(
        data,
        data if out is None else out,
        images=images,
        label=label,
        annotator=annotator,
        item=item,
        features=_names(features),
        clean=clean,
        method=method,
        backbone=backbone,
        size=size,
        epochs=epochs,
        folds=folds,
        seed=seed,
        device=device,
        gold=gold,
        anonymise=anonymise,
        command=_command(),
        options={"delimiter": delimiter},
    )
    with _resumable():
        typer.echo(f"report: {run(job, typer.echo)}")


@app.command(epilog="Example: dubito predict runs/mine new.csv --out predictions.csv")
def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    data: Annotated[Path, typer.Argument(help="New items, in the form that the run was trained on.")],
    out: Annotated[Path, typer.Option(help="CSV file to write.")] = Path("predictions.csv"),
    images: Images = None,
    device: Device = "auto",
) -> None:
    """Classes and probabilities of new items, by a trained run."""
    from ._product.tasks import PredictJob
    from ._product.tasks import predict as work

    typer.echo(f"written: {work(PredictJob(run, data, out, images, device), typer.echo)}")


@app.command(epilog="Example: dubito crowd labels.csv --out consensus")
def crowd(
    labels: Annotated[Path, typer.Argument(help="CSV or Parquet with one row per given label.")],
    item: Annotated[str | None, typer.Option(help="Column of the item.")] = None,
    annotator: Annotated[str | None, typer.Option(help="Column of the annotator.")] = None,
    label: Annotated[str | None, typer.Option(help="Column of the label.")] = None,
    method: Annotated[str, typer.Option(help="How to reach a consensus.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Folder for consensus.csv and label_quality.csv.")] = None,
    anonymise: Annotated[bool, typer.Option(help="Show numbers in place of annotators' names.")] = False,
) -> None:
    """Whom to trust and what they agree on: skills, confusions, agreement, whom to ask next."""
    from rich.console import Console

    from .crowd.command import run
    from .crowd.summary import render

    done = run(
        labels, item=item, annotator=annotator, label=label, method=method, out=out, anonymise=anonymise
    )
    console = Console()
    console.print(render(done.summary))
    for path in done.files:
        console.print(f"written: {path}")


@app.command(epilog="Example: dubito verify")
def verify() -> None:
    """Run the promises that matter on this machine, in about a minute."""
    from .verify import CHECKS, run

    failed = 0
    for verdict in run(CHECKS):
        failed += not verdict.passed
        mark = "pass" if verdict.passed else "FAIL"
        typer.echo(f"{mark}  {verdict.check.promise}: {verdict.figure} (target {verdict.check.target})")
    raise typer.Exit(1 if failed else 0)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(n.strip() for n in (text or "").split(",") if n.strip())


def _command() -> str:
    """What was typed, to stand in the report."""
    return shlex.join(["dubito", *sys.argv[1:]])


@contextmanager
def _resumable() -> Iterator[None]:
    """Ctrl-C and SIGTERM end in a sentence; what was trained so far is on the disk."""
    from .signals import Stopped

    try:
        yield
    except (KeyboardInterrupt, Stopped) as stop:
        typer.echo("stopped; the same command goes on from here", err=True)
        raise typer.Exit(130 if isinstance(stop, KeyboardInterrupt) else int(stop.code or 130)) from None


def main() -> None:
    """Entry point: an error of ours is one sentence, not a traceback."""
    try:
        app()
    except DubitoError as error:
        typer.echo(f"dubito: {error}", err=True)
        sys.exit(2)
