"""How a module ends: one line for a person, and the same result fields from every role."""

from __future__ import annotations

from typing import Any, Protocol

from .setting import Report


class Module(Protocol):
    """What is needed of AnsibleModule."""

    def exit_json(self, **result: Any) -> None:
        """End well."""

    def fail_json(self, msg: str, **result: Any) -> None:
        """End badly."""


def finish(module: Module, report: Report, **more: Any) -> None:
    """End with what settle() reports; problems become one line, the first in full."""
    result = {**report.result(), **more}
    if not report.problems:
        module.exit_json(**result)
        return
    further = len(report.problems) - 1
    text = report.problems[0] + (f" (and {further} more, see `problems`)" if further else "")
    module.fail_json(msg=text, problems=report.problems, **result)
