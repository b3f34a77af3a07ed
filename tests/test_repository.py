"""What the repository itself promises: no data inside, short files, one version, links that lead somewhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("src", "tests", "docs", "tools", "benchmarks", "results")
DATA = {
    ".npz",
    ".npy",
    ".xz",
    ".gz",
    ".z",
    ".mat",
    ".pkl",
    ".pt",
    ".parquet",
    ".jpg",
    ".jpeg",
    ".tar",
    ".zip",
    ".h5",
}

pytestmark = pytest.mark.skipif(not (ROOT / "pyproject.toml").is_file(), reason="not in the repository")


def files(*parts):
    for part in parts:
        for path in sorted((ROOT / part).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith("."):
                yield path


@pytest.mark.rel
def test_no_data_set_is_in_the_repository():
    """Scorecard 28: neither by kind of file nor by size."""
    found = [p.relative_to(ROOT) for p in files(*PARTS) if p.suffix in DATA or "ubyte" in p.name]
    assert found == []
    assert [p.relative_to(ROOT) for p in files(*PARTS) if p.stat().st_size > 1_000_000] == []


def test_no_file_is_over_300_lines():
    long = {
        str(p.relative_to(ROOT)): n
        for p in files("src", "tests", "tools")
        if p.suffix in (".py", ".pyi") and (n := len(p.read_text(encoding="utf-8").splitlines())) > 300
    }
    assert long == {}


def test_contributing_is_short():
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) < 60


def test_one_version_number():
    """It is read from the package; nothing else repeats it."""
    source = (ROOT / "src" / "dubito" / "__init__.py").read_text(encoding="utf-8")
    assert re.search(r'^__version__ = "\d+\.\d+\.\d+"$', source, re.MULTILINE)
    assert not re.search(r"^version:", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert not re.search(r"^version\s*=", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)


def test_links_between_pages_lead_somewhere():
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    broken = []
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if "://" not in target and not (page.parent / target).exists():
                broken.append((page.name, target))
    assert broken == []


def test_documented_files_and_names_exist():
    """Paths in CONTRIBUTING.md are real."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for path in re.findall(r"`((?:src|tests|tools|docs)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path


def test_every_public_function_of_noise_metrics_and_estimate_has_an_example():
    for path in files("src/dubito/noise", "src/dubito/metrics"):
        if path.suffix != ".py" or path.name.startswith("_"):
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                assert ">>>" in (ast.get_docstring(node) or ""), f"{path.name}: {node.name}"
