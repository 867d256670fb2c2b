"""The log as JSON: one object a line whatever is in it, stable names of events, a table that is current."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from repo_files import ROOT, tracked_with

from agent.hold_news import tell_changes
from agent.holds import EngineHolds, Hold, Holds, Waiver
from agent.log_events import ALWAYS, EVENTS, Event, about, about_each, events_table
from agent.log_json import JsonFormatter, know_where

HOSTILE = 'a\nb\r\x00\x1b[31m"\\\u2028\udcff\ud800 \x7f' + "x" * 20_000


def lines(message: str, *args: object, extra: dict[str, Any] | None = None, **more: Any) -> list[Any]:
    """What the formatter makes of a record, parsed; every line must be one object of ASCII."""
    record = logging.makeLogRecord(
        {"name": "nodegate.x", "levelno": 20, "levelname": "INFO", "msg": message, "args": args, **more}
    )
    vars(record).update(extra or {})
    text = JsonFormatter().format(record)
    assert text.isascii() and not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    return [json.loads(line) for line in text.split("\n")]


def test_every_line_has_the_same_keys() -> None:
    know_where("n1", "boot-a")
    (line,) = lines("gate %s: opens", "glm", extra=about(Event.GATE_CHANGED, engine="glm", old="a", new="b"))
    assert set(ALWAYS) <= set(line)
    assert line["event"] == "gate.changed" and line["engine"] == "glm" and line["subject"] is None
    assert (line["node"], line["boot_id"], line["level"]) == ("n1", "boot-a", "info")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line["ts"])
    (plain,) = lines("something")
    assert plain["event"] == "log" and plain["message"] == "something"


def test_hostile_text_stays_one_line_and_is_cut() -> None:
    (line,) = lines(
        "%s", HOSTILE, extra=about(Event.CHECK_CHANGED, summary=HOSTILE, x=float("nan"), y=b"\xff")
    )
    assert line["message"].startswith("a\nb\r") and line["message"].endswith("characters)")
    assert len(line["summary"]) < 9000 and line["x"] == "nan" and line["y"] == "b'\\xff'"


class Breaks:
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("message", "args", "extra"),
    [
        ("%d of it", ("x",), {}),
        ("%s", (Breaks(),), {}),
        ("%s of it", ("a", "b"), {}),
        ("it", (), about(Event.GATE_CHANGED, engine=Breaks())),
        ("it", (), {"nodegate": 5}),
    ],
)
def test_a_record_that_breaks_is_a_line_that_says_so(
    message: str, args: tuple[object, ...], extra: dict[str, Any]
) -> None:
    (line,) = lines(message, *args, extra=extra)
    assert line["message"].startswith(f"{message} (cannot be told: ") and line["logger"] == "nodegate.x"


def test_warnings_and_defects_of_threads_are_lines_too() -> None:
    """In a process of its own: hooks are the interpreter's."""
    code = """
import threading, warnings
from agent.log_json import LogFormat, start_logging
start_logging(LogFormat.JSON)
warnings.warn("old\\nthing")
thread = threading.Thread(target=lambda: 1 / 0, name="t1")
thread.start()
thread.join()
raise ValueError("two\\nlines")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    found = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["level"] for line in found] == ["warning", "critical", "critical"]
    assert "old\nthing" in found[0]["message"]
    assert "thread t1" in found[1]["message"] and "ZeroDivisionError" in found[1]["trace"]
    assert "ValueError: two\nlines" in found[2]["trace"] and done.returncode == 1


def test_several_subjects_are_a_line_each() -> None:
    each = [{"check": "gpu.ecc", "subject": f"gpu{n}", "new": "FAIL"} for n in range(3)]
    found = lines("gpu.ecc gpu0-gpu2: FAIL", extra=about_each(Event.CHECK_CHANGED, each))
    assert [line["subject"] for line in found] == ["gpu0", "gpu1", "gpu2"]
    assert {line["message"] for line in found} == {"gpu.ecc gpu0-gpu2: FAIL"}


def test_an_exception_is_in_the_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError as cause:
        told = (type(cause), cause, cause.__traceback__)
    (line,) = lines("broke", exc_info=told, extra=about(Event.AGENT_BROKE))
    assert "ValueError: two\nlines" in line["trace"]


def test_holds_that_begin_and_end_are_told(caplog: pytest.LogCaptureFixture) -> None:
    hold = Hold("new pump", "eve", 0.0, "b")
    waiver = Waiver("gpu.ecc", "gpu1", "known", "eve", 0.0, 60.0)
    after = Holds(maintenance=hold, engines={"glm": EngineHolds(drain=hold)}, waivers=(waiver,))
    with caplog.at_level(logging.INFO, "nodegate.holds"):
        tell_changes(Holds(), after)
        tell_changes(after, after)
        tell_changes(after, Holds(maintenance=hold))
    found = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    told = [(line["hold"], line["engine"], line["check"], line["subject"], line["set"]) for line in found]
    assert told == [
        ("drain", "glm", None, None, True),
        ("maintenance", None, None, None, True),
        ("waiver", None, "gpu.ecc", "gpu1", True),
        ("drain", "glm", None, None, False),
        ("waiver", None, "gpu.ecc", "gpu1", False),
    ]


def calls() -> list[tuple[Path, str, set[str]]]:
    """Every use of an event in the agent, with the keys that it is given."""
    found = []
    for path in tracked_with((".py",), "agent"):
        text = path.read_text()
        for match in re.finditer(
            r"about\((?:_\w+\.get\(\w+, )?Event\.(\w+)\)?([^()]*(?:\([^()]*\)[^()]*)*)\)", text
        ):
            keys = set(re.findall(r"(?:, |\n\s*)(\w+)=", match[2]))
            found.append((path, match[1], keys))
    return found


def test_every_event_is_used_and_has_its_keys() -> None:
    text = "\n".join(
        path.read_text() for path in tracked_with((".py",), "agent") if path.name != "log_events.py"
    )
    assert {event for event in Event if f"Event.{event.name}" not in text} <= {Event.ENGINE_CHANGED}
    assert set(EVENTS) == set(Event)
    for path, name, keys in calls():
        wanted = set(EVENTS[Event[name]][1])
        assert keys <= wanted | {"engine", "check", "subject"}, (path, name)


def test_the_table_is_current() -> None:
    assert events_table() in (ROOT / "docs" / "interfaces.md").read_text(), events_table()
