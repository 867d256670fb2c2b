"""Reports of a run: golden files, structure of the page, hostile and huge records, folders out of reach."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from checklist_record import failed_record, small_record

from agent import __version__
from agent.checklist import report
from agent.checklist.record import Curve, RunRecord, StepFinding, StepRecord, Value
from agent.checklist.report import MOST_BYTES, refuse_unwritable, texts, write_reports
from agent.checklist.report_text import clean, headline, took
from agent.errors import ConfigError
from agent.model import Verdict

GOLDEN = Path(__file__).with_name("golden")
VOID = {"meta", "br"}
HOSTILE = (
    "<script>alert(1)</script> \"'><img src=x onerror=y> &amp; \x00\x07\x1b[31m \ud800 \u202e ]]> {{ 7*7 }}"
)


class Page(HTMLParser):
    """Tags with attributes, whether they nest, ids, and the text outside styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    def count(self) -> Counter[str]:
        return Counter(tag for tag, _ in self.tags)

    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.mark.parametrize("name", ["report.json", "report.xml", "report.html"])
def test_a_small_record_gives_the_known_reports(name: str) -> None:
    made = texts(small_record())[name].replace(f"nodegate {__version__} ", "nodegate VERSION ")
    golden = GOLDEN / name
    if os.environ.get("NODEGATE_WRITE_GOLDEN"):
        golden.write_text(made)
    assert made == golden.read_text(), (
        "look it over, then NODEGATE_WRITE_GOLDEN=1 pytest tests/checklist/test_report.py"
    )


def test_the_page_is_one_file_without_script_or_anything_from_elsewhere() -> None:
    text = texts(failed_record())["report.html"]
    page = Page(text)
    assert page.open == []
    found = page.count()
    assert not {"script", "link", "img", "iframe", "object", "form", "base"} & set(found)
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")], tag
        for name in ("src", "href", "xlink:href", "action"):
            assert str(attributes.get(name, "#")).startswith("#"), (tag, attributes)
    assert "url(" not in text
    assert "@import" not in text
    assert "http://" not in text.replace('"http://www.w3.org', "")


