"""The status page in a real browser: what a person sees, and that the browser has nothing to complain of."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from daemon_rig import wait_until
from stage import Stage

pytestmark = pytest.mark.web

#: No account, no update, no look-up of any host: the page is all that it may ask for.
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --disable-extensions"
    " --disable-background-networking --disable-component-update --disable-sync --no-first-run"
    " --no-default-browser-check --enable-logging=stderr --v=0 --window-size=1280,1600"
)
XID = (
    "3;NVRM: Xid (PCI:0000:52:00): 79, pid='<unknown>', GPU has fallen off the bus. <script>alert(1)</script>"
)


class Page(HTMLParser):
    """Texts of the page, and the tags that could run something."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, _attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(" ".join(data.split()))

    @property
    def text(self) -> str:
        return " ".join(self.texts)


def _chromium(folder: Path, address: str, *words: str) -> tuple[str, str]:
    """What the browser prints, and what it complains of."""
    program = shutil.which("chromium")
    assert program, "chromium is not installed: run `make test-web`"
    command = [program, *FLAGS.split(), f"--user-data-dir={folder}", *words, address]
    environment = {**os.environ, "HOME": str(folder)}
    answer = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, timeout=90, env=environment
    )
    errors = answer.stderr.decode(errors="replace")
    assert answer.returncode == 0, errors[-2000:]
    return answer.stdout.decode(), errors


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A serving node that is going to lose a GPU."""
    steps = [{"at_s": 0.2, "kmsg": [XID], "set": {"nvml.gpus.2": {"error": "GPU_IS_LOST"}}}]
    with Stage(tmp_path, {"main": list(range(8))}, {"steps": steps}) as whole:
        whole.wait_ready("main")
        yield whole


def _shown(stage: Stage, folder: Path) -> Page:
    dom, errors = _chromium(folder, f"http://127.0.0.1:{stage.api_port}/", "--dump-dom")
    assert re.findall(r".*CONSOLE.*", errors) == []
    return Page(dom)


def test_the_page_shows_an_open_gate_and_then_why_it_closed(stage: Stage, tmp_path: Path) -> None:
    page = _shown(stage, tmp_path / "browser")
    assert "SIMULATED" in page.text
    assert "h200-roce" in page.text
    assert "serving" in page.texts
    assert "every admission check passes" in page.text
    assert {"nvlink.links", "gpu.thermal_margin", "engine.health"} <= set(page.texts)

    stage.begin()
    wait_until("a closed gate", lambda: stage.gate("main").get("state") == "quarantined")
    page = _shown(stage, tmp_path / "browser")
    assert "quarantined" in page.texts
    assert "FAIL" in page.texts
    assert "gpu2" in page.text
    assert "SIMULATED" in page.text
    assert "script" not in page.tags  # what the kernel logged is text here, whatever it says

    picture = tmp_path / "page.png"
    _chromium(tmp_path / "browser", f"http://127.0.0.1:{stage.api_port}/", f"--screenshot={picture}")
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
