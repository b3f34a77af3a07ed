"""The summary and the files that `dubito crowd` writes."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from dubito.cli import app
from dubito.crowd import CrowdLabels, aggregate, render, run, summarise
from dubito.crowd.summary import as_dict
from dubito.errors import DubitoError


@pytest.fixture
def table(simulate, tmp_path):
    crowd, *_ = simulate(0, items=80, annotators=14, each=4)
    names = np.array(["cat", "=dog", "[red]cow"])
    path = tmp_path / "labels.csv"
    CrowdLabels(
        [f"img{n}" for n in crowd.item.tolist()],
        [f"secret{r}" for r in crowd.annotator.tolist()],
        names[crowd.label.numpy()],
    ).to_csv(path)
    return path


def text_of(summary):
    console = Console(file=io.StringIO(), width=120)
    console.print(render(summary))
    return console.file.getvalue()


def read(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_run_writes_consensus_and_quality(table, tmp_path):
    found = run(table, out=tmp_path / "result")
    consensus, quality, *_ = (read(p) for p in found.files)
    assert len(consensus) == 80
    assert len(quality) == 320
    assert {r["label"] for r in consensus} == {"cat", "'=dog", "[red]cow"}
    assert [r["task"] for r in quality] == [r["task"] for r in read(table)]
    assert all(0 <= float(r["probability_right"]) <= 1 for r in quality)
    page = text_of(found.summary)
    for phrase in (
        "320 labels on 80 items by 14 annotators",
        "Krippendorff",
        "Best 5",
        "Worst 5",
        "Ask next",
    ):
        assert phrase in page
    assert "[red]cow" in page
    assert as_dict(found.summary)["labels"] == 320


def test_anonymise_leaves_no_name(table, tmp_path):
    found = run(table, out=tmp_path / "result", anonymise=True)
    assert "secret" not in text_of(found.summary)
    assert "secret" not in repr(found.summary)
    assert len(found.files) == 4
    assert all("secret" not in path.read_text() for path in found.files)


def test_every_annotator_has_a_line_with_what_they_confuse(table, tmp_path):
    found = run(table, out=tmp_path / "result")
    people = {row["worker"]: row for row in read(tmp_path / "result" / "annotators.csv")}
    assert [a.name for a in found.summary.skills] == list(people)
    assert sum(int(row["labels"]) for row in people.values()) == 320
    q, classes = found.aggregate.probabilities.numpy(), found.crowd.classes.tolist()
    some = 0
    for code, name in enumerate(found.crowd.annotator_ids):
        row = people[name]
        assert float(row["low"]) <= float(row["skill"]) <= float(row["high"])
        mine = found.crowd.annotator.numpy() == code
        table_ = np.zeros((3, 3))
        for n, y in zip(found.crowd.item.numpy()[mine], found.crowd.label.numpy()[mine]):
            table_[:, y] += q[n]
        wrong = table_ * (1 - np.eye(3))
        k, j = np.unravel_index(wrong.argmax(), wrong.shape)
        if wrong.max() < 0.5:
            assert row["true"] == row["called"] == row["how_often"] == ""
            continue
        some += 1
        assert (row["true"].lstrip("'"), row["called"].lstrip("'")) == (classes[k], classes[j])
        assert float(row["how_often"]) == pytest.approx(wrong[k, j] / table_[k].sum(), abs=1e-4)
        assert float(row["times"]) == pytest.approx(wrong[k, j], abs=0.051)
    assert some > 5


def test_a_budget_of_questions_goes_to_a_file(table, tmp_path):
    result = CliRunner().invoke(
        app, ["crowd", str(table), "--out", str(tmp_path / "out"), "--questions", "30"]
    )
    assert result.exit_code == 0
    asked = read(tmp_path / "out" / "questions.csv")
    assert len(asked) == len({row["task"] for row in asked}) == 30
    bits = [float(row["bits"]) for row in asked]
    assert bits == sorted(bits, reverse=True)
    assert "Ask next: the first 10 of 30" in result.output
    assert asked[9]["task"] in result.output
    assert not read(tmp_path / "out" / "annotators.csv")[0]["worker"].startswith("annotator ")


def test_nothing_is_written_without_out(table):
    before = sorted(table.parent.iterdir())
    assert run(table).files == ()
    assert sorted(table.parent.iterdir()) == before


def test_columns_by_usual_names_and_by_request(tmp_path):
    (tmp_path / "a.csv").write_text("annotator_id,item_id,answer\na,1,x\nb,1,x\na,2,y\n")
    assert run(tmp_path / "a.csv").columns == ("item_id", "annotator_id", "answer")
    (tmp_path / "b.csv").write_text("foto,wer,was\na,1,x\nb,1,x\n")
    assert len(run(tmp_path / "b.csv", item="foto", annotator="wer", label="was").crowd) == 2
    with pytest.raises(DubitoError, match=r"no column for the item .*b.csv, line 1.*--item"):
        run(tmp_path / "b.csv")
    with pytest.raises(DubitoError, match="did you mean 'foto'"):
        run(tmp_path / "b.csv", item="fotos", annotator="wer", label="was")
    with pytest.raises(DubitoError, match="three columns"):
        run(tmp_path / "b.csv", item="foto", annotator="foto", label="was")
    (tmp_path / "c.csv").write_text("")
    with pytest.raises(DubitoError, match="an empty file"):
        run(tmp_path / "c.csv")
    (tmp_path / "d.csv").write_text("item,annotator,label\n")
    with pytest.raises(DubitoError, match=r"without rows at .*d.csv"):
        run(tmp_path / "d.csv")


def test_outputs_that_are_not_folders_are_left_alone(table, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DubitoError, match="not a folder"):
        run(table, out=tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(DubitoError, match="not a folder"):
        run(table, out=tmp_path / "link")
    (tmp_path / "real" / "consensus.csv").symlink_to(tmp_path / "file")
    with pytest.raises(DubitoError, match="not a plain file"):
        run(table, out=tmp_path / "real")
    assert (tmp_path / "file").read_text() == "mine"


def test_summary_of_odd_crowds():
    single = CrowdLabels([0, 1, 2], ["a", "a", "b"], ["Cat", "cat ", "dog"])
    page = summarise(single, aggregate(single))
    assert any("differ only in case" in n for n in page.notes)
    assert any("no item has two labels" in n for n in page.notes)
    assert "not defined" in text_of(page)
    holes = CrowdLabels.from_dense([[0, -1, 0], [-1, -1, -1], [1, -1, 1]])
    for method in ("auto", "vote", "glad"):
        page = summarise(holes, aggregate(holes, method))
        assert (page.empty_items, page.empty_annotators) == (1, 1)
        assert "without labels: 1 items, 1 annotators" in text_of(page)
    adversary = CrowdLabels.from_dense(np.stack([np.arange(60) % 2] * 3 + [1 - np.arange(60) % 2], 1))
    page = summarise(adversary, aggregate(adversary))
    assert any("worse than guessing" in n for n in page.notes)
    assert page.crowd_confusions[0].rate == pytest.approx(0.25, abs=0.05)


def test_a_right_answer_is_no_confusion():
    """With two classes the list of confusions must not be filled up from the diagonal."""
    crowd = CrowdLabels([1, 1, 2, 2, 3, 3], list("ababab"), ["x", "y", "y", "y", "x", "x"])
    found = summarise(crowd, aggregate(crowd))
    assert all(c.true != c.given for c in (*found.crowd_confusions, *found.annotator_confusions))


def test_the_command_alone_writes_both_files(table):
    """`dubito crowd labels.csv` prints the page and writes the tables beside the labels, unless told not to."""
    runner = CliRunner()
    before = sorted(table.parent.iterdir())
    said = runner.invoke(app, ["crowd", str(table), "--no-files"])
    assert said.exit_code == 0, said.output
    assert sorted(table.parent.iterdir()) == before
    said = runner.invoke(app, ["crowd", str(table), "--anonymise"])
    assert said.exit_code == 0, said.output
    for text in ("95 % interval", "Worst confusions", "Krippendorff", "Ask next", "written:"):
        assert text in said.output
    assert "secret" not in said.output
    assert len(read(table.parent / "labels-consensus" / "consensus.csv")) == 80
    assert len(read(table.parent / "labels-consensus" / "label_quality.csv")) == 320


@pytest.mark.parametrize(("several", "said"), [(0, "cannot be told"), (3, "only 3 of 100 items")])
def test_few_items_with_two_labels_are_told(several, said):
    n = [*range(100), *range(several)]
    crowd = CrowdLabels(
        n, [i % 5 for i in range(100)] + [(i + 1) % 5 for i in range(several)], [0, 1] * 50 + [0] * several
    )
    page = summarise(crowd, aggregate(crowd))
    assert any(said in note for note in page.notes)
    assert ("how many labels are wrong cannot be told" in text_of(page)) == (several == 0)


def _said(tmp_path, text, **options):
    path = tmp_path / "said.csv"
    path.write_text(text)
    return run(path, **options)


def test_the_share_of_wrong_labels_is_what_the_posterior_expects(tmp_path):
    """Two people who contradict each other on every item: half of the labels are wrong, not all of them."""
    found = _said(tmp_path, "task,worker,label\n1,ann,x\n1,bob,y\n2,ann,y\n2,bob,x\n", method="vote")
    assert found.summary.doubtful_labels == pytest.approx(0.5)
    assert "about 50.0 % of the labels are wrong" in text_of(found.summary)


def test_nobody_is_worse_than_guessing_among_one_class(tmp_path):
    found = _said(tmp_path, "task,worker,label\n1,ann,x\n1,bob,x\n2,ann,x\n")
    assert not any("guessing" in note for note in found.summary.notes)


def test_labels_given_twice_by_one_person_are_no_company(tmp_path):
    rows = "".join(f"{n},ann,{'xy'[n % 2]}\n" * 2 for n in range(50))
    found = _said(tmp_path, f"task,worker,label\n{rows}", duplicates="keep")
    low, high = found.aggregate.skill_intervals()[0].tolist()
    assert low < 0.5 < high
