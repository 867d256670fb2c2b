"""The reply of `/`: HTML, style and script in one document that may load nothing from anywhere.

Made when asked for; whoever asks within the same second about the same publication gets the same bytes, so
that many watchers cost little. What is ready and alive is asked anew for every reply.
"""

from __future__ import annotations

import hashlib
import time
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from agent.page.view import page_view
from agent.page.words import BAD, GOOD, NONE, SOFT, WAIT, Tone, lasted, mark_of
from agent.publisher import Publication, Publisher, Reply
from agent.status_view import status_view

if TYPE_CHECKING:
    from jinja2 import Template

FOLDER = Path(__file__).parent
MEDIA_TYPE = "text/html; charset=utf-8"
#: Colours of the mark in the browser's tab.
_ICON = {GOOD: "116329", SOFT: "8a4600", BAD: "b3161f", WAIT: "0b5cad", NONE: "555"}
_SHAPE = {
    GOOD: "M4 8l3 3 5-6",
    SOFT: "M8 4l4 7H4z",
    BAD: "M5 5l6 6M11 5l-6 6",
    WAIT: "M4 8h8",
    NONE: "M4 8h8",
}


@dataclass(frozen=True, slots=True)
class _Made:
    """A page that was made, and of what."""

    of: Publication | None
    second: int
    answers: tuple[int, ...]
    reply: Reply


class StatusPage:
    """Makes the page of one publisher. Used from the thread of the HTTP servers."""

    def __init__(self, publisher: Publisher) -> None:
        """Read the template, style and script, which are part of the package."""
        self._publisher = publisher
        self._css = (FOLDER / "page.css").read_text()
        self._js = (FOLDER / "page.js").read_text()
        self._template = _template()
        self._headers = {
            "content-security-policy": _policy(self._css, self._js),
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
        }
        self._made: _Made | None = None

    def reply(self) -> Reply:
        """The page as of now."""
        current, second = self._publisher.current, int(self._publisher.clock())
        names = [None, *current.answers] if current else [None]
        answers = (self._publisher.live().status, *(self._publisher.ready(name).status for name in names))
        made = self._made
        if made is None or made.of is not current or (made.second, made.answers) != (second, answers):
            made = self._made = _Made(current, second, answers, self._make(current))
        return made.reply

    def _make(self, current: Publication | None) -> Reply:
        page = page_view(status_view(self._publisher, whole=False), current, time.time())
        html = self._template.render(page=page, css=Markup(self._css), js=Markup(self._js))  # noqa: S704
        return Reply(200, html.encode(errors="backslashreplace"), MEDIA_TYPE, self._headers)


def _policy(css: str, js: str) -> str:
    """Nothing but this style and this script, and nobody but this agent to talk to."""
    return (
        f"default-src 'none'; style-src {_hash(css)}; script-src {_hash(js)}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _template() -> Template:
    """The page's frame; everything put into it is escaped."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"lasted": lasted, "mark_of": mark_of, "icon": icon, "code": code}
    return environment.get_template("page.html")


def icon(tone: Tone) -> str:
    """The mark in the browser's tab, as an address that holds it: shape and colour by the tone."""
    return (
        "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
        f"%3Ccircle cx='8' cy='8' r='8' fill='%23{_ICON[tone]}'/%3E"
        f"%3Cpath d='{_SHAPE[tone]}' fill='none' stroke='%23fff' stroke-width='2'/%3E%3C/svg%3E"
    )


def code(text: str) -> Markup:
    """A text whose parts in backquotes are to be typed; all of it is escaped."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return Markup.escape(text)
    said = [Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts)]
    return Markup("").join(said)
