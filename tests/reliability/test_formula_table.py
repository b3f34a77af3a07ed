"""Every public formula against its equation, against differences and as one graph, with the figure of each."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

import pytest
import torch
from formula_table import FORMULAS, Formula
from torch import Tensor

from dubito import channels, heads, links, losses, penalties, targets

STAGES = (losses, links, channels, heads, targets, penalties)
# What heads return and are made of, and a bound on a parameter: no formulas.
NO_FORMULA = {"Head", "Latent", "BoundedTemperature"}


def public() -> list[str]:
    """Every public function and class of the stages."""
    found: set[str] = set()
    for module in STAGES:
        own = [k for k, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__]
        for name in getattr(module, "__all__", own):
            thing = getattr(module, name)
            if (inspect.isfunction(thing) or inspect.isclass(thing)) and not name.startswith(("_", "check_")):
                found.add(name)
    return sorted(found - NO_FORMULA)


PUBLIC = public()
GRAPHS = [name for name in PUBLIC if name in FORMULAS and not FORMULAS[name].no_graph]
GRADIENTS = [name for name in PUBLIC if name in FORMULAS and not FORMULAS[name].no_gradient]


def worst(found: Tensor, wanted: Tensor) -> float:
    """The largest relative error; a zero has to be met exactly."""
    assert found.shape == wanted.shape
    difference = (found - wanted).abs().double()
    return float(torch.where(difference == 0, 0.0, difference / wanted.abs()).max())


@pytest.mark.rel
def test_every_public_formula_is_in_the_table(scorecard: Callable[..., None]) -> None:
    """Scorecards 1, 2, 12: 100 % of the public functions; where there is no gradient or graph it is said why."""
    missing = [name for name in PUBLIC if name not in FORMULAS]
    for check in (1, 2, 12):
        scorecard(check, covered_percent=100 * (1 - len(missing) / len(PUBLIC)), functions=len(PUBLIC))
    assert len(PUBLIC) > 30
    assert not missing


@pytest.mark.rel
@pytest.mark.parametrize("name", [name for name in PUBLIC if name in FORMULAS])
def test_equals_the_equation(name: str, scorecard: Callable[..., None]) -> None:
    """Scorecard 1: one entry per public function, relative error below 1e-10."""
    formula = FORMULAS[name]
    with torch.no_grad():
        found = formula.call(*formula.inputs)
    wanted = torch.tensor(formula.naive(*(x.tolist() for x in formula.inputs)), dtype=torch.float64)
    error = worst(found, wanted.reshape(found.shape))
    scorecard(1, relative_error=error)
    assert error < 1e-10


@pytest.mark.rel
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradcheck(name: str, scorecard: Callable[..., None]) -> None:
    """Scorecard 2: derivatives in every input and every parameter."""
    formula = FORMULAS[name]
    parameters = [] if formula.module is None else list(formula.module.parameters())
    values = [x.detach().clone().requires_grad_() for x in (*formula.inputs, *parameters)]
    assert torch.autograd.gradcheck(with_parameters(formula), values)
    scorecard(2, derivatives=len(values))


def with_parameters(formula: Formula) -> Callable[..., Tensor]:
    """The call as a function of its inputs and, behind them, of the module's parameters."""
    module = formula.module
    if module is None:
        return formula.call
    names = [name for name, _ in module.named_parameters()]

    def run(*values: Tensor) -> Tensor:
        given, own = values[: len(formula.inputs)], values[len(formula.inputs) :]
        with torch.nn.utils.stateless._reparametrize_module(module, dict(zip(names, own))):
            return formula.call(*given)

    return run


# The others take labels or draws beside, and have this in the contracts of their stages (dubito.testing).
ALONE = [
    *(
        "log_softmax",
        "centred_log_softmax",
        "centred_logits",
        "logistic_normal_log_softmax",
        "smooth",
        "smear",
    ),
    *("tempered_softmax", "tempered_log_softmax", "expected_sigmoid", "expected_log_sigmoid"),
    *("expected_log_softmax", "predictive_variance", "FixedTransition", "LearnedTransition", "project_rows"),
]


@pytest.mark.rel
@pytest.mark.parametrize("name", ALONE)
def test_any_leading_shape(name: str, scorecard: Callable[..., None]) -> None:
    """Scorecard 11: the same numbers as a loop over rows, for batches of none and of one as well."""
    formula = FORMULAS[name]
    each = [formula.call(*row) for row in zip(*formula.inputs)]
    shapes = [(), (1,), (0,), (5,), (5, 1), (1, 5), (1, 2, 2), (2, 0, 3)]
    for leading in shapes:
        count = math.prod(leading)
        found = formula.call(*(x[:count].reshape((*leading, *x.shape[1:])) for x in formula.inputs))
        assert found.shape == (*leading, *each[0].shape)
        if count:
            wanted = torch.stack(each[:count]).reshape(found.shape)
            torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
    scorecard(11, shapes=len(shapes))


@pytest.mark.nightly
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", GRAPHS)
def test_one_graph(name: str, backend: str, scorecard: Callable[..., None]) -> None:
    """Scorecard 12: the same numbers from one compiled graph, relative error below 1e-5."""
    formula = FORMULAS[name]
    torch.compiler.reset()
    graph = torch.compile(formula.call, fullgraph=True, backend=backend)
    with torch.no_grad():
        error = worst(graph(*formula.inputs), formula.call(*formula.inputs))
    scorecard(12, relative_error=error, graphs=1)
    assert error < 1e-5
