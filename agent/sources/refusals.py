"""The errors of a node folder: `{"error": NAME}` in place of a value, and the SourceError it stands for."""

from __future__ import annotations

from agent.errors import (
    DeviceAbsent,
    DeviceLost,
    NotSupported,
    ParseError,
    SourceError,
    SourceTimeout,
    SourceUnavailable,
)

_KINDS: dict[str, type[SourceError]] = {
    "NOT_SUPPORTED": NotSupported,
    "GPU_IS_LOST": DeviceLost,
    "ABSENT": DeviceAbsent,
    "DEVICE_ABSENT": DeviceAbsent,
    "TIMEOUT": SourceTimeout,
    "GARBLED": ParseError,
}


def source_error(name: str, what: str) -> SourceError:
    """The SourceError that stands for an error in a capture; any other name is SourceUnavailable."""
    return _KINDS.get(name, SourceUnavailable)(f"{what}: {name} in this capture")


def refusal(cause: SourceError) -> dict[str, str]:
    """The error in a document that replays as the same kind of SourceError."""
    for name, kind in _KINDS.items():
        if isinstance(cause, kind):
            return {"error": name}
    return {"error": "UNAVAILABLE"}
