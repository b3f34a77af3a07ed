"""The methods of the papers, by name: the stages that each one combines, its defaults, grid and advice.

A method is data. Its parameters and their defaults are the arguments of its `stages` function, and variants are
parameters: ``ln:covariance=diagonal``, ``het:temperature=0.5,rank=2``. A method of your own is a `Method` in a file
of your own, and is named ``mine.py:mine``.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from . import channels, heads, links, losses, noise, penalties, targets
from ._crowd_methods import CROWD
from ._files import sha256
from ._method import Method as Method
from ._method import Stages as Stages
from .errors import DubitoError, nearest
from .model import Model
from .procedures import CoTeaching, Distillation, Pruning, SelfPaced, Teacher


def _ce() -> Stages:
    return Stages()


def _smooth(alpha: float = 0.1) -> Stages:
    return Stages(target=partial(targets.smooth, alpha=alpha))


# `percentile`, `at` and `folds` are for `compose.train_method`, which estimates the matrix beforehand.
def _forward(
    alpha: float | None = None,
    percentile: float = 99.9,
    at: str = "percentile",
    folds: int = 0,
    transition: Tensor | None = None,
) -> Stages:
    return Stages(channel=partial(_fixed, transition=transition, alpha=alpha))


def _fixed(num_classes: int, *, transition: Tensor | None, alpha: float | None) -> nn.Module:
    return channels.FixedTransition(_matrix(num_classes, transition, alpha))


def _backward(
    alpha: float | None = None,
    percentile: float = 99.9,
    at: str = "percentile",
    folds: int = 0,
    transition: Tensor | None = None,
) -> Stages:
    return Stages(target=partial(_unmix, transition=transition, alpha=alpha))


def _unmix(target: Tensor, num_classes: int, *, transition: Tensor | None, alpha: float | None) -> Tensor:
    T = _matrix(num_classes, transition, alpha)
    return targets.smear(target, targets.backward_matrix(T).to(target.device))


def _matrix(num_classes: int, transition: Tensor | None, alpha: float | None) -> Tensor:
    """The matrix of a correction: the given or estimated one, or that of labels redrawn with probability alpha."""
    if (transition is None) == (alpha is None):
        raise DubitoError(
            "this method needs a transition matrix",
            expected="one of transition= and alpha=",
            got="neither" if alpha is None else "both",
            remedy="leave out both where compose.train_method is to estimate it",
        )
    return noise.resample(num_classes, alpha) if transition is None else transition  # type: ignore[arg-type]


def _gce(q: float = 0.7) -> Stages:
    return Stages(loss=partial(losses.gce, q=q))


def _truncated_gce(q: float = 0.7, k: float = 0.5, start: int = 40, every: int = 10) -> Stages:
    return Stages(
        loss=partial(losses.gce, q=q), procedure=partial(Pruning, q=q, k=k, start=start, every=every)
    )


def _bi_tempered(t1: float = 0.8, t2: float = 1.2) -> Stages:
    link = partial(links.tempered_log_softmax, t=t2)
    return Stages(loss=partial(losses.bi_tempered, t1=t1, t2=t2), model={"link": link})


def _nan(sigma: float = 0.5, centred: bool = False) -> Stages:
    return Stages(target=partial(targets.label_noise, sigma=sigma, centred=centred))


def _bootstrap(kind: str = "soft", beta: float | None = None) -> Stages:
    return Stages(loss=partial(losses.bootstrap, kind=kind, beta=beta))


def _coteaching(rate: float | None = None, ramp: int = 10) -> Stages:
    return Stages(procedure=partial(CoTeaching, rate=rate, ramp=ramp))


def _mentornet(
    rate: float | None = None, lambda2: float = 1.0, burn_in: int = 5, decay: float = 0.9
) -> Stages:
    return Stages(procedure=partial(SelfPaced, rate=rate, lambda2=lambda2, burn_in=burn_in, decay=decay))


def _het(
    temperature: float | str = 1.0, rank: int = 0, integration: str = "auto", samples: int = 1000
) -> Stages:
    if isinstance(temperature, str) and temperature != "learned":
        raise DubitoError("unknown temperature", expected='a number or "learned"', got=repr(temperature))
    learned = links.BoundedTemperature() if temperature == "learned" else temperature
    head: Callable[..., nn.Module] = partial(heads.LowRank, rank=rank) if rank else heads.Diagonal
    model = {"temperature": learned, "integration": integration, "samples": samples}
    return Stages(head=head, model=model)


def _ln(
    temperature: float = 1.0,
    lam: float = 0.5,
    smoothing: float = 0.01,
    covariance: str = "full",
    dummy: bool = True,
) -> Stages:
    head = partial(heads.LogisticNormal, covariance=covariance, dummy=dummy)
    loss = partial(
        losses.logistic_normal_nll, lam=lam, smoothing=smoothing, covariance=covariance, dummy=dummy
    )
    return Stages(head=head, loss=loss, model={"temperature": temperature})


def _single_cm(trace: float = 0.01, init: str = "diagonal", diagonal: float = 0.9) -> Stages:
    channel = partial(channels.LearnedTransition, init=init, diagonal=diagonal)
    return Stages(channel=channel, penalty=partial(penalties.trace, weight=trace))


def _distill(
    teacher: str | Model | Teacher = "plain",
    student: str = "plain",
    alpha: float = 0.1,
    temperature: float = 2.0,
) -> Stages:
    kinds = {"plain": {}, "smooth": {"smoothing": alpha}, "forward": {"correction": alpha}}
    if student not in kinds:
        raise DubitoError("no such student", got=repr(student), remedy=nearest(student, kinds))
    options: dict[str, Any] = {"temperature": temperature, "teacher": teacher, **kinds[student]}
    return Stages(procedure=partial(Distillation, **options))


_TAUS = (0.025, 0.05, 0.1, 0.2, 0.6, 1.0, 1.4, 1.8, 2.2, 2.6, 3.0, 5.0, 10.0, 15.0, 20.0, 35.0, 50.0, 100.0)

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("ce", _ce, "Cross-entropy: the baseline, and enough when labels are nearly clean.",
               valid=("single", "crowd", "pixels")),
        Method("smooth", _smooth, "Cheap and safe under mild symmetric noise; try alpha above the noise rate.",
               grid={"alpha": (0.1, 0.2, 0.4, 0.7)}),
        Method("forward", _forward, "When the transition matrix is known, or classes have clear anchor examples.",
               first="ce", needs="transition"),
        Method("backward", _backward, "Unbiased for a known matrix, but of high variance: prefer forward.",
               first="ce", needs="transition"),
        Method("gce", _gce, "Strong under symmetric noise; a larger q resists more and fits more slowly.",
               grid={"q": (0.1, 0.3, 0.5, 0.7, 0.9)}),
        Method("truncated-gce", _truncated_gce, "gce that leaves out what the best model so far finds unlikely.",
               valid=("single",)),
        Method("bi-tempered", _bi_tempered, "Outliers far from the boundary and small-margin noise at once.",
               grid={"t1": (0.5, 0.7, 0.9), "t2": (1.1, 2.0, 4.0)}),
        Method("nan", _nan, "Noise on labels as a regulariser; long training with a small constant rate.",
               grid={"sigma": (0.1, 0.2, 0.5, 0.75, 1.0)}),
        Method("bootstrap", _bootstrap, "Mild noise on a model that is right more often than the labels.",
               valid=("single", "crowd", "pixels")),
        Method("coteaching", _coteaching, "Symmetric noise of a known rate and the budget for two networks.",
               valid=("single",)),
        Method("mentornet", _mentornet, "As co-teaching with one network; lambda2 and burn-in need a search.",
               grid={"lambda2": (0.0, 0.5, 1.0, 2.0), "burn_in": (0, 5, 10)}, valid=("single",)),
        Method("het", _het, "Noise that depends on the input, and calibrated uncertainty; tune the temperature.",
               grid={"temperature": _TAUS}, valid=("single", "crowd", "pixels")),
        Method("ln", _ln, "Class-dependent (asymmetric) noise: the strongest of the single-network methods there.",
               grid={"temperature": (0.1, 0.5, 1.0), "lam": (0.1, 0.5, 1.0)}),
        Method("distill", _distill, "When training twice is affordable: the student forgets much of the noise.",
               first="ce", needs="teacher", valid=("single",)),
        Method("single-cm", _single_cm, "One unknown transition matrix, learned with the network.",
               valid=("single", "crowd", "pixels")),
        *CROWD,
    )
}  # fmt: skip


def parse(text: str) -> tuple[Method, dict[str, Any]]:
    """A method and its parameters from ``name``, ``name:key=value,...`` or ``file.py:name``.

    Example:
        >>> method, params = parse("ln:lam=0.1,covariance=diagonal")
        >>> method.name, params
        ('ln', {'lam': 0.1, 'covariance': 'diagonal'})
    """
    head, _, tail = text.partition(":")
    if head.endswith(".py"):
        name, _, tail = tail.partition(":")
        method = _from_file(Path(head), name)
    elif head in METHODS:
        method = METHODS[head]
    else:
        own = "auto is for `dubito fit`, which races methods; name one, as gce" if head == "auto" else None
        raise DubitoError(f"no method called {head!r}", remedy=own or nearest(head, METHODS))
    params = parse_parameters(tail, text)
    method.build(**params)
    return method, params


def parse_parameters(text: str, where: str) -> dict[str, Any]:
    """``key=value,...``: numbers, truth values in any case, None, and text.

    Example:
        >>> parse_parameters("lam=1e-1,covariance=diagonal,dummy=false", "ln")
        {'lam': 0.1, 'covariance': 'diagonal', 'dummy': False}
    """
    params = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise DubitoError("a method's parameter is written key=value", got=repr(part), where=repr(where))
        params[key.strip()] = _value(value.strip())
    return params


def _value(text: str) -> Any:
    if text.lower() in ("true", "false", "none"):
        text = text.capitalize()
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _from_file(path: Path, name: str) -> Method:
    """Import a user's file and return the method of that name from it.

    The module is named after a hash of the file, so that it is imported once, its functions can be named in the
    configuration of a run, and an edited file is another module.
    """
    if not path.is_file():
        raise DubitoError("no such file of methods", got=str(path))
    own = f"dubito_methods_{path.stem}_{sha256(path.read_bytes())[:16]}"
    module = sys.modules.get(own) or _import(own, path)
    found = getattr(module, name, None)
    if not isinstance(found, Method):
        known = [n for n, v in vars(module).items() if isinstance(v, Method)]
        raise DubitoError(f"{path} has no method {name!r}", remedy=nearest(name, known))
    return found


def _import(own: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(own, path)
    if spec is None or spec.loader is None:
        raise DubitoError("not a Python file", got=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[own] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[own]
        raise
    return module
