"""Every public function of the mathematical stages has its transcription, its gradcheck and its compiled graph."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dubito import channels, heads, links, losses, penalties, targets
from scorecard_recorder import checks_of

TESTS = Path(__file__).resolve().parents[1]
STAGES = {"losses": losses, "links": links, "channels": channels, "heads": heads, "targets": targets}
# What makes targets of labels is linear and no part of the graph; a bound on a parameter is no formula.
NO_GRADIENT = {"label_noise", "backward_matrix", "smooth", "smear", "BoundedTemperature"}
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


def text_of_tests(check: int) -> str:
    """The text of all test modules that hold a test of a check, with the tables of cases they import."""
    parts = []
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        strings = re.findall(r'"""(Scorecards? [^\n]*)', text)
        if any(check in checks_of(line) for line in strings):
            parts.append(text)
            for name in re.findall(r"^from (\w+) import", text, flags=re.MULTILINE):
                table = path.with_name(f"{name}.py")
                parts.append(table.read_text(encoding="utf-8") if table.is_file() else "")
    return "\n".join(parts)


@pytest.mark.rel
@pytest.mark.parametrize(("check", "excused"), [(1, set()), (2, NO_GRADIENT), (12, NO_GRAPH)])
def test_every_formula_has_its_checks(check: int, excused: set[str], scorecard: Callable[..., None]) -> None:
    """Scorecard 1, 2, 12: 100 % of the public functions are named in the tests of the check."""
    text = text_of_tests(check)
    wanted = [name for name in formulas() if name not in excused]
    missing = [name for name in wanted if not re.search(rf"\b_?{name}\b", text)]
    scorecard(check, covered_percent=100 * (1 - len(missing) / len(wanted)), functions=len(wanted))
    assert len(wanted) > 20
    assert not missing


def test_penalties_are_covered_too() -> None:
    public = [
        n for n, f in vars(penalties).items() if inspect.isfunction(f) and f.__module__ == penalties.__name__
    ]
    text = text_of_tests(1)
    assert all(re.search(rf"\b{name}\b", text) for name in public if not name.startswith("_"))
