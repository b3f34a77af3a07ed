"""The table behind the choice of a method: read from the package, nearest noise first."""

from __future__ import annotations

from dubito.papers.tables import METHODS
from dubito.papers.which import CLOSEST, evidence, table


def test_the_table_is_read_and_says_what_was_measured():
    rows = table()
    assert rows
    known = {name for names in METHODS.values() for name in names.values()}
    for row in rows:
        assert row.method in known
        assert row.seeds >= 3
        assert row.gap >= 0
        assert row.interval is not None
        assert row.interval[0] <= row.accuracy <= row.interval[1]
        assert row.standing in ("first", "level", "in doubt", "below")
        assert row.standing != "first" or row.gap == 0


def test_methods_that_need_annotators_are_not_in_the_table():
    """They would be held against losses that see one label per item."""
    alone = {"ce", "bootstrap"}  # Tanno's baselines that learn from a vote
    assert not {row.method for row in table()} & set(METHODS["tanno2019"].values()) - alone
    assert all(row.data != "labelme" for row in table())


def test_the_nearest_rate_comes_first_and_other_noise_is_left_out():
    found = evidence("symmetric", 0.42)
    assert found[0].rate == 0.4
    assert {e.noise for e in found} <= set(CLOSEST["symmetric"])
    assert all(abs(e.rate - 0.42) <= 0.15 for e in found)
    assert evidence("pairwise", 0.4)[0].noise == "asymmetric"
    assert evidence("annotator-specific", 0.4) == ()
    assert evidence("symmetric", 0.4, within=0.0)[0].rate == 0.4
