"""The daemon's log as JSON, one object a line, or as text (the default)."""

from __future__ import annotations

import json
import logging
import math
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from agent.log_events import ATTRIBUTE, Event

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
#: A text longer than this is cut: a line must not fill a disk or overrun a collector.
_MOST_CHARS = 8000
#: What every line of this process has; set once the daemon knows it.
_WHERE: dict[str, str] = {"node": "", "boot_id": ""}


class LogFormat(StrEnum):
    """How the log is written."""

    TEXT = "text"
    JSON = "json"


def know_where(node: str, boot_id: str) -> None:
    """Name the node and its boot in every line from now on."""
    _WHERE.update(node=node, boot_id=boot_id)


class JsonFormatter(logging.Formatter):
    """One record as one JSON object a line, in ASCII; a record about several subjects as one for each."""

    def format(self, record: logging.LogRecord) -> str:
        """The line or lines, without the last line break; of a record that breaks one that says so."""
        try:
            told: Any = getattr(record, ATTRIBUTE, None) or ({},)
            base = self._base(record, _text(record.getMessage()))
            return "\n".join(_line({**base, **_safe(one)}) for one in told)
        # Whatever an argument's own code raises: logging would write its traceback between the objects.
        except Exception as defect:  # noqa: BLE001
            message = f"{_text(str(record.msg))} (cannot be told: {type(defect).__name__})"
            return _line(self._base(record, message))

    def _base(self, record: logging.LogRecord, message: str) -> dict[str, Any]:
        line: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": Event.LOG.value,
            **_WHERE,
            "logger": record.name,
            "message": message,
            "engine": None,
            "check": None,
            "subject": None,
        }
        if record.exc_info:
            line["trace"] = _text(self.formatException(record.exc_info))
        return line


def _line(line: Mapping[str, Any]) -> str:
    return json.dumps(line, ensure_ascii=True, allow_nan=False, separators=(", ", ": "))


def _safe(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields as JSON can hold them: texts, true and false, finite numbers, null."""
    return {key: _value(value) for key, value in fields.items()}


def _value(value: Any) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return _text(str(value))


def _text(text: str) -> str:
    """A text that is not too long; half a character (from bytes that are no UTF-8) becomes a mark."""
    whole = text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}... ({len(text)} characters)"
    return whole.encode("utf-8", "replace").decode()


def start_logging(how: LogFormat = LogFormat.TEXT) -> None:
    """One line for each event on stderr; systemd's journal adds its own time when it reads them."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if how is LogFormat.JSON else logging.Formatter(TEXT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    if how is LogFormat.JSON:
        _tell_the_rest()
    # These tell of every request.
    logging.getLogger("httpx").setLevel(logging.WARNING)


def _tell_the_rest() -> None:
    """What Python itself would write to stderr over many lines goes into the log: warnings, and defects."""
    log = logging.getLogger("nodegate.python")

    def tell(where: str, kind: type[BaseException], value: BaseException | None, trace: Any) -> None:
        log.critical("a defect in %s", where, exc_info=(kind, value or kind(), trace))

    logging.captureWarnings(True)
    sys.excepthook = lambda kind, value, trace: tell("the main thread", kind, value, trace)
    threading.excepthook = lambda told: tell(
        f"thread {told.thread.name if told.thread else '?'}",
        told.exc_type,
        told.exc_value,
        told.exc_traceback,
    )
    sys.unraisablehook = lambda told: tell("a clean-up", told.exc_type, told.exc_value, told.exc_traceback)