def test_the_page_has_headings_captions_and_names_for_those_who_cannot_see_it() -> None:
    page = Page(texts(failed_record())["report.html"])
    found = page.count()
    levels = [int(tag[1]) for tag, _ in page.tags if tag in ("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert found["table"] == found["caption"] == 4
    ids = Counter(attributes["id"] for _, attributes in page.tags if "id" in attributes)
    assert max(ids.values()) == 1
    plots = [
        attributes for tag, attributes in page.tags if tag == "svg" and attributes.get("class") == "plot"
    ]
    assert len(plots) == 4
    for attributes in plots:
        assert attributes["role"] == "img"
        assert set(str(attributes["aria-labelledby"]).split()) <= set(ids)
    for tag, attributes in page.tags:
        if tag == "a":
            assert str(attributes["href"]).removeprefix("#") in ids
        if tag == "svg" and attributes.get("class") != "plot":
            assert attributes["aria-hidden"] == "true"
    html = next(attributes for tag, attributes in page.tags if tag == "html")
    assert html["lang"] == "en"


def test_the_page_says_what_failed_what_to_do_who_answered_and_what_was_seen() -> None:
    text = Page(texts(failed_record())["report.html"]).text()
    for words in (
        "FAILED at step 10 of 11: Three minutes of small-batch load without throttling",
        "Have the cooling team check flow and the cold plate of gpu5.",
        "Then go on with: nodegate checklist run post-maintenance --resume",
        "maintenance is kept: failed at step soak",
        "“yes; flow 38 l/min, vented twice” Mira Novak, 2026-11-30 08:16:07 UTC",
        "observed -3 C , expected >= 5 C",
        "1 FAIL, 1 WARN, 7 PASS, 1 SKIP, 1 not run",
        "5 min 30 s, resumed 1",
    ):
        assert words in text
    assert "SIMULATED" not in text


def test_only_findings_of_steps_that_passed_are_folded_and_paper_has_them_all() -> None:
    for verdict, folds in [("PASS", 1), ("WARN", 0), ("FAIL", 0), ("UNKNOWN", 0)]:
        record = small_record()
        for step in record.steps:
            step.findings = []
        found = StepFinding(check="gpu.x", subject="gpu0", verdict=Verdict(verdict), summary="as it is")
        record.steps[1].findings = [found]
        made = texts(record)["report.html"]
        assert Page(made).count()["details"] == folds, verdict  # the step itself says PASS each time
        assert "as it is" in Page(made).text()
        record.steps[1].verdict = Verdict.UNKNOWN
        assert Page(texts(record)["report.html"]).count()["details"] == 0
    paper = made.partition("@media print {")[2].partition("@page")[0]
    assert "details::details-content { content-visibility: visible; block-size: auto; }" in paper


def test_a_simulated_run_says_so_in_title_banner_headline_plots_and_foot() -> None:
    made = texts(failed_record(simulated=True))
    page = Page(made["report.html"])
    assert "<title>SIMULATED " in made["report.html"]
    assert page.text().count("SIMULATED") >= 8
    assert "SIMULATED · FAILED at step 10" in page.text()
    suite = ElementTree.fromstring(made["report.xml"])
    properties = {each.get("name"): each.get("value") for each in suite.iter("property")}
    assert properties["simulated"] == "true"
    assert json.loads(made["report.json"])["run"]["simulated"] is True


def test_a_shortened_run_says_so_and_parts_are_told() -> None:
    made = texts(small_record(shortened=["soak.duration_s 20 of 180"], origin="site"))
    text = Page(made["report.html"]).text()
    assert "SHORTENED: this run proves less than its name says (soak.duration_s 20 of 180)." in text
    assert "PASSED, SHORTENED: all 3 steps less than the checklist has: soak.duration_s 20 of 180" in text
    assert "not nodegate's own list (of this site)" in text
    assert "board SN-1" in text
    properties = {
        p.get("name"): p.get("value") for p in ElementTree.fromstring(made["report.xml"]).iter("property")
    }
    assert properties["shortened"] == "soak.duration_s 20 of 180"


def test_junit_has_a_case_for_each_step_and_the_findings_of_the_failed_one() -> None:
    suite = ElementTree.fromstring(texts(failed_record())["report.xml"])
    cases = {str(case.get("name")).partition(":")[0]: case for case in suite.iter("testcase")}
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors"), suite.get("skipped")) == (
        "11",
        "1",
        "0",
        "2",
    )
    failure = cases["soak"].find("failure")
    assert failure is not None
    assert failure.get("message") == "gpu5 throttled after 118 s (hardware thermal slowdown)"
    assert "FAIL gpu.thermal_margin gpu5: 3 C above its own limit" in str(failure.text)
    assert "observed -3 C, expected >= 5 C" in str(failure.text)
    assert "answer: yes; flow 38 l/min, vented twice (Mira Novak" in str(
        cases["loop-asked"].findtext("system-out")
    )
    assert cases["gate"].find("skipped") is not None
    assert cases["soak"].get("time") == "180.000"
    properties = {each.get("name"): each.get("value") for each in suite.iter("property")}
    assert properties["node"] == "rack4-node2"
    assert properties["profile_hash"] == "4f1c" * 16
    assert properties["simulated"] == "false"


@pytest.mark.parametrize(
    ("changes", "tone", "begins"),
    [
        ({}, "good", "PASSED: all 3 steps"),
        ({"shortened": ["soak.duration_s 20 of 180"]}, "soft", "PASSED, SHORTENED: all 3 steps"),
        ({"verdict": Verdict.WARN}, "soft", "PASSED WITH WARNINGS: all 3 steps"),
        ({"verdict": Verdict.FAIL}, "bad", "FAILED before its first step"),
        ({"verdict": None, "ended_wall_s": None}, "soft", "STILL RUNNING"),
        ({"verdict": None}, "soft", "ENDED WITHOUT A VERDICT"),
        ({"verdict": Verdict.UNKNOWN}, "bad", "NOT PROVEN, UNKNOWN"),
        ({"verdict": Verdict.SKIP}, "bad", "NOT PROVEN, SKIP"),
        ({"steps": []}, "bad", "NOT PROVEN: the run says PASS, but it has no steps"),
    ],
)
def test_only_a_run_that_passed_reads_as_passed(changes: dict[str, object], tone: str, begins: str) -> None:
    record = small_record(**changes)
    told = headline(record)
    assert told.tone == tone
    assert told.text.startswith(begins)
    suite = ElementTree.fromstring(texts(record)["report.xml"])
    clean_suite = suite.get("failures") == suite.get("errors") == "0"
    assert clean_suite is (record.verdict in (Verdict.PASS, Verdict.WARN) and bool(record.steps))


@pytest.mark.parametrize("verdict", [Verdict.FAIL, Verdict.UNKNOWN, None])
def test_a_record_that_contradicts_itself_has_not_passed(verdict: Verdict | None) -> None:
    record = small_record()
    record.steps[1].verdict = verdict
    assert headline(record).text.startswith("NOT PROVEN: the run says PASS, but step Temperatures and links")
    suite = ElementTree.fromstring(texts(record)["report.xml"])
    assert int(str(suite.get("failures"))) + int(str(suite.get("errors"))) >= 1


def test_a_hostile_record_stays_text() -> None:
    made = texts(_hostile())
    page = Page(made["report.html"])
    assert page.open == []
    assert not {"script", "img"} & set(page.count())
    assert all(not name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert "<script>alert(1)</script>" in page.text()
    assert "{{ 7*7 }}" in page.text()
    for text in made.values():
        text.encode()  # no halves of surrogates
        assert not set("\x00\x07\x1b\u202e") & set(text)
    suite = ElementTree.fromstring(made["report.xml"])
    assert any("<script>alert(1)</script>" in str(case.get("name")) for case in suite.iter("testcase"))
    document = json.loads(made["report.json"])
    assert "<script>" in document["run"]["steps"][0]["title"]


def test_the_largest_records_stay_small_and_say_what_is_left_out() -> None:
    made = texts(_huge())
    for name, text in made.items():
        assert len(text.encode()) < MOST_BYTES, name
    document = json.loads(made["report.json"])
    highest = max(value for curve in document["run"]["curves"] for _, value in curve["points"])
    lowest = min(value for curve in document["run"]["curves"] for _, value in curve["points"])
    assert (highest, lowest) == (1e5, -7.0)
    left_out = " ".join(document["left_out"])
    for words in ("steps: ", "curves: ", "findings: ", "100000 points"):
        assert words in left_out
    assert "Left out of this report" in made["report.html"]


def test_the_last_bounds_hold_whatever_is_in_every_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once to the last ones: those before would make gigabytes of such a record."""
    hostile = '"' * 300
    found = StepFinding(check=hostile, subject=hostile, verdict=Verdict.FAIL)
    found = found.model_copy(
        update=dict.fromkeys(("observed", "expected", "unit", "summary", "hint"), hostile)
    )
    value = Value(name="x", subject=hostile, value=1 / 3, unit=hostile, expected=hostile)
    values = [value.model_copy(update={"name": f"x{at}{hostile}"}) for at in range(12)]
    step = StepRecord(
        id="s", title=hostile, kind="check", verdict=Verdict.FAIL, summary=hostile, hint=hostile
    )
    step = step.model_copy(update={"findings": [found] * 12, "values": values})
    curve = Curve(
        step="s0", name="x", subject=hostile, unit=hostile, points=[(float(n), n % 7) for n in range(700)]
    )
    record = small_record(
        steps=[step.model_copy(update={"id": f"s{at}"}) for at in range(110)],
        curves=[curve.model_copy(update={"name": f"x{at}"}) for at in range(20)],
        **dict.fromkeys(("node", "checklist", "who", "reason"), hostile),
    )
    monkeypatch.setattr(report, "LEVELS", report.LEVELS[-1:])
    for name, text in texts(record).items():
        assert len(text.encode()) < MOST_BYTES, name


def test_the_same_record_gives_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_reports(failed_record(), tmp_path / folder)
    for name in ("report.json", "report.xml", "report.html"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_reports_are_written_whole_over_old_ones_and_nothing_else_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "reports"
    write_reports(small_record(), folder)
    written = write_reports(failed_record(), folder)
    assert [path.name for path in written] == ["report.json", "report.xml", "report.html"]
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "report.json", "report.xml"]
    assert {path.stat().st_mode & 0o777 for path in written} == {0o640}
    assert "FAILED" in (folder / "report.html").read_text()


@pytest.mark.parametrize("kind", ["a file", "a folder in the way"])
def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "reports"
    if kind == "a file":
        folder.write_text("in the way")
    else:
        (folder / "report.xml" / "in the way").mkdir(parents=True)
    with pytest.raises(
        ConfigError, match=r"cannot write the report: .*; free space or name another folder"
    ) as caught:
        write_reports(small_record(), folder)
    assert "\n" not in str(caught.value)
    if kind == "a file":
        with pytest.raises(ConfigError, match=r"cannot write the report: .*; nothing was run"):
            refuse_unwritable(folder)
    if folder.is_dir():
        assert sorted(path.name for path in folder.iterdir()) == ["report.json", "report.xml"]


def test_texts_and_times_read_well() -> None:
    assert clean("a\tb\nc\x00\ud800", 10) == "a\tb\nc\ufffd\ufffd"
    assert clean("x" * 30, 10) == "x" * 10 + " … (20 more characters are left out)"
    assert [took(0, end) for end in (0.04, 9.94, 59.4, 61, 3599, 3700)] == [
        "0.0 s", "9.9 s", "59 s", "1 min 01 s", "59 min 59 s", "1 h 01 min",
    ]  # fmt: skip


def _hostile() -> RunRecord:
    finding = StepFinding.model_construct(
        check=HOSTILE, subject=HOSTILE, verdict=Verdict.FAIL, observed=HOSTILE, expected=HOSTILE,
        unit=HOSTILE, summary=HOSTILE, hint=HOSTILE,
    )  # fmt: skip
    value = Value.model_construct(
        name=HOSTILE,
        subject=HOSTILE,
        value=1.0,
        unit=HOSTILE,
        expected=f"<= 3 {HOSTILE}",
        verdict=Verdict.FAIL,
    )
    record = small_record(
        node=HOSTILE, title=HOSTILE, who=HOSTILE, reason=HOSTILE, checklist=HOSTILE, verdict=Verdict.FAIL,
        run_id=HOSTILE, outcome=[HOSTILE], profile_hash=HOSTILE, hardware=HOSTILE, boot_id=HOSTILE,
        started_wall_s=1e300, parts={HOSTILE: HOSTILE}, shortened=[HOSTILE], definition=HOSTILE,
    )  # fmt: skip
    curve = Curve.model_construct(
        step=HOSTILE, name=HOSTILE, subject=HOSTILE, unit=HOSTILE, points=[(0.0, 1.0), (1.0, float("nan"))]
    )
    update = {
        "id": HOSTILE, "title": HOSTILE, "summary": HOSTILE, "hint": HOSTILE, "verdict": Verdict.FAIL,
        "findings": [finding], "values": [value],
    }  # fmt: skip
    return record.model_copy(update={"steps": [record.steps[0].model_copy(update=update)], "curves": [curve]})


def _huge() -> RunRecord:
    steps = [
        StepRecord(id=f"s{at}", title=f"step {at} " + "ä" * 90_000, kind="check", verdict=Verdict.PASS)
        for at in range(450)
    ]
    steps[0].findings = [
        StepFinding(check="gpu.count", subject=f"gpu{at}", verdict=Verdict.WARN, summary="y" * 3000)
        for at in range(500)
    ]
    peak = [(float(at), 40.0) for at in range(100_000)]
    peak[61_803], peak[33_333] = (61_803.0, 1e5), (33_333.0, -7.0)
    flat = [(float(at), 1.0) for at in range(5)]
    curves = [Curve(step="s0", name="temperature", subject="gpu0", unit="C", points=peak)]
    curves += [Curve(step="s1", name=f"q{at}", subject="gpu0", unit="C", points=flat) for at in range(450)]
    return small_record(steps=steps, curves=curves, verdict=Verdict.WARN)
