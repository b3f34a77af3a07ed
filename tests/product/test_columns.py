"""Tables with gaps, categories, yes and no, and dates: what becomes of them is said, and the same in new data."""

from __future__ import annotations

import datetime
import json

import numpy as np
import pandas
import pytest
from product_tables import FAST, NAMES, blobs, dubito, read, write

from dubito._product.columns import Code, Columns, kind_of
from dubito._product.inputs import read_inputs
from dubito._product.reading import read as read_source
from dubito._product.sources import find, from_plain
from dubito._product.tasks import FitJob
from dubito.errors import DubitoError

CITIES = ["Rome", "Oslo", "Köln"]


def people(n: int = 120, seed: int = 0) -> pandas.DataFrame:
    """A table in which the label depends on the city, on being a member, on age and on the day."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 90, n).astype(float)
    city, member = rng.choice(CITIES, n), rng.random(n) < 0.5
    joined = pandas.Timestamp("2020-01-01") + pandas.to_timedelta(rng.integers(0, 900, n), "D")
    score = 2 * (city == "Rome") + member + (age > 50) + (joined > pandas.Timestamp("2021-04-01"))
    frame = pandas.DataFrame(
        {"age": age, "city": city, "member": member, "joined": joined.strftime("%Y-%m-%d")}
    )
    return frame.assign(label=np.where(score > 2, "yes", "no"))


def source_of(path, **options):
    return read_source(find(FitJob(path, path.parent / "run", **options)))


def by_hand(frame: pandas.DataFrame) -> np.ndarray:
    """What the columns stand for, by pandas alone: the commonest city first, and a flag beside a median."""
    day = pandas.to_datetime(frame.joined)
    days = (day - pandas.Timestamp("1970-01-01")) / pandas.Timedelta("1D")
    cities, members = (frame[name].fillna("").astype(str) for name in ("city", "member"))

    def ranked(cells):
        counts = cells.value_counts()
        return sorted(counts.index, key=lambda v: (-counts[v], v))

    columns = [frame.age.fillna(frame.age.median()), frame.age.isna()]
    columns += [cities == name for name in ranked(cities)]
    columns += [members == name for name in ranked(members)]
    return np.stack([*columns, days], axis=1).astype(float)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_mixed_table_becomes_what_pandas_makes_of_it(tmp_path, suffix):
    frame = people()
    frame.loc[[3, 17, 40], "age"] = np.nan
    frame.loc[5:14, "city"] = None
    path = tmp_path / f"t.{suffix}"
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    data, source = source_of(path)
    np.testing.assert_allclose(data.inputs.numpy(), by_hand(frame), rtol=0, atol=1e-9)
    assert [c.kind for c in source.codes] == ["number", "category", "category", "date"]
    assert source.codes[0].gaps == 3
    assert from_plain(json.loads(json.dumps(source.plain()))) == source


def test_a_table_of_numbers_is_kept_in_a_config_as_it_was_before(tmp_path):
    b = blobs(60)
    rows = [(*x, NAMES[k]) for x, k in zip(b.x, b.given)]
    _, source = source_of(write(tmp_path / "t.csv", ["a", "b", "label"], rows))
    assert source.codes == ()
    assert "codes" not in source.plain()


def test_new_data_is_coded_as_in_training(tmp_path):
    frame = people()
    frame.loc[[3, 17], "age"] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    _, source = source_of(tmp_path / "t.csv")
    new = people(30, seed=1).drop(columns="label")
    new.loc[0, "age"], new.loc[1, "city"], new.loc[2, "city"] = np.nan, "Bern", "Bern"
    new[["joined", "member", "city", "age"]].to_csv(tmp_path / "new.csv", index=False)  # another order
    said: list[str] = []
    x = read_inputs(source, tmp_path / "new.csv", None, say=said.append).inputs.numpy()
    assert x[0, :2].tolist() == [frame.age.median(), 1]
    assert x[1, 2:5].tolist() == [0, 0, 0]
    assert (x[3:, 2:5].sum(1) == 1).all()
    assert said == ["note: column 'city': 2 of 30 cells count as other ('Bern')"]


def test_gaps_that_training_did_not_have_are_refused_by_their_line(tmp_path):
    people().to_csv(tmp_path / "t.csv", index=False)
    _, source = source_of(tmp_path / "t.csv")
    for column in ("age", "joined"):
        new = people(9, seed=1)
        new[column] = new[column].astype(object)
        new.loc[4, column] = None
        new.to_csv(tmp_path / "new.csv", index=False)
        with pytest.raises(DubitoError, match=rf"line 6, column '{column}'.*fill in"):
            read_inputs(source, tmp_path / "new.csv", None)


def test_gaps_far_down_are_gaps_too(tmp_path):
    """The first 8,192 rows decide what a column holds, not whether it has gaps."""
    rows = [(i % 7, "xy"[i % 2], i % 2) for i in range(9000)] + [("NA", "", 1)]
    path = write(tmp_path / "t.csv", ["a", "b", "label"], rows)
    data, source = source_of(path, features=("a", "b"))
    assert data.inputs[-1].tolist() == [3, 1, 0, 0]
    assert source.codes == (Code("a", middle=3.0, gaps=1), Code("b", "category", ("x", "y"), gaps=1))


def test_what_is_neither_number_nor_gap_is_refused_by_its_line(tmp_path):
    rows = [(i, "xy"[i % 2]) for i in range(3, 60)] + [("", "x"), ("<0.5", "y")]
    path = write(tmp_path / "t.csv", ["a", "label"], rows)
    with pytest.raises(DubitoError, match=r"line 60, column 'a': got '<0.5'"):
        source_of(path)


def test_what_is_no_date_is_refused_by_its_line(tmp_path):
    rows = [("2020-01-05", i, "xy"[i % 2]) for i in range(40)] + [("5.1.2020", 3, "x")]
    path = write(tmp_path / "t.csv", ["day", "n", "label"], rows)
    with pytest.raises(DubitoError, match=r"no date at .*line 42, column 'day': got '5.1.2020'; write it as"):
        source_of(path)


def test_rare_values_share_no_column(tmp_path):
    words = ["a"] * 30 + ["b"] * 20 + ["c"] * 4 + ["d"] * 6
    rows = [(w, i % 3, "xy"[i % 2]) for i, w in enumerate(words)]
    data, source = source_of(write(tmp_path / "t.csv", ["word", "n", "label"], rows))
    assert source.codes[0].values == ("a", "b", "d")
    assert data.inputs[52].tolist()[:3] == [0, 0, 0]


def test_words_that_are_classes_are_taken_for_another_label(tmp_path):
    b = blobs(60)
    second = NAMES[np.random.default_rng(1).integers(0, 3, 60)]
    rows = [(*x, n, m, "yes") for x, n, m in zip(b.x, second, NAMES[b.given])]
    path = write(tmp_path / "t.csv", ["a", "b", "opinion", "label", "ok"], rows)
    assert find(FitJob(path, tmp_path / "run")).features == ("a", "b")
    assert find(FitJob(path, tmp_path / "run", features=("opinion",))).features == ("opinion",)
    answers = [("yes" if i % 3 else "no", i, "yes" if i % 2 else "no") for i in range(60)]
    path = write(tmp_path / "u.csv", ["smoker", "age", "label"], [(a, b + 7, c) for a, b, c in answers])
    assert find(FitJob(path, tmp_path / "run")).features == ("smoker", "age")  # yes and no are everywhere


def test_kinds_of_columns():
    assert kind_of([datetime.date(2020, 1, 1), None]) == "date"
    assert kind_of(["20200101", "20200102"]) == "number"
    assert kind_of(["1", "2", "three", "four"]) == "category"
    assert kind_of(["2020-01-01", "2020-13-45"]) == "category"


def test_a_column_that_is_empty_is_refused_if_it_is_named(tmp_path):
    rows = [("", i, "xy"[i % 2]) for i in range(30)]
    path = write(tmp_path / "t.csv", ["a", "b", "label"], rows)
    with pytest.raises(DubitoError, match=r"an empty column at t\.csv, column 'a'"):
        source_of(path, features=("a", "b"))


def test_no_rows():
    with pytest.raises(DubitoError, match="no rows"):
        Columns([Code("a")]).finish(0, "t.csv")


def test_the_commands_take_a_mixed_table(tmp_path):
    frame = people(150)
    frame.loc[[3, 17, 40], "age"] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    run = tmp_path / "run"
    said = dubito("fit", tmp_path / "t.csv", "--out", run, "--method", "ce", "--epochs", "30", *FAST[2:])
    assert "  inputs: 8 numbers each from 4 columns: age, city, member, joined" in said
    assert "  categories: city 3, member 2 (one column of 0 and 1 for each value that is not rare)" in said
    assert "  dates: joined (as days)" in said
    assert "  gaps: age 2 % (the median stands there, and one more column marks them)" in said
    dubito("predict", run, tmp_path / "t.csv", "--out", tmp_path / "p.csv")
    assert (tmp_path / "p.csv").read_bytes() == (run / "predictions.csv").read_bytes()
    people(150, seed=1).drop(columns="label").to_csv(tmp_path / "new.csv", index=False)
    dubito("predict", run, tmp_path / "new.csv", "--out", tmp_path / "q.csv")
    right = [row["predicted"] for row in read(tmp_path / "q.csv")] == people(150, seed=1).label
    assert right.mean() > 0.85
    checked = write(tmp_path / "gold.csv", ["id", "gold"], [("1", "yes"), ("2", "no")])
    assert "2 checked labels" in dubito("fit", run, "--gold", checked)
    dubito("audit", run)
