"""The tutorial does what it says: its file is written, its first commands are run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from typer.testing import CliRunner

from dubito.papers.choose import pick_methods
from dubito.papers.commands import _names, app
from dubito.papers.jobs import Job
from dubito.papers.results import read

PAGE = Path(__file__).resolve().parents[2] / "docs" / "add-a-method.md"


def commands(text: str) -> list[list[str]]:
    lines = re.findall(r"^\$ dubito paper (.*)$", text, re.M)
    return [shlex.split(line) for line in lines]


def test_a_method_of_ones_own_joins_a_table(tmp_path, tiny_data, monkeypatch):
    text = PAGE.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUBITO_DATA", str(tiny_data))
    for name, body in re.findall(r"```python file=(\S+)\n(.*?)```", text, re.S):
        (tmp_path / name).write_text(body)
    run, table, real, _ = commands(text)

    done = CliRunner().invoke(app, run)
    assert done.exit_code == 0, done.output
    assert "2 finished, 0 failed" in done.output
    assert {r.config.method for r in read(tmp_path / "runs")} == {"ce", "mine.py:mine"}

    shown = CliRunner().invoke(app, table)
    assert shown.exit_code == 0, shown.output
    block = shown.output.split("asymmetric 0.4")[1].split("\n\n")[0]
    row = next(line for line in block.splitlines() if line.strip().startswith("mine.py:mine"))
    assert re.search(r"\d\d?\.\d\d \(1\)  -", row)
    assert re.search(r"ce +\d\d?\.\d\d \(1\) +80\.31", block)

    # The commands at the paper's size mean the runs that the text says.
    methods = _names(real[real.index("--methods") + 1])
    assert len(Job(real[1], "paper", None, methods, [], tmp_path).configs()) == 3 * 9 * 5
    variant = pick_methods(read_configs(real[1]), ["mine.py:mine:power=0.5"])
    assert variant[0].params == (("power", 0.5),)


def read_configs(name: str):
    from dubito.papers import item

    return item(name).make("smoke", None, None)
