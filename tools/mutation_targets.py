"""The mathematical modules and the tests that have to notice a change of each, quick ones first."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests"
# Files whose tests start processes or networks, or need what a CPU has not: too slow to try once per mutant.
SLOW = (
    "gpu",
    "interpreted",
    "standalone",
    "command",
    "processes",
    "memory",
    "page",
    "sets",
    "training",
    "pictures",
    "nightly",
    "many",
    "folders",
    "lanes",
)


def _in(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/{folder}/test_{name}.py" for name in names)


LOSSES = _in("losses", "loss_borders", "robust", "cross_entropy_parity", "loss_contract", "loss_properties")
CHANNELS = _in("channels", "transition", "annotators", "pooled", "channel_contract")
EM = _in("crowd", "em", "aggregate", "choice", "intervals")
DEFAULTS = (
    *_in("reliability", "signatures", "edges", "edges_of_stages", "edges_of_routes", "formulas"),
    "tests/test_doctests.py",
)
SOFTMAX = ("tests/test_expected_softmax.py", "tests/test_links.py")

TARGETS: dict[str, tuple[str, ...]] = {
    "_tensors": ("tests/test_tensor_steps.py", *LOSSES),
    "_matrices": (
        *_in("channels", "channel_steps", "transition", "channel_contract"),
        "tests/test_targets.py",
    ),
    "losses._deformed": (*_in("losses", "robust", "bi_tempered"), *LOSSES),
    "losses._normalizer": (*_in("losses", "bi_tempered"), *LOSSES),
    "losses.bi_tempered": (*_in("losses", "bi_tempered"), *LOSSES),
    "losses.distill": (*_in("losses", "distillation"), *LOSSES),
    "losses.likelihood": LOSSES,
    "losses.logistic_normal": (*_in("losses", "logistic_normal", "logistic_normal_theory"), *LOSSES),
    "losses.robust": LOSSES,
    "links": (*_in("losses", "loss_borders"), *SOFTMAX[::-1]),
    "heads": ("tests/test_heads.py",),
    "targets": ("tests/test_targets.py", *_in("losses", "smearing_theory")),
    "weights": ("tests/test_weights.py",),
    "penalties": ("tests/test_penalties.py",),
    "channels._core": CHANNELS,
    "channels.annotators": (*_in("channels", "annotators"), *CHANNELS),
    "channels.pooled": (*_in("channels", "pooled"), *CHANNELS),
    "channels.projection": _in("channels", "projection"),
    "channels.transition": CHANNELS,
    "metrics.calibration": _in("metrics", "calibration"),
    "metrics.matrices": _in("metrics", "confusion_error"),
    "metrics.scores": _in("metrics", "scores"),
    "metrics.segmentation": _in("metrics", "miou"),
    "metrics.statistics": _in("metrics", "statistics"),
    "estimate.anchors": ("tests/test_estimate.py",),
    "estimate.quality": ("tests/test_out_of_fold.py",),
    "noise.transitions": _in("noise", "transitions", "corruption"),
    "noise.corruption": _in("noise", "corruption"),
    "noise.annotators": _in("noise", "simulated_annotators", "simulate"),
    "noise.crowds": _in("noise", "simulate", "simulated_annotators"),
    "noise.missing": _in("noise", "missing_features"),
    "crowd._em": EM,
    "crowd._simple": EM,
    "crowd.agreement": _in("crowd", "agreement"),
    "crowd.intervals": _in("crowd", "intervals"),
    "crowd.quality": _in("crowd", "quality"),
    "crowd.vote": _in("crowd", "aggregate", "quality", "agreement"),
    "integrals.binary": _in("integrals", "noise_and_panels", "two_classes_exactly", "binary_and_variance"),
    "integrals.variance": _in("integrals", "binary_and_variance"),
    "integrals.sampled": _in("integrals", "sampled_borders", "sampled", "integrals_border"),
    "integrals.noise": _in("integrals", "noise_and_panels", "sampled_borders", "sampled"),
    "integrals.likelihood": (
        *_in("integrals", "places_of_nodes", "two_classes_exactly", "likelihood", "integrals_border"),
        *SOFTMAX,
    ),
    "integrals.quadrature": _in(
        "integrals", "places_of_nodes", "two_classes_exactly", "likelihood", "all_classes", "integrals_border"
    ),
    "integrals.all_classes": _in(
        "integrals", "noise_and_panels", "two_classes_exactly", "all_classes", "integrals_border"
    ),
    "integrals.factors": _in("integrals", "factors", "integrals_border"),
    "integrals.one_factor": _in("integrals", "factors_all_classes"),
    "integrals.climb": _in("integrals", "factor_steps", "factor_walls"),
    "integrals.held": _in("integrals", "held", "factor_walls"),
    "integrals.graphs": _in("integrals", "graphs"),
    "integrals.gumbel_normal": _in("integrals", "gumbel_normal_nodes", "gumbel_normal", "likelihood"),
    "integrals.draws": _in("integrals", "routes_to_kernels", "sampled"),
    "integrals.expected": (*_in("integrals", "all_classes", "integrals_border"), *SOFTMAX),
    "integrals.fixed": _in(
        "integrals", "places_of_nodes", "two_classes_exactly", "fixed", "integrals_border"
    ),
    "integrals.nll": (
        *_in("integrals", "integrals_border", "likelihood", "sampled", "routes_to_kernels"),
        *SOFTMAX,
    ),
    "integrals.quick": _in("integrals", "quick", "all_classes", "routes_to_kernels"),
    "integrals.grid": _in("integrals", "rapid", "likelihood", "integrals_border"),
    "integrals.rapid": _in("integrals", "rapid", "likelihood", "integrals_border"),
    "integrals.rows": _in("integrals", "places_of_nodes", "likelihood", "quick", "all_classes"),
    "integrals.sampling": _in(
        "integrals", "noise_and_panels", "sampled", "integrals_border", "routes_to_kernels"
    ),
    "integrals.scan": _in("integrals", "places_of_nodes", "likelihood"),
    "integrals.search": _in("integrals", "places_of_nodes", "two_classes_exactly", "likelihood"),
    "integrals.table": _in("integrals", "gumbel_normal", "likelihood", "quick"),
    "integrals.panels": _in(
        "integrals",
        "noise_and_panels",
        "panel_steps",
        "panels_are_honest",
        "all_classes",
        "two_classes_exactly",
    ),
    "integrals.two_classes": _in("integrals", "pair_of_classes", "two_classes_exactly"),
    "integrals.temperature": _in("integrals", "sampled_borders", "learned_temperature"),
    "channels._rows": (*CHANNELS, "tests/test_penalties.py"),
    "crowd._glad": (*_in("crowd", "glad"), *EM),
    "crowd._hierarchical": (*_in("crowd", "hierarchical"), *EM),
    "crowd._rules": EM,
    "crowd._warm": EM,
    "crowd.ask": _in("crowd", "quality", "aggregate"),
    "noise._scores": _in("noise", "transitions", "corruption", "simulate", "simulated_annotators"),
    "segmentation.losses": _in("segmentation", "pixel_losses"),
    "segmentation.scores": _in("segmentation", "segmentation_scores"),
    "uncertainty": ("tests/test_uncertainty.py",),
    "_random": ("tests/test_random.py",),
    "procedures.posterior": _in("procedures", "posterior_formulas"),
    "optim": _in("train", "optim", "optim_formulas"),
    "crowd._layout": _in("crowd", "layout", "em_steps", "em"),
    "crowd.result": _in("crowd", "layout", "intervals", "aggregate"),
    "noise._keyed": _in("noise", "corruption", "simulate"),
    "segmentation.annotators": _in("segmentation", "pixel_losses"),
}


def _beside(module: str) -> tuple[str, ...]:
    """Every quick test file of the module's own package."""
    package = module.rpartition(".")[0]
    found = (
        sorted((TESTS / package).glob("test_*.py")) if package else sorted(TESTS.glob(f"test_{module}*.py"))
    )
    return tuple(f"tests/{f.relative_to(TESTS)}" for f in found if not any(word in f.name for word in SLOW))


TARGETS = {
    module: tuple(dict.fromkeys((*DEFAULTS, *tests, *_beside(module)))) for module, tests in TARGETS.items()
}
