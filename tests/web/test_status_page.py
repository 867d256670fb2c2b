"""The status page in a real browser: what a person sees, on which screen, and what it never says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gate_kit as kit
import pytest
from browser import Browser, Tab
from group_kit import rules, says
from page_kit import WALL_S, Node, Site, scenario

from agent.group.answer import GroupAnswer
from agent.group.state import GroupRecord, Mine, Peer
from agent.group.status import Stage
from agent.holds import EngineHolds, Hold, Holds, Waiver
from agent.model import EnginePhase, GateState
from agent.recent_changes import SHOWN, Change, Changes
from agent.sources.group_reading import GroupObservation

pytestmark = pytest.mark.web
S = GateState
XID = "3;NVRM: Xid (PCI:0000:52:00): 79, pid=1, GPU has fallen off the bus."
LOST = {"kmsg": [XID], "set": {"nvml.gpus.2": {"error": "GPU_IS_LOST"}}}
CHECKLIST: dict[str, Any] = {
    "name": "post-maintenance", "run_id": "20261130T081500Z-post-maintenance", "verdict": None,
    "step": "soak",
    "step_title": "Three minutes of load without throttling", "done": 5, "total": 7, "ended": None,
    "started": "2026-11-30T08:15:00Z", "who": "alice",
}  # fmt: skip
EVIL = '"><script>window.hacked=1</script><img src=x onerror="hacked=1">{{7*7}}\x00\u202e\ud800`'
HOLD = Hold("work on the coolant loop", "alice", WALL_S, "boot-a")


@pytest.fixture(scope="module")
def h200() -> Node:
    return Node("h200-roce")


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Node:
    """The node without its GPU 2."""
    return Node("h200-roce", scenario(tmp_path_factory.mktemp("lost"), **LOST))


def _sound(tab: Tab, site: Site, audit: str) -> None:
    """What holds of the page whatever it shows: no complaint, nothing foreign, accessible, not too wide."""
    assert tab.complaints() == []
    assert {
        address for address in tab.asked_for() if not address.startswith(("data:", site.address))
    } == set()
    assert tab.ask(audit) == []
    wide, screen = tab.ask("[document.scrollingElement.scrollWidth, innerWidth]")
    assert wide <= screen
    assert len(site.served.ask("/").content) < 60_000


def _word(tab: Tab) -> str:
    return str(tab.ask("document.querySelector('#top .word').textContent"))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
def test_ready_and_failed_on_every_screen(
    browser: Browser, site: Site, h200: Node, lost: Node, pictures: Path, audit: str, width: int, dark: bool
) -> None:
    changes = Changes((Change(WALL_S, "gate", "gate", "main", "warming", "serving", "the engine is warm"),))
    cases = {
        "ready": (h200.publication(changes=changes), "READY"),
        "failed": (lost.publication(S.QUARANTINED, changes=changes), "NOT READY: QUARANTINED"),
    }
    for name, (publication, word) in cases.items():
        site.show(publication)
        with browser.tab(width, dark=dark) as tab:
            tab.open(site.address)
            assert _word(tab) == word
            assert "SIMULATED" in tab.text()
            _sound(tab, site, audit)
            tab.picture(pictures / f"{name}-{width}-{'dark' if dark else 'light'}.png")


def test_a_lost_gpu_says_why_since_when_and_what_to_do(browser: Browser, site: Site, lost: Node) -> None:
    site.show(lost.publication(S.QUARANTINED))
    with browser.tab() as tab:
        tab.open(site.address)
        card = str(tab.ask("document.querySelector('.card').innerText"))
        assert "for 12 min, since " in card
        assert "GPU is lost: NVML answers GPU_IS_LOST" in card
        todo = str(tab.ask("document.querySelector('.todo').innerText"))
        assert todo.index("reboot the node") < todo.index("nodegate gate clear main --reason TEXT")
        tile = str(tab.ask("document.querySelectorAll('.tile')[2].innerText"))
        assert "✖ FAIL" in tile
        assert "unknown" in tile  # its temperature: nothing is made up
        assert "gpu.clocks, gpu.ecc, ... (28 checks)" in tab.text()  # one cause, one row


@pytest.mark.parametrize(
    ("state", "word"),
    [
        (S.BOOTING, "STARTING: BOOTING"),
        (S.PREFLIGHT, "STARTING: PREFLIGHT"),
        (S.LAUNCHING, "STARTING: LAUNCHING"),
        (S.WARMING, "STARTING: WARMING"),
        (S.DEGRADED, "READY, DEGRADED"),
        (S.DRAINING, "DRAINING"),
        (S.STOPPED, "STOPPED"),
        (S.FAILED, "NOT READY: FAILED"),
        (S.MAINTENANCE, "MAINTENANCE"),
        (S.MEMBER, "MEMBER"),
    ],
)
def test_every_other_state_has_its_word_and_its_advice(
    browser: Browser, site: Site, h200: Node, audit: str, state: GateState, word: str
) -> None:
    held = EngineHolds(drain=HOLD) if state in (S.DRAINING, S.STOPPED) else EngineHolds()
    node_hold = HOLD if state is S.MAINTENANCE else None
    waiver = Waiver("nic.cable", "mlx5_3/1", "new cable on Monday", "bob", WALL_S, WALL_S + 9e9)
    holds = Holds(maintenance=node_hold, engines={"main": held}, waivers=(waiver,))
    site.show(h200.publication(state, holds=holds))
    with browser.tab(width=390) as tab:
        tab.open(site.address)
        assert _word(tab) == word
        todo = str(tab.ask("document.querySelector('.todo').innerText"))
        asked = {S.MAINTENANCE: "nodegate maintenance exit", S.STOPPED: "nodegate gate resume main"}
        assert asked.get(state, todo) in todo
        assert todo.strip()
        assert "WAIVED nic.cable mlx5_3/1" in tab.text()
        _sound(tab, site, audit)


@pytest.mark.parametrize(
    ("name", "tiles", "told"),
    [
        ("gb10", 1, ["Other NIC ports", "rocep1s0f0"]),
        ("b300-roce", 8, ["roce_r7", "4 of 4 planes well", "coolant flow (cdu:cdu-1)", "18 of 18 up"]),
        ("b300-x16", 16, ["gpu0 to gpu7", "gpu8 to gpu15", "glm", "kimi"]),
    ],
)
def test_other_nodes(
    browser: Browser, site: Site, pictures: Path, audit: str, name: str, tiles: int, told: list[str]
) -> None:
    change = Change(WALL_S, "result", "gpu.thermal_margin", "gpu0-gpu7", "PASS", "WARN", "margin 4 C" * 9)
    site.show(Node(name).publication(changes=Changes((change,) * SHOWN)))
    for width in (1200, 390):
        with browser.tab(width) as tab:
            tab.open(site.address)
            text = tab.text()
            assert [word for word in told if word not in text] == []
            assert tab.ask("document.querySelectorAll('.tile .gpu').length") == tiles
            _sound(tab, site, audit)
            tab.picture(pictures / f"{name}-{width}.png")


def test_two_engines_and_one_of_them_is_shut(
    browser: Browser, site: Site, tmp_path: Path, pictures: Path, audit: str
) -> None:
    node = Node("h200-roce-two-engines", scenario(tmp_path, **LOST))
    site.show(node.publication({"glm": S.FAILED, "kimi": S.SERVING}))
    with browser.tab() as tab:
        tab.open(site.address)
        assert _word(tab) == "1 OF 2 ENGINES READY"
        assert "kimi ✔ READY" in tab.text()
        assert "glm ✖ NOT READY: FAILED" in tab.text()
        _sound(tab, site, audit)
        tab.picture(pictures / "two-engines-1200.png")


def test_a_member_of_a_group_shows_the_others(
    browser: Browser, site: Site, h200: Node, pictures: Path, audit: str
) -> None:
    base = h200.publication(S.MEMBER)
    now_s = base.gate_mono_s
    going = GroupRecord(Stage.GO, "f00d", now_s - 60, "")
    leads = says(0, node="n0", gate="serving", stage="go")
    head = Peer("n0", 0, leads, now_s - 1, data_mono_s=now_s - 1, error="", data_error="")
    lost = Peer("n2", 2, error="no answer from 10.0.0.2: timed out")
    seen = GroupObservation(now_s, rules(1), going, Mine(EnginePhase.WARM, (), ""), says(1), (head, lost))
    site.show(replace(base, groups={"main": GroupAnswer(says(1), seen, b"k")}))
    with browser.tab() as tab:
        tab.open(site.address)
        assert _word(tab) == "MEMBER"
        rows = str(tab.ask("document.querySelector('.card table').innerText"))
        assert "n0 0 serving 1 s ago go" in " ".join(rows.split())
        assert "n2 2 unknown never no answer from 10.0.0.2: timed out" in " ".join(rows.split())
        _sound(tab, site, audit)
        tab.picture(pictures / "member-1200.png")


def test_hostile_text_stays_text(browser: Browser, site: Site, lost: Node, audit: str) -> None:
    long = EVIL + "x" * 5000
    blocker = replace(kit.HEAT, summary=long, subject=EVIL, action=replace(kit.LOST.action, hint=long))
    base = lost.publication(S.FAILED)
    record = replace(base.records["main"], blockers=(blocker,) * 3, reason=long)
    snapshot = base.snapshot
    assert snapshot is not None
    evil = {
        key: replace(result, finding=replace(result.finding, summary=long, action=blocker.action))
        for key, result in snapshot.results.items()
    }
    hold = Hold(long, EVIL, WALL_S, "boot-a")
    held = Holds(maintenance=hold, engines={"main": EngineHolds(quarantine=hold)})
    change = Change(WALL_S, "operator", EVIL, EVIL, EVIL, EVIL, EVIL)
    site.show(
        replace(
            base,
            facts=replace(base.facts, node=EVIL),
            records={"main": record},
            snapshot=replace(snapshot, results=evil),
            holds=held,
            problems=(long,),
            changes=Changes((change,) * 20, EVIL),
            checklist=CHECKLIST | {"name": EVIL, "step_title": long, "who": EVIL},
        )
    )
    with browser.tab(width=390) as tab:
        tab.open(site.address)
        tab.until("document.querySelector('#lost').textContent === '' && performance.now() > 2500")
        assert tab.ask("typeof hacked") == "undefined"
        assert tab.ask("document.scripts.length + document.images.length") == 1
        assert "<script>window.hacked=1</script>" in tab.text()
        assert "{{7*7}}" in tab.text()
        _sound(tab, site, audit)


def test_without_javascript_all_of_it_is_there(browser: Browser, site: Site, lost: Node, audit: str) -> None:
    site.show(lost.publication(S.QUARANTINED, checklist=CHECKLIST))
    with browser.tab(script=False) as tab:
        tab.open(site.address)
        assert _word(tab) == "NOT READY: QUARANTINED"
        assert "Step 6 of 7: Three minutes of load without throttling" in tab.text()
        assert "loads itself again every 5 seconds" in tab.text()
        assert tab.ask("document.querySelector('noscript meta')?.httpEquiv ?? ''") == "refresh"
        _sound(tab, site, audit)


def test_what_assistive_technology_is_given(browser: Browser, site: Site, lost: Node) -> None:
    site.show(lost.publication(S.QUARANTINED, checklist=CHECKLIST))
    with browser.tab() as tab:
        tab.open(site.address)
        nodes = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in tab.tree()]
        roles = {role for role, _ in nodes}
        assert {"banner", "main", "contentinfo", "alert", "status", "table", "rowheader"} <= roles
        regions = {name for role, name in nodes if role == "region"}
        assert {"Engines", "Findings", "Hardware", "Recent changes", "Checks", "Checklist"} <= regions
        curves = [name for role, name in nodes if role in ("img", "image")]
        assert sum(name.startswith("temperature, last 10 minutes: ") for name in curves) == 7
        assert ("heading", "h200-roce") in nodes
        (progress,) = [name for role, name in nodes if role == "progressbar"]
        assert progress.startswith("Step 6 of 7")


def test_nothing_moves_for_who_does_not_want_it(browser: Browser, site: Site, h200: Node) -> None:
    site.show(h200.publication())
    with browser.tab() as tab:
        tab.open(site.address)
        duration = "getComputedStyle(document.querySelector('#top')).transitionDuration"
        assert tab.ask(duration) == "0.3s"
        tab.prefer(still=True)
        assert tab.ask(duration) == "0s"


def test_a_change_comes_by_itself_and_is_told_aloud(
    browser: Browser, site: Site, h200: Node, lost: Node
) -> None:
    site.show(h200.publication())
    with browser.tab() as tab:
        tab.open(site.address)
        tab.ask("document.querySelector('#all-checks').open = true")
        tab.ask("document.querySelector('#all-checks summary').focus()")
        site.show(lost.publication(S.QUARANTINED))
        tab.until("document.querySelector('#news').textContent.includes('NOT READY: QUARANTINED')")
        assert _word(tab) == "NOT READY: QUARANTINED"
        assert "✖" in str(tab.ask("document.title"))
        assert tab.ask("document.querySelector('#all-checks').open")  # what was open stays open
        assert tab.ask("document.activeElement.tagName") == "SUMMARY"
        assert tab.complaints() == []


def test_a_main_loop_that_hangs_is_not_ready_on_the_page(
    browser: Browser, site: Site, h200: Node, pictures: Path, audit: str
) -> None:
    site.show(h200.publication())
    with browser.tab() as tab:
        tab.open(site.address)
        assert _word(tab) == "READY"
        site.hold()
        tab.until("document.body.classList.contains('old')")
        assert _word(tab) == "NOT READY: OLD ANSWER"
        assert "READY" not in str(tab.ask("document.querySelector('.card').innerText")).replace(
            "NOT READY", ""
        )
        _sound(tab, site, audit)
        tab.picture(pictures / "old-1200.png")
        site.show(h200.publication())
        tab.until("document.querySelector('#top .word').textContent === 'READY'")
        assert not tab.ask("document.body.classList.contains('old')")
