"""What the Redfish client that writes gives back, and what it makes of an answer that refuses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agent.provision.redfish_wire import Answer
from agent.provision.redfish_words import Conflict, NotThere, Refused, messages_of

_MEANING = {
    403: "the account may not do this",
    404: "not there",
    405: "cannot be done there",
    412: "it has changed since it was read",
    413: "too large",
}
_ELSEWHERE, _OWN_URL = "redirects elsewhere", "write the BMC's own URL into bmc.redfish.url"
_REMEDY = {
    403: "give the account of nodegate_bmc_username the right to change settings and firmware",
    404: "update the BMC, or do it by hand",
    405: "update the BMC, or do it by hand",
    412: "somebody else changes it too: run the play again when they have finished",
}


class Document(NamedTuple):
    """A resource as it was read."""

    document: dict[str, Any]
    etag: str | None


@dataclass(frozen=True, slots=True)
class Reply:
    """What a write was answered with; `location` is a path of the service (a task, a new resource)."""

    status: int
    document: dict[str, Any] = field(default_factory=dict)
    etag: str | None = None
    location: str | None = None


def refusal(where: str, answer: Answer, secret: str | None) -> Refused:
    """What a 3xx or 4xx means, with the service's own words."""
    messages = messages_of(answer.document, secret)
    sent_on = 300 <= answer.status < 400
    meaning = _ELSEWHERE if sent_on else _MEANING.get(answer.status, "refused without a word")
    words = "; ".join(messages) or meaning
    kind = {404: NotThere, 410: NotThere, 412: Conflict}.get(answer.status, Refused)
    other = _OWN_URL if sent_on else "correct what the BMC names and run the play again"
    remedy = _REMEDY.get(answer.status, other)
    problem = f"HTTP {answer.status}: {words}"
    return kind(problem, where=where, remedy=remedy, status=answer.status, messages=messages)


def etag_of(answer: Answer) -> str | None:
    """The ETag of the header, else of the document."""
    etag = answer.headers.get("etag") or answer.document.get("@odata.etag")
    return etag if isinstance(etag, str) and etag.isascii() and etag.isprintable() else None
