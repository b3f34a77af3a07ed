"""Statements of Lukasik et al. 2020."""

from __future__ import annotations

from itertools import combinations, product

from . import Claim
from ._parts import Above, AnyOf, At, Computed, Optimum, Ranked, Wider, Within, at, chain
from ._units import smearing_formulas

ROWS = tuple(product(("cifar100", "cifar10"), ("resnet32", "resnet56")))
FC_EST, BC_EST = "forward:transition=estimated", "backward:transition=estimated"
ALL = ("ce", "smooth", "forward", "backward", FC_EST, BC_EST)
STUDENTS = (
    "distill:teacher=smooth",
    "distill:student=smooth",
    "distill:teacher=forward",
    "distill:student=forward",
)


def t2(method: str, alpha: float | None = None) -> At:
    """A cell of table 2."""
    fields = {} if alpha is None else {"alpha": alpha}
    return at("table2", "test_accuracy", method=method, **fields)


def t3(metric: str, alpha: float) -> At:
    """A cell of table 3; alpha 0 is plain training."""
    return at("table3", metric, method="smooth", alpha=alpha) if alpha else at("table3", metric, method="ce")


def t4(method: str, alpha: float = 0.0) -> At:
    """Calibration error."""
    return at("table4", "ece", method=method, **({"alpha": alpha} if alpha else {}))


def t5(row: tuple[str, str], method: str) -> At:
    """A student's accuracy."""
    return at("table5", "test_accuracy", data=row[0], network=row[1], method=method)


def t7(row: tuple[str, str], method: str) -> At:
    """A cell of table 7."""
    return at("table7", "test_accuracy", data=row[0], network=row[1], method=method)


def f2(data: str, method: str, **alpha: float) -> At:
    """A point of figure 2."""
    return at("figure2", "test_accuracy", data=data, method=method, **alpha)


CLAIMS = (
    Claim(
        1,
        "Smoothing by .1 beats plain training in all four rows",
        tuple(Above(t7(r, "smooth"), t7(r, "ce")) for r in ROWS),
    ),
    Claim(
        2,
        "Backward correction by .1 is below plain training in all four rows",
        tuple(Above(t7(r, "ce"), t7(r, "backward")) for r in ROWS),
    ),
    Claim(
        2,
        "Figure 2: at large alpha backward correction passes plain training",
        tuple(
            AnyOf(tuple(Above(f2(d, "backward", alpha=a), f2(d, "ce")) for a in (0.5, 0.7, 0.9)))
            for d in ("cifar100", "cifar10")
        ),
        printed=False,
    ),
    Claim(
        3,
        "Forward correction by .1 beats smoothing on CIFAR-100 and is below it on CIFAR-10",
        tuple(Above(t7(r, "forward"), t7(r, "smooth")) for r in ROWS[:2])
        + tuple(Above(t7(r, "smooth"), t7(r, "forward")) for r in ROWS[2:]),
    ),
    Claim(
        4,
        "With an estimated matrix forward correction is within .2 of plain training, backward within about .3, or "
        "below it (CIFAR-100, ResNet-32)",
        tuple(Within(t7(r, FC_EST), t7(r, "ce"), 0.2) for r in ROWS)
        + tuple(Within(t7(r, BC_EST), t7(r, "ce"), 0.35) for r in ROWS[1:])
        + (Above(t7(ROWS[0], "ce"), t7(ROWS[0], BC_EST), margin=0.35),),
    ),
    Claim(
        5,
        "ResNet-56 is below ResNet-32 for all methods, except backward correction on CIFAR-10",
        tuple(
            Above(t7((d, "resnet32"), m), t7((d, "resnet56"), m))
            for d, m in product(("cifar100", "cifar10"), ALL)
            if (d, m) != ("cifar10", "backward")
        )
        + (Above(t7(("cifar10", "resnet56"), "backward"), t7(("cifar10", "resnet32"), "backward")),),
    ),
    Claim(
        6,
        "ImageNet: forward above smoothing above plain to alpha .4; smoothing is below at .6; best at .2 and .4",
        tuple(part for a in (0.1, 0.2, 0.4) for part in chain(t2("forward", a), t2("smooth", a), t2("ce")))
        + (Above(t2("ce"), t2("smooth", 0.6)),)
        + (Ranked(t2("smooth", 0.2), tuple(t2("smooth", a) for a in (0.1, 0.4, 0.6)), 1),)
        + (Ranked(t2("forward", 0.4), tuple(t2("forward", a) for a in (0.1, 0.2, 0.6)), 1),),
    ),
    Claim(
        7,
        "Smoothing by .2 raises training accuracy on the clean part and more on the noisy part's true labels, "
        "lowers the fit to given labels there, and gains more than it loses",
        (
            Above(t3("train_clean_true", 0.2), t3("train_clean_true", 0.0)),
            Above(t3("train_noisy_true", 0.2), t3("train_noisy_true", 0.0)),
            Above(t3("train_noisy_given", 0.0), t3("train_noisy_given", 0.2)),
            Wider(
                *(t3("train_noisy_true", a) for a in (0.2, 0.0)),
                *(t3("train_clean_true", a) for a in (0.2, 0.0)),
            ),
            Wider(
                *(t3("train_noisy_true", a) for a in (0.2, 0.0)),
                *(t3("train_noisy_given", a) for a in (0.0, 0.2)),
            ),
        ),
    ),
    Claim(
        8,
        "Calibration error: smoothing by .1 slightly below plain training, by .2 above; backward above forward "
        "above smoothing",
        (Above(t4("ce"), t4("smooth", 0.1)), Above(t4("smooth", 0.2), t4("ce")))
        + tuple(p for a in (0.1, 0.2) for p in chain(t4("backward", a), t4("forward", a), t4("smooth", a))),
    ),
    Claim(
        9,
        "A smoothed or corrected teacher helps in all rows, the corrected one most on CIFAR-100; on the student "
        "neither matters there; on CIFAR-10 all four gain 5 to 9 points",
        tuple(Above(t5(r, m), t5(r, "distill")) for r, m in product(ROWS, STUDENTS[::2]))
        + tuple(Within(t5(r, m), t5(r, "distill"), 0.2) for r, m in product(ROWS[:2], STUDENTS[1::2]))
        + tuple(
            Ranked(t5(r, STUDENTS[2]), tuple(t5(r, m) for m in STUDENTS if m != STUDENTS[2]), 1)
            for r in ROWS[:2]
        )
        + tuple(Above(t5(r, m), t5(r, "distill"), margin=4.5) for r, m in product(ROWS[2:], STUDENTS))
        + tuple(Within(t5(r, a), t5(r, b), 2.5) for r in ROWS[2:] for a, b in combinations(STUDENTS, 2)),
    ),
    Claim(
        10,
        "CIFAR-100: plain distillation beats every directly trained network",
        tuple(Above(t5(ROWS[0], "distill"), t7(r, m)) for r, m in product(ROWS[:2], ALL)),
    ),
    Claim(
        11,
        "Backward correction is unbiased, smoothing keeps the argmax, its regulariser is least at zero weights",
        (Computed(smearing_formulas),),
    ),
    Claim(
        12,
        "The best alpha of smoothing and of forward correction is above .2",
        tuple(
            Optimum(f2(d, m), "alpha", 0.2)
            for d, m in product(("cifar100", "cifar10"), ("smooth", "forward"))
        ),
        printed=False,
    ),
)
