"""How a module ends: one line for a person, and the same result fields from every role."""

from __future__ import annotations

import os
import sys
from typing import Any, Protocol

from .setting import Report


class Module(Protocol):
    """What is needed of AnsibleModule."""

    def exit_json(self, **result: Any) -> None:
        """End well."""

    def fail_json(self, msg: str, **result: Any) -> None:
        """End badly."""


#: What nodegate itself needs.
OLDEST_PYTHON = (3, 11)


def begin(module: Module, version: tuple[int, ...] = sys.version_info[:2]) -> None:
    """What every module needs first: a Python that is new enough, and files that others can read."""
    # A login's umask of 077 would close environments and folders to the user that the agent runs as.
    os.umask(0o022)
    if version < OLDEST_PYTHON:
        has, needs = (".".join(map(str, parts)) for parts in (version, OLDEST_PYTHON))
        module.fail_json(
            msg=f"{sys.executable} on this node is Python {has}, nodegate needs {needs} or newer: install"
            f" python{needs} and python{needs}-venv there (Ubuntu 22.04 has them), and set"
            f" ansible_python_interpreter: /usr/bin/python{needs} for this host in the inventory"
        )


def finish(module: Module, report: Report, **more: Any) -> None:
    """End with what settle() reports; problems become one line, the first in full."""
    result = {**report.result(), **more}
    if not report.problems:
        module.exit_json(**result)
        return
    further = len(report.problems) - 1
    text = report.problems[0] + (f" (and {further} more, see `problems`)" if further else "")
    module.fail_json(msg=text, problems=report.problems, **result)
