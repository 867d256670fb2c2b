"""What goes wrong with a Redfish service that is written to, as one line; and its own messages as lines.

Messages: DSP0266 `error` with `@Message.ExtendedInfo`, and annotations of single properties. A service may
repeat what it was sent, so every text of its own is cleared of the password before it goes anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent.checks.redfish_tree import said
from agent.errors import AgentError

_INFO = "@Message.ExtendedInfo"
#: Messages that are quoted, and characters of each.
MAX_MESSAGES = 4
LONGEST_MESSAGE = 200
#: A document of a BMC may be nested without end.
_DEEPEST = 6


class RedfishError(AgentError):
    """A Redfish service could not be read or written: `where: problem; remedy` in one line."""

    def __init__(self, problem: str, *, where: str, remedy: str | None = None) -> None:
        """Join the parts to one line."""
        self.problem = problem
        self.where = where
        self.remedy = remedy
        super().__init__(f"{where}: {problem}; {remedy}" if remedy else f"{where}: {problem}")


class Untrusted(RedfishError):
    """The certificate is refused, or TLS cannot be used: nothing was sent."""


class LoginRefused(RedfishError):
    """User and password are refused; not tried again, because many BMCs lock the account."""


class NoAnswer(RedfishError):
    """No usable answer within the patience; this request was not done, as far as is known."""


class Uncertain(RedfishError):
    """The connection was lost after a request was sent that must not be repeated: it may have been done."""


class Refused(RedfishError):
    """The service answered and refused; `status` is its HTTP status, `messages` its own words."""

    def __init__(
        self,
        problem: str,
        *,
        where: str,
        remedy: str | None = None,
        status: int = 0,
        messages: tuple[str, ...] = (),
    ) -> None:
        """Join the parts to one line; keep status and messages for whoever decides by them."""
        super().__init__(problem, where=where, remedy=remedy)
        self.status = status
        self.messages = messages


class NotThere(Refused):
    """The service has no such resource."""


class Conflict(Refused):
    """The resource has changed since it was read (If-Match)."""


class TaskFailed(RedfishError):
    """A task ended without success; `state` is its TaskState."""

    def __init__(self, problem: str, *, where: str, remedy: str | None = None, state: str = "") -> None:
        """Join the parts to one line; keep the state."""
        super().__init__(problem, where=where, remedy=remedy)
        self.state = state


class TaskLost(TaskFailed):
    """The service no longer knows the task, as after a restart of the BMC: what it did must be read."""


class TaskLate(TaskFailed):
    """The task still runs at its deadline."""


def messages_of(document: Mapping[str, Any], secret: str | None = None) -> tuple[str, ...]:
    """The messages of an answer, each as one plain line with its property, without the secret."""
    lines: dict[str, None] = {}
    for message in _messages(document, _DEEPEST):
        line = _line(message)
        if line:
            lines[scrubbed(line, secret)] = None
        if len(lines) >= MAX_MESSAGES:
            break
    if not lines:
        error = document.get("error")
        text = error.get("message") if isinstance(error, Mapping) else None
        if isinstance(text, str) and text.strip():
            lines[scrubbed(said(text, LONGEST_MESSAGE), secret)] = None
    return tuple(lines)


def scrubbed(text: str, secret: str | None) -> str:
    """The text without the secret."""
    return text.replace(secret, "********") if secret else text


def _messages(document: Mapping[str, Any], depth: int) -> Iterator[Mapping[str, Any]]:
    """Every message in a document: of the error, and of properties (`Name@Message.ExtendedInfo`)."""
    if depth == 0:
        return
    for key, value in document.items():
        if isinstance(key, str) and key.endswith(_INFO) and isinstance(value, list):
            name = key.removesuffix(_INFO)
            for each in value:
                if isinstance(each, Mapping):
                    yield {"RelatedProperties": [name], **each} if name else each
        elif isinstance(value, Mapping):
            yield from _messages(value, depth - 1)


def _line(message: Mapping[str, Any]) -> str:
    """Its words, else its id with arguments; the property first if the words do not name it."""
    if message.get("Severity", message.get("MessageSeverity")) == "OK":
        return ""
    words = message.get("Message")
    if not isinstance(words, str) or not words.strip():
        id_, arguments = message.get("MessageId"), message.get("MessageArgs")
        words = id_ if isinstance(id_, str) else ""
        if words and isinstance(arguments, list) and arguments:
            words += f" ({', '.join(str(each) for each in arguments[:6])})"
    related = message.get("RelatedProperties")
    names = [each for each in related if isinstance(each, str)] if isinstance(related, list) else []
    for name in names[:1]:
        last = name.rpartition("/")[2].lstrip("#")
        if last and last not in words:
            words = f"{last}: {words}"
    return said(words, LONGEST_MESSAGE).rstrip(".")
