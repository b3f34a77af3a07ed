"""Every public function of the mathematical stages has its transcription, its gradcheck and its compiled graph."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from dubito import channels, heads, links, losses, penalties, targets
from scorecard_recorder import checks_of

TESTS = Path(__file__).resolve().parents[1]
STAGES = {"losses": losses, "links": links, "channels": channels, "heads": heads, "targets": targets}
# What makes targets of labels is linear and no part of the graph; a bound on a parameter is no formula.
# The variance of a prediction is documented to have no gradient.
NO_GRADIENT = {
    "label_noise",
    "backward_matrix",
    "smooth",
    "smear",
    "BoundedTemperature",
    "predictive_variance",
}
NO_FORMULA = {"Head", "Latent", "BoundedTemperature"}
# Exact integrals choose their panels by the data, so that no fixed graph exists; heads and channels are compiled as
# modules in their contracts.
NO_GRAPH = {"expected_log_softmax", "expected_softmax_nll", "expected_log_sigmoid", "expected_sigmoid"}
NO_GRAPH |= {"predictive_variance", "BoundedTemperature", "label_noise", "backward_matrix"}


def formulas() -> dict[str, str]:
    """name -> stage, for every public function and class of the stages."""
    found: dict[str, str] = {}
    for stage, module in STAGES.items():
        own = [k for k, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__]
        for name in getattr(module, "__all__", own):
            thing = getattr(module, name)
            is_formula = inspect.isfunction(thing) or inspect.isclass(thing)
            if is_formula and name not in NO_FORMULA and not name.startswith(("_", "check_")):
                found.setdefault(name, stage)
    return found


def words_of_tests(check: int) -> set[str]:
    """Every name that the code of a check's tests uses, or the tables of cases do; prose does not count."""
    found: set[str] = set()
    for path in sorted(TESTS.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        if any(check in checks_of(ast.get_docstring(f)) for f in functions):
            found |= names_of_check(tree, check)
            for node in tree.body:
                table = path.with_name(f"{getattr(node, 'module', None)}.py")
                if isinstance(node, ast.ImportFrom) and table.is_file():
                    found |= names(ast.parse(table.read_text(encoding="utf-8")))
    return found


def names_of_check(tree: ast.Module, check: int) -> set[str]:
    """Names in a check's tests, in the helpers they call and in the tables of the module."""
    parts = {getattr(node, "name", ""): node for node in tree.body if hasattr(node, "name")}
    tables = [node for node in tree.body if isinstance(node, (ast.Assign, ast.AnnAssign))]
    tests = [
        f
        for f in parts.values()
        if isinstance(f, ast.FunctionDef) and check in checks_of(ast.get_docstring(f))
    ]
    found, waiting = set().union(*map(names, tables)), [*tests]
    seen: set[str] = set()
    while waiting:
        used = names(waiting.pop())
        found |= used
        waiting += [parts[name] for name in used & parts.keys() - seen]
        seen |= used & parts.keys()
    return found


def names(tree: ast.AST) -> set[str]:
    """Identifiers, attributes, arguments and one-word texts, without the docstrings."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, (ast.Attribute, ast.arg)):
            found.add(node.attr if isinstance(node, ast.Attribute) else node.arg)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


@pytest.mark.rel
@pytest.mark.parametrize(("check", "excused"), [(1, set()), (2, NO_GRADIENT), (12, NO_GRAPH)])
def test_every_formula_has_its_checks(check: int, excused: set[str], scorecard: Callable[..., None]) -> None:
    """Scorecard 1, 2, 12: 100 % of the public functions are used in the code of the check's tests."""
    used = words_of_tests(check)
    wanted = [name for name in formulas() if name not in excused]
    missing = [name for name in wanted if not {name, f"_{name}"} & used]
    scorecard(check, covered_percent=100 * (1 - len(missing) / len(wanted)), functions=len(wanted))
    assert len(wanted) > 20
    assert not missing


def test_penalties_are_covered_too() -> None:
    public = [
        n for n, f in vars(penalties).items() if inspect.isfunction(f) and f.__module__ == penalties.__name__
    ]
    assert {name for name in public if not name.startswith("_")} <= words_of_tests(1)
