"""Answers of a Redfish service, and the error form of DSP0266: error with @Message.ExtendedInfo."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

Document = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """One request as the service sees it."""

    method: str
    path: str
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def header(self, name: str) -> str:
        return self.headers.get(name.lower(), "")


@dataclass(frozen=True)
class Reply:
    """One answer; `document` None has no body."""

    status: int
    document: Document | None = None
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    content_type: str = "application/json; charset=utf-8"


class Refusal(Exception):
    """The request is refused; nothing was changed."""

    def __init__(self, status: int, *messages: Document, headers: dict[str, str] | None = None) -> None:
        super().__init__(status, messages)
        self.status, self.messages, self.headers = status, messages, headers or {}

    def reply(self) -> Reply:
        return Reply(self.status, error(*self.messages), self.headers)


def error(*messages: Document) -> Document:
    """The error object; several messages have the general code."""
    first = messages[0]
    code = first["MessageId"] if len(messages) == 1 else "Base.1.18.GeneralError"
    words = first["Message"] if len(messages) == 1 else "A general error has occurred."
    return {"error": {"code": code, "message": words, "@Message.ExtendedInfo": list(messages)}}


def message(
    id_: str,
    words: str,
    *arguments: str,
    properties: tuple[str, ...] = (),
    severity: str = "Warning",
    resolution: str = "None.",
    registry: str = "Base.1.18",
) -> Document:
    """One message; `properties` are JSON pointers such as #/Attributes/SysProfile."""
    found: Document = {
        "@odata.type": "#Message.v1_2_1.Message",
        "MessageId": f"{registry}.{id_}",
        "Message": words,
        "MessageArgs": list(arguments),
        "MessageSeverity": severity,
        "Severity": severity,
        "Resolution": resolution,
    }
    if properties:
        found["RelatedProperties"] = list(properties)
    return found


def success() -> Document:
    return message("Success", "The request completed successfully.", severity="OK")


def not_there(path: str) -> Refusal:
    words = f"The resource at the URI '{path}' was not found."
    return Refusal(404, message("ResourceMissingAtURI", words, path, severity="Critical"))


def not_allowed(method: str, allowed: tuple[str, ...]) -> Refusal:
    words = f"The HTTP method '{method}' is not allowed on this resource."
    said = message("OperationNotAllowed", words, severity="Critical")
    return Refusal(405, said, headers={"Allow": ", ".join(allowed)})


def no_session() -> Refusal:
    words = "There is no valid session established with the implementation."
    said = message("NoValidSession", words, severity="Critical")
    return Refusal(401, said, headers={"WWW-Authenticate": 'Basic realm="Redfish"'})


def busy(retry_after_s: int) -> Refusal:
    words = f"The service is temporarily unavailable.  Retry in {retry_after_s} seconds."
    said = message("ServiceTemporarilyUnavailable", words, str(retry_after_s), severity="Critical")
    return Refusal(503, said, headers={"Retry-After": str(retry_after_s)})


def bad_parameter(name: str, value: object, action: str) -> Refusal:
    words = (
        f"The value '{value}' for the parameter {name} in the action {action} is not in the list of values."
    )
    return Refusal(400, message("ActionParameterValueNotInList", words, str(value), name, action))


def missing_parameter(name: str, action: str) -> Refusal:
    words = f"The action {action} requires the parameter {name} to be present in the request body."
    return Refusal(400, message("ActionParameterMissing", words, action, name, severity="Critical"))


def body_of(request: Request) -> dict[str, Any]:
    """The JSON object of a request. Raises Refusal."""
    kind = request.header("content-type").partition(";")[0].strip().lower()
    if request.body and kind != "application/json":
        raise Refusal(415, message("GeneralError", "The content type must be application/json."))
    try:
        sent = json.loads(request.body or b"{}")
    except ValueError:
        sent = None
    if not isinstance(sent, dict):
        words = (
            "The request body submitted was malformed JSON and could not be parsed by the receiving service."
        )
        raise Refusal(400, message("MalformedJSON", words, severity="Critical"))
    if request.method == "PATCH" and not [name for name in sent if not name.startswith("@odata.")]:
        words = "The request body submitted contains no data to act upon."
        raise Refusal(400, message("NoOperation", words))
    return {name: value for name, value in sent.items() if not name.startswith("@odata.")}
