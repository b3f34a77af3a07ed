"""`dubito paper`: list, run, print and check the papers' tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog="Examples:\n\ndubito paper list\n\ndubito paper table englesson2023.table1-mnist",
)

Name = Annotated[str, typer.Argument(help="A table or figure, as englesson2023.table1-mnist.")]
Folders = Annotated[
    list[Path] | None, typer.Option(help="Folders of result files; the repository's results/ by default.")
]
Size = Annotated[str, typer.Option(help="smoke, small or paper.")]
Data = Annotated[str | None, typer.Option(help="Another data set than the paper's.")]
Methods = Annotated[
    str | None, typer.Option(help="Rows: names of methods, variants, or mine.py:mine, with commas.")
]


Overrides = Annotated[
    list[str] | None,
    typer.Argument(help="key=v1,v2 picks runs with these values, or sets them; seed=0..24 is a range."),
]


@app.command("list", epilog="Example: dubito paper list")
def list_() -> None:
    """Every table and figure, its runs and what it costs at the paper's size."""
    from .listing import listing, results_of

    typer.echo(listing(results_of(None, needed=False)), nl=False)


@app.command(
    epilog="Example: dubito paper run englesson2023.table1-mnist method=ce,ln rate=0.4 seed=0..2 --out runs"
)
def run(
    name: Name,
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option(help="Folder for results, shared by all workers.")] = Path(
        "runs/papers"
    ),
    size: Size = "paper",
    data: Data = None,
    methods: Methods = None,
    workers: Annotated[int, typer.Option(help="Processes on this machine.")] = 1,
    streams: Annotated[bool, typer.Option(help="Networks many at a time on one GPU.")] = False,
    lanes: Annotated[int, typer.Option(help="With --streams: larger networks at a time.")] = 8,
    seconds: Annotated[
        float | None,
        typer.Option(help="With --streams: after so many larger networks stop; the same command goes on."),
    ] = None,
    ray: Annotated[
        bool, typer.Option("--ray", help="Tasks of a Ray cluster (RAY_ADDRESS; else this machine).")
    ] = False,
    cpus: Annotated[float, typer.Option(help="Of a run on the cluster.")] = 1.0,
    gpus: Annotated[
        float | None, typer.Option(help="Of a run on the cluster; 0.25 is four runs on one GPU.")
    ] = None,
    retries: Annotated[int, typer.Option(help="After the loss of a node or process.")] = 3,
    search: Annotated[
        bool, typer.Option(help="Choose hyper-parameters by noisy validation first, as the paper does.")
    ] = False,
    root: Annotated[Path | None, typer.Option(help="Folder of data; else DUBITO_DATA.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Train the runs of a table or figure; finished ones are skipped, failed ones repeated."""
    from .jobs import Job

    job = Job(name, size, data, _names(methods), overrides or [], out)
    failed = job.run(
        workers=workers, streams=streams, lanes=lanes, seconds=seconds, ray=ray, cpus=cpus, gpus=gpus,
        retries=retries, search=search, root=root, device=device, say=typer.echo,
    )  # fmt: skip
    raise typer.Exit(1 if failed else 0)


@app.command(epilog="Example: dubito paper table englesson2023.table1-mnist --methods ce,ln,mine.py:mine")
def table(
    name: Name,
    overrides: Overrides = None,
    form: Annotated[str, typer.Option(help="text, markdown, latex, csv or html.")] = "text",
    methods: Methods = None,
    results: Folders = None,
    size: Size = "paper",
    data: Data = None,
    search: Annotated[bool, typer.Option(help="With the hyper-parameters that our search chose.")] = False,
    reference: Annotated[
        str | None,
        typer.Option(help="The row that others are tested against, by seed; of some tables there is one."),
    ] = None,
    holm: Annotated[bool, typer.Option(help="Correct the tests of the whole table (Holm).")] = False,
) -> None:
    """Our results beside the paper's numbers, with differences and verdicts."""
    from . import item
    from .collect import collect
    from .listing import results_of
    from .render import render

    found = collect(
        name, item(name), results_of(results), size=size, data=data, methods=_names(methods),
        overrides=overrides or [], own_search=search, reference=reference, corrected=holm,
    )  # fmt: skip
    typer.echo(render(found, form), nl=False)


@app.command(epilog="Example: dubito paper check englesson2023")
def check(
    paper: Annotated[str, typer.Argument(help="collier2020, englesson2023, lukasik2020 or tanno2019.")],
    results: Folders = None,
    size: Size = "paper",
) -> None:
    """Every statement of a paper: does it hold in our results, fail, or can it not be told?"""
    from .claims import check as judge
    from .claims import report
    from .listing import results_of

    typer.echo(report(paper, judge(paper, results_of(results), size=size)), nl=False)


@app.command(epilog="Example: dubito paper figure lukasik2020.figure1 --out figures")
def figure(
    name: Name,
    out: Annotated[Path, typer.Option(help="Folder for the SVG and the PNG.")] = Path("figures"),
    results: Folders = None,
    size: Size = "paper",
    data: Data = None,
) -> None:
    """Draw a figure from result files."""
    from .figures import draw
    from .listing import results_of

    for path in draw(name, results_of(results, needed=False), out, size=size, data=data):
        typer.echo(str(path))


@app.command(epilog="Example: dubito paper audit --item englesson2023.table1-mnist --choice 7")
def audit(
    item: Annotated[str | None, typer.Option(help="A table; any by default.")] = None,
    results: Folders = None,
    choice: Annotated[
        int | None, typer.Option(help="Seed of the random cell; the time of day by default.")
    ] = None,
    level: Annotated[float, typer.Option(help="Of the prediction interval.")] = 0.99,
    root: Annotated[Path | None, typer.Option(help="Folder of data; else DUBITO_DATA.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    dry: Annotated[bool, typer.Option("--dry", help="Only say which cell.")] = False,
    out: Annotated[Path | None, typer.Option(help="A file that gets a line of JSON.")] = None,
) -> None:
    """Run a random published cell once more, with a new seed, and hold it against its prediction interval."""
    from .audit import audit as job
    from .listing import results_of

    held = job(
        results_of(results), item=item, choice=choice, level=level, root=root, device=device, dry=dry,
        out=out, say=typer.echo,
    )  # fmt: skip
    raise typer.Exit(0 if held else 1)


def _names(text: str | None) -> list[str] | None:
    """ "ce,ln:covariance=diagonal" at its commas; those between options belong to the method before them."""
    if text is None:
        return None
    found: list[str] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        if found and "=" in part and ":" not in part:
            found[-1] += f",{part}"
        else:
            found.append(part)
    if not found:
        from ..errors import DubitoError

        raise DubitoError("no method is named", where="--methods", got=repr(text))
    return found
