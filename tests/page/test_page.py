"""The page's parts without a browser: what is ready, what is old, headers, size, curves and advice."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gate_kit as kit
import pytest
from server_kit import HandTime, Served, published, record, serve

from agent.model import GateState
from agent.page.advice import steps
from agent.page.answer import StatusPage, code
from agent.page.node_map import MapMaker
from agent.page.spark import HEIGHT, WIDTH, Look, curve
from agent.page.words import lasted
from agent.profile_loader import profile_from_dict
from agent.publisher import Publisher, boottime_s
from agent.recent_changes import Change, Changes
from agent.recent_history import LENGTH_S

S = GateState
HEAT_LOOK = Look("temperature", "C", 10.0)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    publisher = Publisher()
    publisher.publish(published(record(S.SERVING), at_s=boottime_s()))
    publisher.beat()
    with serve(publisher, tmp_path) as running:
        yield running


def _word(html: str) -> str:
    found = re.search(r'class="word">([^<]+)<', html)
    assert found
    return found[1]


def test_headers_let_nothing_in_and_hold_the_hash_of_what_is_in_the_page(served: Served) -> None:
    answer = served.ask("/")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "connect-src 'self'" in policy
    assert "unsafe" not in policy
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
        digest = b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}';" in policy
    assert re.findall(r"\s(?:style|on\w+)=", answer.text) == []
    assert re.findall(r'(?:src|href)="(?!data:|status"|history"|metrics"|readyz")', answer.text) == []
    assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == (
        "no-store",
        "nosniff",
    )


@pytest.mark.parametrize("path", ["/", "/history"])
def test_head_and_options_have_no_body(served: Served, path: str) -> None:
    for method in ("HEAD", "OPTIONS"):
        answer = served.ask(path, method)
        assert (answer.status_code, answer.content) == (200, b"")
    assert served.ask(path, "POST").status_code == 405


def test_old_evidence_and_a_loop_that_hangs_never_read_as_ready() -> None:
    time = HandTime()
    publisher = Publisher(time)
    page = StatusPage(publisher)
    assert _word(page.reply().body.decode()) == "NOT READY: STARTING"
    publisher.beat()
    publisher.publish(published(record(S.SERVING), at_s=time.now_s))
    assert _word(page.reply().body.decode()) == "READY"
    time.now_s += 4.9
    publisher.beat()
    assert _word(page.reply().body.decode()) == "READY"
    time.now_s += 0.2  # within the same second as the page that was made before
    html = page.reply().body.decode()
    assert _word(html) == "NOT READY: OLD ANSWER"
    assert re.sub(r"NOT READY|READY, |readyz", "", html.partition("<script>")[0]).count("READY") == 0
    publisher.publish(published(record(S.SERVING), at_s=time.now_s))
    assert _word(page.reply().body.decode()) == "READY"
    time.now_s += 4.0
    publisher.publish(published(record(S.SERVING), at_s=time.now_s))
    time.now_s += 1.5  # no beat for 5.5 s
    html = page.reply().body.decode()
    assert "main loop does not beat" in html
    assert _word(html) == "NOT READY: OLD ANSWER"


def test_who_asks_within_a_second_gets_the_same_bytes_until_something_changes() -> None:
    time = HandTime()
    publisher = Publisher(time)
    publisher.beat()
    publisher.publish(published(record(S.SERVING), at_s=time.now_s))
    page = StatusPage(publisher)
    first = page.reply()
    assert page.reply() is first
    publisher.publish(published(record(S.FAILED, blockers=(kit.HEAT,)), at_s=time.now_s))
    assert "NOT READY: FAILED" in page.reply().body.decode()


def test_a_forced_gate_is_loud() -> None:
    publisher = Publisher()
    publisher.beat()
    holds = replace(record(S.DEGRADED).holds, force_open=kit.force(boottime_s() + 600))
    forced = record(S.DEGRADED, blockers=(kit.HEAT,), forced=True, holds=holds)
    publisher.publish(published(forced, at_s=boottime_s()))
    html = StatusPage(publisher).reply().body.decode()
    assert _word(html) == "FORCED OPEN"
    assert "FORCE-OPEN glm for another" in html


def test_changes_are_shown_and_a_journal_that_cannot_be_read_says_so() -> None:
    publisher = Publisher()
    publisher.beat()
    change = Change(1_790_000_000.0, "gate", "gate", "glm", "warming", "serving", "warm")
    base = published(record(S.SERVING), at_s=boottime_s())
    publisher.publish(replace(base, changes=Changes((change,), "the disk is gone")))
    html = StatusPage(publisher).reply().body.decode()
    assert "warming → serving" in html
    assert "The journal cannot be read: the disk is gone" in html


def test_a_curve_stays_in_its_box_breaks_at_gaps_and_says_what_it_shows() -> None:
    times = [-590.0, -585.0, -580.0, -200.0, -195.0, 0.0]
    drawn = curve(times, [30.0, 80.0, 40.0, None, 50.0, 60.0], HEAT_LOOK)
    assert drawn is not None
    assert drawn.label == "temperature, last 10 minutes: 30 to 80 C, now 60 C"
    assert drawn.path.count("M") == 3
    x = y = 0
    for kind, one, _, two in re.findall(r"([Mhl])(-?\d+)(( ?-?\d+)?)", drawn.path):
        move = (int(one), int(two or 0))
        x, y = move if kind == "M" else (x + move[0], y + move[1])
        assert 0 <= x <= WIDTH + 2
        assert 0 <= y <= HEIGHT


def test_noise_stays_flat_and_what_is_not_known_now_says_so() -> None:
    flat = curve([-10.0, -5.0, 0.0], [40.0, 40.5, 40.0], HEAT_LOOK)
    assert flat is not None
    assert {abs(int(dy)) for dy in re.findall(r"l\d+ ?(-?\d+)", flat.path)} <= {1}
    lost = curve([-5.0, 0.0], [40.0, None], HEAT_LOOK)
    assert lost is not None
    assert lost.label.endswith("now unknown")
    assert curve([-5.0, 0.0], [None, None], HEAT_LOOK) is None


def test_a_thinned_curve_keeps_the_dip_of_a_clock() -> None:
    times = [-LENGTH_S + 5 * at for at in range(121)]
    values: list[float | None] = [1980.0] * 121
    values[60] = 345.0
    thin = curve(times, values, Look("SM clock", "MHz", 200.0, min), step=4)
    assert thin is not None
    assert thin.path.count("M") == 1  # a stretch that is drawn as one point is no gap
    assert max(int(dy) for dy in re.findall(r"l\d+ ?(-?\d+)", thin.path)) == HEIGHT - 4


def _gate(state: str, **more: Any) -> dict[str, Any]:
    base = {
        "engine": "glm",
        "state": state,
        "blocking": [],
        "process": None,
        "force_open": None,
        "drain": None,
    }
    return base | more


@pytest.mark.parametrize(
    ("gate", "told"),
    [
        (_gate("serving"), ["Nothing to do."]),
        (_gate("warming"), ["Wait: it goes on by itself."]),
        (_gate("member"), ["Nothing to do: the head of its group answers for it."]),
        (
            _gate("failed", process={"phase": "backoff", "retry_in_s": 12.4}),
            ["The agent starts the engine again in 12 s."],
        ),
        (_gate("stopped", drain={}), ["Nothing to do."]),
        (
            _gate("stopped", drain={"reason": "x"}),
            ["When the work is done: `nodegate gate resume glm --reason TEXT`."],
        ),
        (_gate("maintenance"), ["When the work is done: `nodegate maintenance exit --reason TEXT`."]),
        (
            _gate("quarantined"),
            ["Once the cause is dealt with: `nodegate gate clear glm --reason TEXT`."],
        ),
    ],
)
def test_each_state_has_its_advice(gate: dict[str, Any], told: list[str]) -> None:
    assert steps(gate, {"node": "n1"}) == told


@pytest.mark.parametrize(
    ("running", "told"),
    [
        (
            True,
            "The checklist burn-in goes on, step 3 of 8 (Links under load): wait for its end, or for its"
            " question.",
        ),
        (
            False,
            "When the work is done: `nodegate checklist run post-maintenance`, which ends it; or"
            " `nodegate maintenance exit --reason TEXT`.",
        ),
    ],
)
def test_in_maintenance_a_run_that_goes_on_is_told_and_nothing_else_asked_for(
    running: bool, told: str
) -> None:
    run = {"name": "burn-in", "running": running, "done": 2, "total": 8, "step_title": "Links under load"}
    assert steps(_gate("maintenance"), {"node": "n1", "checklist": run}) == [told]
    assert steps(_gate("maintenance"), {"node": "n1", "checklist": None})[0].startswith("When the work is")


def test_the_same_order_for_several_subjects_is_given_once_and_names_the_play() -> None:
    action = {"kind": "apply_play", "hint": "Set the limit.", "play": "gpu"}
    blocking = [
        {"check": check, "subject": subject, "summary": "", "action": action}
        for subject in ("gpu2", "gpu0", "gpu1")
        for check in ("gpu.power_limit", "gpu.clocks")
    ]
    (first, last) = steps(_gate("failed", blocking=blocking), {"node": "n1"})
    assert first == "gpu0-gpu2: Set the limit. Or the playbook: `site.yml --limit n1 --tags gpu`."
    assert last == "The gate opens again by itself once this is mended."


def test_what_is_typed_is_marked_and_all_of_it_is_escaped() -> None:
    assert code("run `a <b>` & see") == "run <code>a &lt;b&gt;</code> &amp; see"
    assert code("odd ` <i>") == "odd ` &lt;i&gt;"


def test_lengths_of_time() -> None:
    told = [lasted(s) for s in (-3.0, 0.9, 59.9, 61, 3600, 90_061)]
    assert told == ["0 s", "0 s", "59 s", "1 min", "1 h 0 min", "1 d 1 h"]


def test_a_gpu_of_which_nothing_is_known_is_unknown_never_good() -> None:
    profile = profile_from_dict({"node": "n", "gpus": {"count": 2}, "nvlink": {"links_per_gpu": 0},
                                 "fabric": {"kind": "none"}, "engines": {}}).profile  # fmt: skip
    made = MapMaker(profile, None, {("gpu_power_draw_watts", "gpu0"): [90.0]}, [0.0], 0.0).make()
    first, second = made.domains[0]
    assert (first.verdict, first.mark, first.temperature, first.margin) == (
        "UNKNOWN",
        "?",
        "unknown",
        "margin unknown",
    )
    assert [(row.name, row.value) for row in first.rows] == [("power", "unknown")]
    assert second.problem == "not looked at yet"
