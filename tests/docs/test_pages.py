"""Every block of code in the documentation runs."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from pages import DOCS, alike, fences, read, written

README = DOCS.parent / "README.md"
# What the first lines of the README leave to the reader.
README_SETUP = """
import torch
from torch import nn
import dubito
backbone = nn.Sequential(nn.Linear(20, 512), nn.ReLU())
net = nn.Linear(20, 10)
inputs, targets = torch.randn(50, 20), torch.randint(10, (50,))
train = valid = dubito.LabelledData(inputs, targets)
items, annotators, labels = [0, 0, 1, 1, 2, 2], ["a", "b"] * 3, [1, 1, 0, 1, 0, 0]
"""


def _cases():
    for path in written():
        page = read(path)
        marks = [pytest.mark.nightly] if page.nightly else []
        if page.blocks:
            yield pytest.param(page, marks=marks, id=path.relative_to(DOCS).with_suffix("").as_posix())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to run in, with the commands of this environment and quiet plots."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    return tmp_path


@pytest.mark.parametrize("page", list(_cases()))
def test_page_runs(page, folder, request, monkeypatch):
    if page.needs:
        monkeypatch.setenv("DUBITO_DATA", str(request.getfixturevalue("shared_data")))
    _run(page.path, page.blocks, {"__name__": "page"})


@pytest.mark.nightly
def test_readme_runs(folder, monkeypatch):
    blocks = [replace(b, text=b.text.replace("epochs=100", "epochs=2")) for b in read(README).blocks]
    assert blocks
    assert any(b.prints for b in blocks)
    names = {"__name__": "page"}
    exec(README_SETUP, names)
    _run(README, blocks, names)


def _run(path, blocks, names):
    for block in blocks:
        if block.file:
            Path(block.file).write_text(block.text, encoding="utf-8")
        if block.language == "console":
            said = _shell(block)
        else:
            # Blank lines in front make the numbers in a traceback those of the page.
            code = compile("\n" * (block.line - 1) + block.text, str(path), "exec")
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(code, names)
            said = out.getvalue()
        assert not block.prints or alike(block.prints, said), f"{path.name}:{block.line} prints\n{said}"


def _shell(block):
    """Run the commands; what they print."""
    said = ""
    for command in (line[2:] for line in block.text.splitlines() if line.startswith("$ ")):
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        said += done.stdout
    return said


@pytest.mark.parametrize(
    ("shown", "said", "same"),
    [
        ("rate 19.7 %", "rate 19.8 %", True),
        ("rate 19.7 %", "rate 29.7 %", False),
        ("rate 19.7 %", "share 19.7 %", False),
        ("a\n...\nd", "a\nb\nc\nd", True),
        ("a\n...\nd", "a\nb\nc", False),
        ("a", "a\nb", False),
        ("a\nb", "a", False),
    ],
)
def test_shown_output_is_compared(shown, said, same):
    assert alike(shown, said) == same


def test_every_block_says_what_it_is():
    """A block without a language would be shown and never run."""
    known = {
        "python",
        "console",
        "text",
        "csv",
        "json",
        "toml",
        "{toctree}",
        "{eval-rst}",
        "{literalinclude}",
    }
    odd = []
    for path in written():
        text = path.read_text(encoding="utf-8")
        odd += [f"{path.name}: {lang!r}" for _, lang, _, _ in fences(text) if lang not in known]
    assert not odd


def test_what_is_not_run_says_why():
    for path in written():
        for reason in re.findall(r"<!--\s*not run:?(.*?)-->", path.read_text(encoding="utf-8"), re.DOTALL):
            assert len(reason.split()) >= 3, f"{path.name} leaves a block out without a reason"
