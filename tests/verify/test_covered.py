"""A record says of which code it speaks, and the card says what was changed since."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dubito.verify.covered import digests
from dubito.verify.scorecard import recorded, recorded_lines
from scorecard_recorder import code, session

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / "tools").is_dir():
    pytest.skip("the tools are not here", allow_module_level=True)
sys.path.append(str(ROOT / "tools"))

import scorecard as tool  # noqa: E402
from covered_parts import Imports, Marks  # noqa: E402

SOURCES = {
    "src/dubito/__init__.py": '_HOME = {"nll": "losses"}',
    "src/dubito/losses/__init__.py": "def nll():\n    from .. import _numbers\n",
    "src/dubito/_numbers.py": "",
    "src/dubito/train.py": "from dubito.losses import nll",
    "src/dubito/other.py": "",
    "tests/a/test_nll.py": "from dubito import nll\ndef test_x(): ...",
    "tests/a/test_runs.py": "JOB = 'job.py'\ndef test_x(): ...",
    "tests/a/job.py": "import dubito.train",
    "tests/a/test_all.py": "import dubito\ndef test_x(): ...",
    "tests/a/test_text.py": "import ast\nSOURCE = 'src'\ndef test_x(): ...",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A package of four parts, and tests of it."""
    for name, text in SOURCES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("test", "parts"),
    [
        ("nll", {"losses", "_numbers"}),
        ("runs", {"train", "losses", "_numbers"}),
        ("all", {"__init__", "train", "losses", "_numbers", "other"}),
        ("text", {"__init__", "train", "losses", "_numbers", "other"}),
    ],
)
def test_what_a_test_reaches(tree: Path, test: str, parts: set[str]) -> None:
    """Names of the index, imports within functions, programs beside it, the whole package, its text."""
    assert Imports(tree).reached([tree / f"tests/a/test_{test}.py"]) == parts


def record(tree: Path, test: str) -> None:
    """A session with one test of check 29, as the recorder writes it, dated back."""
    head = {**session(0.0), "parts": digests(tree / "src/dubito")}
    line = {"test": f"tests/a/test_{test}.py::test_x", "checks": [29], "passed": 1, "failed": 0, "skipped": 0,
            "figures": {"29": {"findings": [0]}}, "code": code(tree / f"tests/a/test_{test}.py", tree)}  # fmt: skip
    (tree / "lines").mkdir(exist_ok=True)
    (tree / "lines" / f"{test}.jsonl").write_text(f"{json.dumps({'session': head})}\n{json.dumps(line)}\n")


def verdict(tree: Path) -> Any:
    return tool.card(tree / "lines", Marks(tree))[28]


@pytest.mark.rel
def test_a_change_of_what_is_covered_is_told(tree: Path) -> None:
    """Scorecard 38: a figure made before its code or its test was changed says so; a change elsewhere is none."""
    record(tree, "nll")
    assert (verdict(tree).passed, verdict(tree).changed) == (True, ())
    assert verdict(tree).covers == ("_numbers", "losses")
    (tree / "src/dubito/other.py").write_text("x = 1")
    assert verdict(tree).changed == ()
    (tree / "src/dubito/_numbers.py").write_text("x = 1")
    assert verdict(tree).changed == ("_numbers",)
    (tree / "tests/a/test_nll.py").write_text("from dubito import nll\ndef test_x(): pass")
    assert verdict(tree).changed == ("_numbers", "tests")
    record(tree, "nll")
    assert verdict(tree).changed == ()
    record(tree, "runs")
    (tree / "tests/a/job.py").write_text("import dubito.train as t")
    assert verdict(tree).changed == ("tests",)
    page = tool.section(tree / "lines", tool.card(tree / "lines", Marks(tree)), Marks(tree))
    assert "Changed since: the code that 1 of the 38 checks reach" in page
    (row,) = [line for line in page.splitlines() if line.startswith("| 29 |")]
    assert row.endswith("| tests |")


def test_a_record_of_a_test_that_is_gone_says_nothing(tree: Path) -> None:
    record(tree, "nll")
    (tree / "tests/a/test_nll.py").write_text("def test_y(): ...")
    assert verdict(tree).figure == "not recorded"


def test_lines_without_digests_are_of_unknown_code(tree: Path) -> None:
    record(tree, "nll")
    path = tree / "lines" / "nll.jsonl"
    head, line = map(json.loads, path.read_text().splitlines())
    del head["session"]["parts"]
    path.write_text(f"{json.dumps(head)}\n{json.dumps(line)}\n")
    assert verdict(tree).changed == ("code not named in the record",)


@pytest.mark.rel
def test_verify_says_it_of_the_files_at_hand() -> None:
    """Scorecard 38: the user's own files are compared, whatever the page said when it was written."""
    here = digests()
    for row in recorded({**here, "checkpoint": "changed"}):
        assert ("checkpoint" in row["changed"]) == ("checkpoint" in row["covers"])
    text = recorded_lines(now={**here, "checkpoint": "changed"})
    assert "changed after they were recorded" in text[1]
    (kills,) = [line for line in text if line[6:8] == "22"]
    assert "CHANGED SINCE" in kills


def test_marks_alone_make_no_page_stale() -> None:
    row = "| 1 | check | target | 3 of 3 | yes | 2026-01-01 | 2.13 | {} |"
    first, second = f"a\n\nChanged since: b.\n\n{row.format('-')}\n", f"a\n\n{row.format('losses, train')}\n"
    assert tool.unmarked(first) == tool.unmarked(second)
    assert tool.unmarked(first) != tool.unmarked(second.replace("3 of 3", "2 of 3"))
