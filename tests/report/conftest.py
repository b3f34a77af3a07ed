"""A page with every section, whose names try to break out of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dubito._report import Annotator, Bin, Check, Curve, Fact, Matrix, ReportData, Suspicion

HOSTILE = [
    "<script>window.hit = 1</script>",
    '"><img src=x onerror="window.hit = 2">',
    "'><svg onload=window.hit=3>",
    "</title></style></script><script>window.hit = 4</script>",
    "=cmd|' /C calc'!A0",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:window.hit=5",
    "]]>&lt;b&gt;\u202eevil\x00",
]


class Claims(str):
    """Text that claims to be safe markup."""

    def __html__(self) -> str:
        return "<script>window.hit = 6</script>"


def make(names: list[Any]) -> ReportData:
    K = len(names)
    values = (0.8 * np.eye(K) + 0.2 / K).tolist()
    matrix = Matrix(names[0], names, names, values, values, values, annotator=names[1])
    pixels = np.random.default_rng(0).random((8, 8))
    suspicions = [
        Suspicion(
            id=f"{names[i % K]}-{i}",
            given=names[i % K],
            suggested=names[(i + 1) % K],
            p_wrong=0.99 - 0.03 * i,
            annotator=names[i % 3],
            why={"model": 2.5, "annotators": -1.0, names[2]: 0.25},
            neighbours=[(names[3], names[0])],
            thumbnail=pixels if i % 2 else None,
        )
        for i in range(24)
    ]
    some = [Fact(n, n, 0.1, 0.2, n) for n in names] + [Fact("number", 0.5), Fact("nothing", float("nan"))]
    return ReportData(
        title=names[0],
        summary=[names[1], names[2], names[3]],
        facts=some,
        noise=some,
        metrics=some,
        reliability=[Bin(0.25, 0.2, 10), Bin(0.75, 0.9, 30), Bin(0.5, float("nan"), 3)],
        curves=[Curve(names[0], names[1], range(30), np.linspace(2, 1, 30)), Curve("b", "c", [1], [2])],
        transition=matrix,
        annotators=[Annotator(n, 10 * (i + 3), 0.9 - 0.05 * i, 0.3, 0.95) for i, n in enumerate(names[:3])],
        annotator_matrices=[matrix],
        suspicions=suspicions,
        plan=[Check(10, Fact("found", 9.0, 8.0, 10.0), Fact("left", 0.1, 0.05, 0.2))],
        choice=[names[4]],
        notes=[names[5]],
        command=names[6],
        versions={names[7]: names[0]},
    )


@pytest.fixture(scope="session")
def hostile() -> ReportData:
    return make([*HOSTILE[:-1], Claims(HOSTILE[-1])])


@pytest.fixture(scope="session")
def plain_content() -> ReportData:
    return make(["cat", "dog", "owl", "bee", "ant", "fox", "cow", "hen"])
