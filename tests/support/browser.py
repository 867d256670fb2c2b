"""Headless Chromium, driven over its debugging protocol: one process, a fresh tab for each page."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

#: No account, no update, no look-up of any host: the page is all that it may ask for.
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --disable-extensions"
    " --disable-background-networking --disable-component-update --disable-sync --no-first-run"
    " --no-default-browser-check --hide-scrollbars --remote-debugging-port=0"
)
STARTS_WITHIN_S = 60.0
ANSWERS_WITHIN_S = 30.0
ALL = 1 << 24


class Browser:
    """A running Chromium."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._asked = 0
        self.events: list[dict[str, Any]] = []

    def send(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """One command and its answer; events that come meanwhile are kept."""
        self._asked += 1
        message = {"id": self._asked, "method": method, "params": params}
        self._socket.send(json.dumps(message | ({"sessionId": session} if session else {})))
        while True:
            answer = json.loads(self._socket.recv(timeout=ANSWERS_WITHIN_S))
            if answer.get("id") == self._asked:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])
            self.events.append(answer)

    @contextmanager
    def tab(
        self, width: int = 1200, height: int = 900, *, dark: bool = False, script: bool = True
    ) -> Iterator[Tab]:
        """A tab of its own context, closed at the end of the block."""
        context = self.send("Target.createBrowserContext")["browserContextId"]
        target = self.send("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session)
        for domain in ("Page", "Runtime", "Log", "Network", "DOM", "Accessibility"):
            tab.send(f"{domain}.enable")
        tab.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        tab.prefer(dark=dark)
        tab.send("Emulation.setScriptExecutionDisabled", value=not script)
        try:
            yield tab
        finally:
            self.send("Target.disposeBrowserContext", browserContextId=context)


class Tab:
    """One page."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """One command to this tab."""
        return self._browser.send(method, self._session, **params)

    def prefer(self, *, dark: bool = False, still: bool = False) -> None:
        """What the person at the screen prefers."""
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"},
        ]
        self.send("Emulation.setEmulatedMedia", features=features)

    def open(self, address: str) -> None:
        """Load a page, to its end."""
        self.send("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def ask(self, expression: str) -> Any:
        """The value of an expression; works with the page's own script off, too."""
        end_s = time.monotonic() + ANSWERS_WITHIN_S
        while True:
            try:
                answer = self.send(
                    "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
                )
                break
            except AssertionError as cause:  # a page without script loads itself again now and then
                if "navigated or closed" not in str(cause) or time.monotonic() > end_s:
                    raise
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression: str, patience_s: float = ANSWERS_WITHIN_S) -> Any:
        """Ask until the answer is true."""
        end_s = time.monotonic() + patience_s
        while time.monotonic() < end_s:
            if found := self.ask(expression):
                return found
            time.sleep(0.05)
        raise AssertionError(f"waited {patience_s:g} s in vain for {expression}; {self.text()[:1500]}")

    def text(self) -> str:
        """All text that is shown."""
        return " ".join(str(self.ask("document.body.innerText")).split())

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """A screenshot as PNG."""
        answer = self.send("Page.captureScreenshot", captureBeyondViewport=whole, format="png")
        path.write_bytes(base64.b64decode(answer["data"]))

    def tree(self) -> list[dict[str, Any]]:
        """The accessibility tree as assistive technology is given it."""
        return [node for node in self.send("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, refused loads, uncaught exceptions."""
        self.ask("1")  # whatever was sent before has come by then
        told = []
        for event in self._mine():
            params = event["params"]
            match event["method"]:
                case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                    told.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
                case "Runtime.exceptionThrown":
                    told.append(json.dumps(params["exceptionDetails"])[:500])
                case "Runtime.consoleAPICalled":
                    told.append(json.dumps(params["args"])[:500])
        return told

    def asked_for(self) -> set[str]:
        """Every address that the page has asked for."""
        return {
            event["params"]["request"]["url"]
            for event in self._mine()
            if event["method"] == "Network.requestWillBeSent"
        }

    def _mine(self) -> list[dict[str, Any]]:
        return [event for event in self._browser.events if event.get("sessionId") == self._session]


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """A browser with a profile in `folder`, ended with the block."""
    program = shutil.which("chromium")
    assert program, "chromium is not installed: run `make test-web`"
    command = [program, *FLAGS.split(), f"--user-data-dir={folder}", "about:blank"]
    with (folder.parent / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, "HOME": str(folder)},
        )  # fmt: skip
        try:
            with connect(_address(folder, process), max_size=ALL, open_timeout=ANSWERS_WITHIN_S) as socket:
                yield Browser(socket)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _address(folder: Path, process: subprocess.Popen[bytes]) -> str:
    """Where the browser listens, once it does."""
    told = folder / "DevToolsActivePort"
    end_s = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < end_s:
        assert process.poll() is None, (folder.parent / "chromium.log").read_text()[-2000:]
        lines = told.read_text().splitlines() if told.exists() else []
        if len(lines) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        time.sleep(0.05)
    raise AssertionError("chromium does not listen")
