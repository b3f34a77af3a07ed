"""The papers page: up to date, complete, and its reader reads what it should."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "tools" / "papers_page.py"
pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="the repository's tools are not here")


@pytest.fixture(scope="module")
def page():
    path = list(sys.path)
    spec = importlib.util.spec_from_file_location("papers_page", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path[:] = path
    return module


def test_the_committed_page_is_the_one_the_sources_give(page):
    assert page.PAGE.read_text(encoding="utf-8") == page.render(), "run: python tools/papers_page.py"


def test_every_numbered_result_has_a_function_and_a_test(page):
    pending = {f"{paper} {item}" for paper, item in page.PENDING}
    lacking = {line.split(":")[0] for line in page.missing()}
    assert lacking <= pending


def test_the_list_is_complete(page):
    """Every equation up to the last one of each paper, in order and once."""
    for paper, last in {"collier2020": 8, "englesson2023": 26, "lukasik2020": 8, "tanno2019": 5}.items():
        items = [item for item, _, _ in page.ITEMS[paper]]
        assert [i for i in items if i.startswith("eq.")] == [f"eq. {n}" for n in range(1, last + 1)]
        assert len(items) == len(set(items))
    assert {"theorem 1"} <= {item for item, _, _ in page.ITEMS["lukasik2020"]}
    tanno = {item for item, _, _ in page.ITEMS["tanno2019"]}
    assert {"lemma 1", "theorem 1", "alg. 1", "alg. 2", "alg. 3"} <= tanno


def repository(folder, docstring="", mark=""):
    (folder / "src" / "dubito" / "losses").mkdir(parents=True)
    (folder / "tests").mkdir()
    (folder / "src" / "dubito" / "losses" / "odd.py").write_text(
        f'class Odd:\n    """{docstring}"""\n\n    def forward(self):\n        """Two.\n\n        Reference:\n'
        '            tanno2019 eq. 2\n        """\n\n\ndef _private():\n    """No.\n\n    Reference:\n'
        '        tanno2019 eq. 3\n    """\n'
    )
    (folder / "tests" / "test_odd.py").write_text(f"import pytest\n\n\n{mark}\ndef test_odd():\n    pass\n")
    return folder


def test_docstrings_and_marks_are_read(page, tmp_path):
    cited = "tanno2019 eq. 1, lemma 1\n        Somebody 2017"
    doc = f"One.\n\n    Reference:\n        {cited}\n\n    Example:\n        x\n    "
    mark = '@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.paper("tanno2019 eq. 4"))])'
    root = repository(tmp_path, doc, mark)
    assert set(page.references(root)) == {("tanno2019", i) for i in ("eq. 1", "lemma 1", "eq. 2")}
    home = Path("src/dubito/losses/odd.py")
    assert page.references(root)["tanno2019", "eq. 1"] == {("losses.Odd", home)}
    assert page.references(root)["tanno2019", "eq. 2"] == {("losses.Odd.forward", home)}
    assert page.marks(root) == {("tanno2019", "eq. 4"): {("test_odd", Path("tests/test_odd.py"))}}


@pytest.mark.parametrize(
    ("docstring", "mark"),
    [
        ("One.\n\n    Reference:\n        tanno2019 eq. 99\n    ", ""),
        ("One.\n\n    Reference:\n        tanno2019 equation 1\n    ", ""),
        ("", '@pytest.mark.paper("tanno2019 lemma 7")'),
        ("", '@pytest.mark.paper("tano2019 eq. 1")'),
        ("", '@pytest.mark.paper("tanno2019 eq. 1", NAME)'),
    ],
)
def test_references_that_do_not_exist_are_refused(page, tmp_path, docstring, mark):
    root = repository(tmp_path, docstring, mark)
    read = page.references if docstring else page.marks
    with pytest.raises(page.PageError):
        read(root)
