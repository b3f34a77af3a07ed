"""`dubito fit`, `predict`, `audit` and `compare`. What they need is imported when they run."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ..errors import DubitoError, nearest, printable

Images = Annotated[Path | None, typer.Option(help="Folder that image paths in the table refer to.")]
Label = Annotated[str | None, typer.Option(help="Column of the label.")]
Annotator = Annotated[
    str | None, typer.Option(help="Column that names who gave the label, if several people did.")
]
Item = Annotated[str | None, typer.Option(help="Column of the item, if items have several labels.")]
Features = Annotated[
    str | None,
    typer.Option(help="Columns to learn from, with commas; else all but ids and copies of the label."),
]
Clean = Annotated[str | None, typer.Option(help="Column of true labels. They are used for scoring only.")]
Backbone = Annotated[
    str, typer.Option(help="Network: auto, mlp, forest, lenet5, cnn4, resnet32, timm:NAME, ...")
]
Size = Annotated[int | None, typer.Option(help="Images are scaled to squares of this many pixels.")]
Epochs = Annotated[int | None, typer.Option(help="Passes over the data; by its size unless given.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Delimiter = Annotated[str | None, typer.Option(help="Between columns: a comma unless given, in .tsv a tab.")]
Anonymise = Annotated[
    bool,
    typer.Option("--anonymise", help="Number the annotators in all that is shown, but not in CSV files."),
]
Groups = Annotated[str | None, typer.Option(help="Column of groups, as patients: folds cut none of them.")]


def fit(
    data: Annotated[
        Path,
        typer.Argument(help="A CSV, TSV, Parquet or npz file; a folder with a folder per class; or a run."),
    ],
    out: Annotated[Path | None, typer.Option(help="Folder for the results; it is made if need be.")] = None,
    images: Images = None,
    label: Label = None,
    annotator: Annotator = None,
    item: Item = None,
    features: Features = None,
    clean: Clean = None,
    groups: Groups = None,
    method: Annotated[
        str, typer.Option(help="auto, a method (ce, gce, ln, trace, ...) or mine.py:mine.")
    ] = "auto",
    backbone: Backbone = "auto",
    size: Size = None,
    epochs: Epochs = None,
    folds: Annotated[int, typer.Option(help="Parts, each judged by a network of the others.")] = 5,
    seed: Seed = 0,
    device: Device = "auto",
    gold: Annotated[Path | None, typer.Option(help="Checked labels: a CSV with columns id and gold.")] = None,
    delimiter: Delimiter = None,
    anonymise: Anonymise = False,
    masks: Annotated[
        Path | None, typer.Option(help="Folder of masks: DATA is then a folder of images, matched by name.")
    ] = None,
    values: Annotated[
        str | None, typer.Option(help="Pixel value of each class in the masks: 0,255 or #000000,#ff0000.")
    ] = None,
    void: Annotated[str, typer.Option(help="Pixel value to be left out of the masks, or none.")] = "255",
    suffix: Annotated[str, typer.Option(help="What ends the name of a mask, such as _mask.")] = "",
    several: Annotated[bool, typer.Option("--several", help="Each annotator has a folder of masks.")] = False,
) -> None:
    """Train on labels that may be wrong: you get a model, predictions, the quality of every label, and a report.

    You can stop it and give the same command again to go on. With --gold it learns from labels you checked.
    """
    from .tasks import FitJob
    from .tasks import fit as run

    is_run = (data / "config.json").is_file()
    if out is None and not is_run:
        raise DubitoError("no folder for the run", remedy="name one: --out RUN")
    job = FitJob(
        data,
        data if out is None else out,
        images=images,
        label=label,
        annotator=annotator,
        item=item,
        features=_names(features),
        clean=clean,
        groups=groups,
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
        masks=masks,
        options={"delimiter": delimiter} if masks is None else _pixels(values, void, suffix, several),
    )
    with _resumable():
        _say(f"report: {run(job, _say)}")


def _pixels(values: str | None, void: str, suffix: str, several: bool) -> dict[str, object]:
    """Options of `dubito.data.mask_folders`."""
    return {
        "values": None if values is None else tuple(v.strip() for v in values.split(",")),
        "void": None if void == "none" else void,
        "suffix": suffix,
        "annotators": several,
    }


def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    data: Annotated[Path, typer.Argument(help="New items, in the form that the run was trained on.")],
    out: Annotated[Path, typer.Option(help="CSV file to write; for masks a folder.")] = Path(
        "predictions.csv"
    ),
    images: Images = None,
    device: Device = "auto",
    delimiter: Delimiter = None,
) -> None:
    """Classes and probabilities of new items, by a trained run."""
    from .tasks import PredictJob
    from .tasks import predict as work

    _say(f"written: {work(PredictJob(run, data, out, images, device, delimiter), _say)}")


def audit(
    data: Annotated[Path, typer.Argument(help="A run; or data, with --probs or to be trained on first.")],
    probs: Annotated[
        Path | None, typer.Option(help="Out-of-fold probabilities of any model: CSV, Parquet, npy or npz.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for audit.csv and audit.html.")] = None,
    gold: Annotated[Path | None, typer.Option(help="Checked labels: columns id and gold.")] = None,
    images: Images = None,
    label: Label = None,
    annotator: Annotator = None,
    item: Item = None,
    features: Features = None,
    groups: Groups = None,
    method: Annotated[str, typer.Option(help="Method, if DATA must be trained on first.")] = "auto",
    epochs: Epochs = None,
    seed: Seed = 0,
    device: Device = "auto",
    delimiter: Delimiter = None,
    anonymise: Anonymise = False,
) -> None:
    """Find wrong labels: how many there are, of what kind, by whom, and which to check first."""
    from .auditing import run
    from .tasks import FitJob

    is_run = (data / "config.json").is_file()
    job = FitJob(
        data,
        out or (data if is_run else Path(f"{data.name.partition('.')[0]}-audit")),
        images=images,
        label=label,
        annotator=annotator,
        item=item,
        features=_names(features),
        groups=groups,
        method=method,
        epochs=epochs,
        seed=seed,
        device=device,
        gold=gold,
        anonymise=anonymise,
        command=_command(),
        options={"delimiter": delimiter},
    )
    with _resumable():
        for path in run(job, probs, _say):
            _say(f"written: {path}")


def compare(
    data: Annotated[Path, typer.Argument(help="CSV, TSV, Parquet or npz file, or a folder per class.")],
    methods: Annotated[
        str, typer.Option(help="Names separated by commas; each is tested against the first.")
    ] = "ce,gce,ln",
    seeds: Annotated[int, typer.Option(help="How many splits and starts; all methods get the same.")] = 3,
    form: Annotated[str, typer.Option("--format", help="text, csv or json.")] = "text",
    out: Annotated[Path | None, typer.Option(help="Folder for the tables, and to go on from.")] = None,
    images: Images = None,
    label: Label = None,
    annotator: Annotator = None,
    item: Item = None,
    features: Features = None,
    clean: Clean = None,
    groups: Groups = None,
    backbone: Backbone = "auto",
    size: Size = None,
    epochs: Epochs = None,
    seed: Seed = 0,
    device: Device = "auto",
    delimiter: Delimiter = None,
) -> None:
    """Which method is better on your data: same splits, same budget, noisy validation labels, paired tests."""
    from . import comparing
    from .tasks import FitJob

    job = FitJob(
        data,
        out or Path("."),
        images=images,
        label=label,
        annotator=annotator,
        item=item,
        features=_names(features),
        clean=clean,
        groups=groups,
        backbone=backbone,
        size=size,
        epochs=epochs,
        seed=seed,
        device=device,
        options={"delimiter": delimiter},
    )
    if form not in comparing.FORMATS:
        raise DubitoError("unknown format", got=repr(form), remedy=nearest(form, comparing.FORMATS))
    names = _methods(methods)
    say = _say if form == "text" else partial(_say, err=True)
    with _resumable(), nullcontext() if out is None else comparing.hold(out, job, names, seeds):
        table = comparing.run(job, names, seeds, out, say)
        if out is not None:
            comparing.write(out, table)
        typer.echo(comparing.render(table, form), nl=False)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(n.strip() for n in (text or "").split(",") if n.strip())


def _methods(text: str) -> tuple[str, ...]:
    """Names with commas, where a comma may also stand between the parameters of one: ce,ln:lam=1,temperature=2."""
    names: list[str] = []
    for part in _names(text):
        if "=" in part and ":" not in part and names and ":" in names[-1]:
            names[-1] += f",{part}"
        else:
            names.append(part)
    return tuple(names)


def _say(text: str, err: bool = False) -> None:
    """Print; where nobody listens any more (``| head``) the work goes on in silence."""
    try:
        typer.echo(printable(text), err=err)
    except BrokenPipeError:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), (sys.stderr if err else sys.stdout).fileno())


def _command() -> str:
    """What was typed, to stand in the report."""
    return shlex.join(["dubito", *sys.argv[1:]])


@contextmanager
def _resumable() -> Iterator[None]:
    """Ctrl-C and SIGTERM end in a sentence; what was trained so far is on the disk."""
    from ..signals import Stopped

    try:
        yield
    except (KeyboardInterrupt, Stopped) as stop:
        typer.echo("stopped; the same command goes on from here", err=True)
        raise typer.Exit(130 if isinstance(stop, KeyboardInterrupt) else int(stop.code or 130)) from None


EXAMPLES: dict[Callable[..., None], str] = {  # a paragraph each, so that each is a line
    fit: "Examples:\n\ndubito fit labels.csv --out runs/mine\n\ndubito fit photos/ --out runs/photos\n\n"
    "dubito fit crowd.csv --images photos/ --method trace --out runs/crowd\n\n"
    "dubito fit runs/mine --gold runs/mine/relabel.csv",
    predict: "Example:\n\ndubito predict runs/mine new.csv --out predictions.csv",
    audit: "Examples:\n\ndubito audit runs/mine\n\ndubito audit labels.csv --probs probs.csv\n\n"
    "dubito audit labels.csv --out audit",
    compare: "Example:\n\ndubito compare labels.csv --methods ce,gce,ln,auto --seeds 3",
}


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for command, epilog in EXAMPLES.items():
        app.command(epilog=epilog)(command)
