"""Statements of Collier et al. 2020."""

from __future__ import annotations

from itertools import product

from . import Claim
from ._parts import Above, At, Optimum, Part, Starred, Wider, Within, at, chain

DATA = ("cifar10", "mnist", "svhn")
NOISY = ("table1", "table4", "table5", "table6")
ALL = ("table1", "table3", "table4", "table5", "table6")
RIVALS = ("ce", "het", "coteaching", "mentornet", "bootstrap")
METRICS = ("noisy_log_likelihood", "noisy_accuracy", "accuracy_clean")


def ll(table: str, data: str, method: str) -> At:
    """Noisy log-likelihood."""
    return at(table, "noisy_log_likelihood", data=data, method=method)


def _best(table: str, skip: tuple[tuple[str, str], ...] = ()) -> tuple[Part, ...]:
    """The tuned temperature is best or tied in every column but some."""
    return tuple(
        Above(
            at(table, metric, data=data, method="het-tau"),
            at(table, metric, data=data, method=rival),
            ties=True,
        )
        for metric, data, rival in product(METRICS, DATA, RIVALS)
        if (metric, data) not in skip
    )


def _gap(table: str, data: str) -> tuple[At, At]:
    return ll(table, data, "het-tau"), ll(table, data, "ce")


def _reversal(data: str, metric: str) -> Above:
    cell = at("table4", metric, data=data, method="coteaching")
    return Above(cell, cell.but(method="het-tau"))


def _ahead(method: str) -> Above:
    cell = at("table5", "noisy_accuracy", data="cifar10", method=method)
    return Above(cell, cell.but(method="het-tau"))


CLAIMS = (
    Claim(
        1,
        "The tuned temperature has a higher log-likelihood than temperature 1 and plain training in every table, "
        "significantly under noise, not without noise on MNIST",
        tuple(Above(ll(t, d, "het-tau"), ll(t, d, m)) for t, d, m in product(ALL, DATA, ("het", "ce")))
        + tuple(Starred(ll(t, d, m), ll(t, d, "het-tau")) for t, d, m in product(NOISY, DATA, ("het", "ce")))
        + tuple(
            Starred(ll("table3", "mnist", m), ll("table3", "mnist", "het-tau"), marked=False)
            for m in ("het", "ce")
        ),
    ),
    Claim(
        2,
        "Temperature 1 has a higher log-likelihood than plain training, except without noise on SVHN",
        tuple(
            Above(ll(t, d, "het"), ll(t, d, "ce"))
            for t, d in product(ALL, DATA)
            if (t, d) != ("table3", "svhn")
        )
        + (Above(ll("table3", "svhn", "ce"), ll("table3", "svhn", "het")),),
    ),
    Claim(
        3,
        "The best temperature is above 1 on images and below 1 in segmentation",
        tuple(Optimum(ll(t, d, "het-tau"), "temperature", 1.0) for t, d in product(ALL, DATA))
        + tuple(
            Optimum(at("figure2", "miou", data=d, method="het-tau"), "temperature", 1.0, above=False)
            for d in ("cityscapes", "voc")
        ),
        printed=False,
    ),
    Claim(
        4,
        "Segmentation: tuned temperature above plain training above temperature 1",
        tuple(
            part
            for data, metric in product(("cityscapes", "voc"), ("miou", "miou_test"))
            for part in chain(*(at("table2", metric, data=data, method=m) for m in ("het-tau", "ce", "het")))
        ),
    ),
    Claim(
        5,
        "Co-teaching and MentorNet have a far lower log-likelihood than plain training although accuracy is close",
        tuple(
            Above(ll("table1", "cifar10", "ce"), ll("table1", "cifar10", m), margin=0.5)
            for m in ("coteaching", "mentornet")
        )
        + tuple(
            Within(
                at("table1", "noisy_accuracy", data="cifar10", method="ce"),
                at("table1", "noisy_accuracy", data="cifar10", method=m),
                0.03,
            )
            for m in ("coteaching", "mentornet")
        ),
    ),
    Claim(6, "Table 1: the tuned temperature is best or tied in all nine columns", _best("table1")),
    Claim(
        7,
        "Uniform noise: co-teaching is more accurate on CIFAR-10 and SVHN, the tuned temperature keeps the best "
        "log-likelihood everywhere",
        tuple(_reversal(d, m) for d, m in product(("cifar10", "svhn"), METRICS[1:]))
        + tuple(
            Above(ll("table4", d, "het-tau"), ll("table4", d, m), ties=True) for d, m in product(DATA, RIVALS)
        ),
    ),
    Claim(
        8,
        "Tables 5 and 6: the tuned temperature is best or tied, except in table 5's noisy accuracy on CIFAR-10, "
        "where co-teaching, temperature 1 and bootstrapping are ahead",
        _best("table5", skip=(("noisy_accuracy", "cifar10"),))
        + _best("table6")
        + tuple(_ahead(m) for m in ("coteaching", "het", "bootstrap")),
    ),
    Claim(
        9,
        "The gain in log-likelihood over plain training grows with the noise (CIFAR-10, SVHN)",
        tuple(
            Wider(*_gap(more, d), *_gap(less, d))
            for d, (less, more) in product(("cifar10", "svhn"), (("table5", "table1"), ("table1", "table6")))
        ),
    ),
    Claim(
        10,
        "Near the best temperature, at 5, the number of training samples changes the log-likelihood by .01 at most "
        "(others are not judged)",
        tuple(
            Within(
                at("figure1", "noisy_log_likelihood", data=d, method="het-tau", temperature=5.0, samples=s),
                at(
                    "figure1", "noisy_log_likelihood", data=d, method="het-tau", temperature=5.0, samples=1000
                ),
                0.01,
            )
            for d, s in product(DATA, (1, 10, 100))
        ),
        printed=False,
    ),
)
