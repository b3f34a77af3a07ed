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
Annotator = Annotated[str | None, typer.Option(help="Column of the annotator, for labels of several people.")]
Item = Annotated[str | None, typer.Option(help="Column of the item, where it has several labels.")]
Features = Annotated[
    str | None,
    typer.Option(help="Columns to learn from, with commas; else all but ids and copies of the label."),
]
Clean = Annotated[str | None, typer.Option(help="Column of true labels, for scoring only.")]
Backbone = Annotated[str, typer.Option(help="Network: auto, mlp, lenet5, cnn4, resnet32, timm:NAME, ...")]
Size = Annotated[int | None, typer.Option(help="Side that images are scaled to.")]
Epochs = Annotated[int | None, typer.Option(help="Passes over the data; by its size unless given.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Delimiter = Annotated[str | None, typer.Option(help="Of a text table; a comma, and a tab in .tsv.")]
Anonymise = Annotated[
    bool,
    typer.Option(
        "--anonymise", help="Number the annotators in what is shown and in the report; not in CSV files."
    ),
]


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
    masks: Annotated[
        Path | None, typer.Option(help="Folder of masks: DATA is then a folder of images, matched by name.")
    ] = None,
    values: Annotated[
        str | None, typer.Option(help="Pixel value of each class in the masks: 0,255 or #000000,#ff0000.")
    ] = None,
    void: Annotated[str, typer.Option(help="Pixel value to be left out of the masks, or none.")] = "255",
    suffix: Annotated[str, typer.Option(help="What a mask's name has after its image's, as _mask.")] = "",
    several: Annotated[
        bool, typer.Option("--several", help="Masks lie in one folder per annotator.")
    ] = False,
) -> None:
    """Train on labels that may be wrong: a model, predictions, the quality of every label, a report.

    The same command goes on where it was stopped. With --gold a run takes in labels that were checked.
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
    method: Annotated[str, typer.Option(help="Where data is to be trained on first.")] = "auto",
    epochs: Epochs = None,
    seed: Seed = 0,
    device: Device = "auto",
    delimiter: Delimiter = None,
    anonymise: Anonymise = False,
) -> None:
    """Which labels are wrong: ranked, with the noise rate, its kind, the annotators, what to check first."""
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
        str, typer.Option(help="Names with commas; tests are against the first.")
    ] = "ce,gce,ln",
    seeds: Annotated[int, typer.Option(help="Splits and starts, the same for all methods.")] = 3,
    form: Annotated[str, typer.Option("--format", help="text, csv or json.")] = "text",
    out: Annotated[Path | None, typer.Option(help="Folder to resume from and for the tables.")] = None,
    images: Images = None,
    label: Label = None,
    annotator: Annotator = None,
    item: Item = None,
    features: Features = None,
    clean: Clean = None,
    backbone: Backbone = "auto",
    size: Size = None,
    epochs: Epochs = None,
    seed: Seed = 0,
    device: Device = "auto",
    delimiter: Delimiter = None,
) -> None:
    """Methods side by side: the same splits, the same budget, noisy validation labels, paired tests."""
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


EXAMPLES: dict[Callable[..., None], str] = {
    fit: "Examples: dubito fit labels.csv --out runs/mine   |   dubito fit photos/ --out runs/photos   |   "
    "dubito fit crowd.csv --images photos/ --method trace --out runs/crowd   |   "
    "dubito fit runs/mine --gold runs/mine/relabel.csv",
    predict: "Example: dubito predict runs/mine new.csv --out predictions.csv",
    audit: "Examples: dubito audit runs/mine   |   dubito audit labels.csv --probs probs.csv   |   "
    "dubito audit labels.csv --out audit",
    compare: "Example: dubito compare labels.csv --methods ce,gce,ln,auto --seeds 3",
}


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for command, epilog in EXAMPLES.items():
        app.command(epilog=epilog)(command)
