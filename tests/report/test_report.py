"""The page as text: what is in it, and that nothing breaks out of it."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from dubito._audit import audit
from dubito._report import Check, Curve, Fact, Matrix, ReportData, Suspicion, render, report
from dubito._report.charts import line_charts, short, ticks
from dubito._report.pictures import data_uri
from dubito.errors import DubitoError


class Page(HTMLParser):
    """Tags with their attributes, the text between, and the contents of script and style."""

    VOID = ("meta", "link", "br", "img", "input", "rect", "line", "polyline")

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.texts, self.code = [], [], [], {"script": [], "style": []}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in self.code:
            self.code[self.open[-1]].append(data)
        else:
            self.texts.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.mark.rel
def test_names_never_become_markup(hostile, plain_content):
    """Scorecard 28: HTML in class names, file names, ids and annotators stays text."""
    bad, good = Page(render(hostile)), Page(render(plain_content))
    assert [t for t, _ in bad.tags] == [t for t, _ in good.tags]
    assert len(bad.all("script")) == len(bad.all("style")) == 1
    assert bad.code == good.code
    assert bad.open == []
    for (_, a), (_, b) in zip(bad.tags, good.tags):
        assert a.keys() == b.keys()
        assert not any(name.startswith("on") or name == "style" for name in a)
        assert not any(str(a.get(name) or "").startswith("javascript:") for name in ("href", "src"))
    assert any("<script>window.hit = 1</script>" in t for t in bad.texts)
    assert not any(t.strip() == "49" for t in bad.texts)


def test_policy_allows_the_own_script_and_style_only(plain_content):
    page = Page(render(plain_content))
    policy = next(a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    for tag in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256("".join(page.code[tag]).encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_page_needs_no_network(plain_content):
    text = render(plain_content)
    page = Page(text)
    for _, attributes in page.tags:
        for name in ("src", "href", "xlink:href", "action", "data"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:", "#"))
    assert not re.search(r"url\(|@import|https?://", text)


def test_columns_without_content_are_left_out():
    plan = [Check(10, Fact("found", 9.0), Fact("left", 0.1, 0.1, 0.1))]
    bare = render(ReportData("t", suspicions=[Suspicion(1, "a", "b", 0.985)], plan=plan))
    assert "nearest" not in bare
    assert "95 % interval" not in bare
    assert "98.5 %" in bare
    full = render(
        ReportData(
            "t",
            suspicions=[Suspicion(1, "a", "b", 0.5, neighbours=[(2, "b")])],
            plan=[*plan, Check(20, Fact("found", 15.0, 12.0, 18.0), Fact("left", 0.0))],
        )
    )
    assert full.count('<th scope="col">nearest') == 1
    assert full.count("95 % interval") == 2


def test_every_heat_map_has_a_table(plain_content):
    page = Page(render(plain_content))
    maps = [a["aria-label"] for a in page.all("svg") if a.get("class") == "map"]
    regions = [a["aria-label"] for a in page.all("div") if a.get("role") == "region"]
    assert len(maps) == 2
    for label in maps:
        title = label.removeprefix("Heat map: ").split(".")[0]
        assert f"Table: {title}" in regions


def test_controls_have_labels_and_links_have_targets(plain_content):
    page = Page(render(plain_content))
    ids = [a["id"] for _, a in page.tags if a.get("id")]
    assert len(ids) == len(set(ids))
    labelled = {a["for"] for a in page.all("label")}
    assert {a["id"] for tag in ("input", "select") for a in page.all(tag)} == labelled
    assert {a["href"][1:] for a in page.all("a")} <= set(ids)
    assert all(a.get("aria-label") or a.get("aria-hidden") for a in page.all("svg"))
    assert all("alt" in a for a in page.all("img"))
    assert page.all("html") == [{"lang": "en"}]


def test_anonymised_pages_do_not_name_annotators(plain_content):
    named = ReportData(
        "t",
        annotators=[type(plain_content.annotators[0])("Ann Smith", 3, 0.5)],
        annotator_matrices=[Matrix("Ann Smith", ["a"], ["a"], [[1.0]], annotator="Ann Smith")],
        suspicions=[
            Suspicion(1, "a", "b", 0.5, annotator="Ann Smith"),
            Suspicion(2, "a", "b", 0.4, annotator="Bob"),
        ],
    )
    assert "Ann Smith" in render(named)
    text = render(named, anonymise=True)
    assert "Ann Smith" not in text
    assert "Bob" not in text
    assert text.count("annotator 1") >= 4
    assert "annotator 2" in text


def test_empty_sections_are_left_out():
    page = Page(render(ReportData("Nothing yet")))
    assert [a["id"] for a in page.all("section")] == ["reproduce"]
    assert page.all("table") == []


def test_report_of_an_audit_from_end_to_end(tmp_path):
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 200)
    labels = np.where(rng.random(200) < 0.2, (true + 1) % 3, true)
    probs = 0.7 * np.eye(3)[true] + 0.1
    found = audit(labels, probs, classes=None, annotators=rng.integers(0, 2, 200), bootstrap=5)
    path = report(
        found, tmp_path / "r.html", thumbnails=rng.random((200, 4, 4)), most=7, command="dubito audit x"
    )
    page = Page(path.read_text(encoding="utf-8"))
    sections = [a["id"] for a in page.all("section")]
    # What to do stands before what was found out.
    assert sections == ["labels", "plan", "data", "annotators", "transition", "reproduce"]
    assert [a["href"] for a in page.all("a")][1:] == [f"#{name}" for name in sections]
    rows = [a for a in page.all("tr") if "data-id" in a]
    assert [int(a["data-id"]) for a in rows] == found.order[:7].tolist()
    assert len(page.all("img")) == 7
    assert "dubito audit x" in page.texts
    assert sum("of the 200 labels are wrong" in t for t in page.texts) == 1
    again = report(found, path, thumbnails={int(found.order[0]): np.zeros((2, 2))}, most=2)
    assert len(Page(again.read_text(encoding="utf-8")).all("img")) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: report(3, p), "cannot report on this"),
        (lambda p: report(ReportData("t"), p, most=-1), "most must be a count"),
        (lambda p: report(ReportData("t"), p.parent), "refusing to write"),
        (lambda p: render(ReportData("t", curves=[Curve("a", "b", [1], [1, 2])])), "as many x as y"),
        (
            lambda p: render(ReportData("t", transition=Matrix("m", ["a"], ["a", "b"], [[1.0]]))),
            "one column per",
        ),
        (
            lambda p: render(ReportData("t", suspicions=[Suspicion(1, 0, 1, 0.5, thumbnail=b"<svg>")])),
            "thumbnail",
        ),
        (lambda p: data_uri(np.zeros((2, 2, 5)), "here"), "at here"),
        (lambda p: data_uri(b"\x89PNG\r\n\x1a\n" + b"0" * 300_000, "here"), "at most 262,144 bytes"),
    ],
)
def test_what_cannot_be_shown_is_refused(tmp_path, call, message):
    with pytest.raises(DubitoError, match=message):
        call(tmp_path / "x.html")


def test_pictures_survive_the_way_into_the_page():
    image = pytest.importorskip("PIL.Image")
    import io

    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype(np.uint8)
    data = base64.b64decode(data_uri(pixels, "x").partition(",")[2])
    np.testing.assert_array_equal(np.asarray(image.open(io.BytesIO(data))), pixels)
    grey = base64.b64decode(data_uri(np.linspace(0, 1, 200 * 10).reshape(200, 10), "x").partition(",")[2])
    assert max(image.open(io.BytesIO(grey)).size) <= 64


def test_ticks_and_curves():
    assert ticks(-3, 17) == [0.0, 5.0, 10.0, 15.0]
    assert ticks(2, 2)[0] == 2.0
    long = line_charts([Curve("a", "b", range(5000), [float("nan"), *range(4999)])])[0]
    assert len(long["lines"][0]["points"].split()) <= 402
    assert long["lines"][0]["last"] == 4998
    assert line_charts([Curve("a", "b", [], [])]) == []
    assert long["lines"][0]["alone"] is None
    assert line_charts([Curve("a", "b", [1], [0.5])])[0]["lines"][0]["alone"] is not None
    assert short(12345) == "12,345"


def test_a_curve_of_one_epoch_is_a_dot(tmp_path):
    """A line through one point is invisible."""
    page = report(ReportData(title="t", curves=[Curve("loss", "train", [1], [0.5])]), tmp_path / "r.html")
    assert '<circle class="alone s0"' in page.read_text(encoding="utf-8")


def test_hundreds_of_classes_do_not_swamp_the_page(tmp_path):
    """Of very many classes those that are confused most are drawn, and the page says so."""
    K = 200
    values = np.eye(K)
    values[150, 150], values[150, 7] = 0.4, 0.6
    names = [f"species {k}" for k in range(K)]
    matrix = Matrix("T", names, names, values.tolist(), values.tolist(), values.tolist())
    text = render(ReportData(title="t", transition=matrix))
    assert len(text) < 2_000_000
    assert "Of 200 classes the 60 that are confused most." in text
    assert "true species 150, given species 7: 0.6" in text


def test_a_report_claims_no_annotators_and_no_intervals_that_an_audit_has_not(tmp_path):
    labels, probs = [0, 0, 0, 1, 1, 1, 0, 1], [[0.9, 0.1]] * 3 + [[0.2, 0.8]] * 3 + [[0.1, 0.9], [0.3, 0.7]]
    bare = report(audit(labels, probs, bootstrap=0), tmp_path / "bare.html").read_text(encoding="utf-8")
    assert "noise +" in bare or "noise -" in bare
    assert "annotators +" not in bare
    assert "annotators -" not in bare
    assert ">nearest<" not in bare
    full = audit(
        labels, probs, bootstrap=2, annotators=list("abababab"), features=[[float(v)] for v in labels]
    )
    page = report(full, tmp_path / "full.html").read_text(encoding="utf-8")
    assert "annotators +" in page or "annotators -" in page
    assert ">nearest<" in page
    entry = audit(labels, probs, bootstrap=0).transition[0, 0]
    assert f"{entry:.3f} to {entry:.3f}" not in bare


def test_patches_of_masks_have_no_log_odds_and_no_gold_column(tmp_path):
    """What nobody said why of is nothing that `--gold` takes back."""
    for why, told in (({}, False), ({"model": 1.5}, True)):
        content = ReportData("Masks", suspicions=[Suspicion("i03: rows 2 to 9", "sky", "tree", 0.9, why=why)])
        page = report(content, tmp_path / f"{told}.html").read_text(encoding="utf-8")
        assert ("why (log-odds)" in page, "--gold" in page, "<em>why</em>" in page) == (told, told, told)
        assert "i03: rows 2 to 9" in page
