"""The status page of a real daemon, left open: through a killed agent, its return, and a fault."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser
from stage import Stage

pytestmark = pytest.mark.web
XID = (
    "3;NVRM: Xid (PCI:0000:52:00): 79, pid='<unknown>', GPU has fallen off the bus. <script>alert(1)</script>"
)
SAYS = "document.querySelector('#top .word').textContent === '{}'"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A serving node that is going to lose a GPU."""
    steps = [{"at_s": 0.2, "kmsg": [XID], "set": {"nvml.gpus.2": {"error": "GPU_IS_LOST"}}}]
    with Stage(tmp_path, {"main": list(range(8))}, {"steps": steps}) as whole:
        whole.wait_ready("main")
        yield whole


def test_a_page_left_open_through_a_killed_agent_and_a_lost_gpu(
    stage: Stage, browser: Browser, pictures: Path, audit: str
) -> None:
    with browser.tab() as tab:
        tab.open(f"http://127.0.0.1:{stage.api_port}/")
        tab.until(SAYS.format("READY"))
        assert "every admission check passes" in tab.text()
        tab.until("document.querySelector('#changes').innerText.includes('warming → serving')")
        tab.until("document.querySelectorAll('.tile .spark').length > 0")
        assert tab.complaints() == []

        stage.stop(signal.SIGKILL)
        tab.until(SAYS.format("NO ANSWER"))
        text = tab.text()
        assert "No answer since " in text
        assert [word for word in ("READY", "Nothing to do", "up ready") if word in text] == []
        assert "was ✔ PASS" in text
        assert str(tab.ask("document.title")).startswith("? NO ANSWER")
        assert tab.ask(audit) == []
        tab.picture(pictures / "no-answer-1200.png")

        stage.__enter__()
        tab.until(SAYS.format("READY"), patience_s=90)
        assert "No answer" not in tab.text()

        stage.begin()
        tab.until(SAYS.format("NOT READY: QUARANTINED"))
        tab.until("document.querySelector('#changes').innerText.includes('→ quarantined')")
        assert "gpu2" in str(tab.ask("document.querySelector('.todo').innerText"))
        assert "SIMULATED" in tab.text()
        assert tab.ask("document.scripts.length") == 1  # what the kernel logged is text here
        assert tab.ask(audit) == []
        tab.picture(pictures / "lost-gpu-1200.png")
