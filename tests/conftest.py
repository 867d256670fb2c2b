"""Shared helpers in tests/support become plain modules, and the environment is kept out of tests."""

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PR_SET_CHILD_SUBREAPER = 36
#: Hooks that the process needs that prints: it loads no conftest.py of a folder where workers run the tests.
__all__ = ["pytest_sessionfinish", "pytest_terminal_summary", "pytest_testnodedown"]

sys.path.insert(0, str(Path(__file__).parent / "support"))
sys.path.insert(0, str(Path(__file__).parent / "bmc"))
#: The roles' own code, as Ansible bundles it for a node: `nodegate_apply`.
sys.path.insert(1, str(Path(__file__).parents[1] / "playbooks" / "module_utils"))

from lb_report import pytest_sessionfinish, pytest_terminal_summary, pytest_testnodedown  # noqa: E402


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy, colour or terminal width of the developer's shell reaches a test."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE", "COLUMNS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _no_foreign_orphans() -> Iterator[None]:
    """A controller makes this process the parent of its engines' orphans: not for the tests after it."""
    yield
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    for pid in _zombies():
        with contextlib.suppress(ChildProcessError):  # a thread has been faster
            os.waitpid(pid, os.WNOHANG)


def _zombies() -> list[int]:
    """Children of this process that have ended and that nobody has waited for."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        try:
            children = (task / "children").read_text().split()
        except OSError:
            continue  # the thread has ended meanwhile
        found += [int(pid) for pid in children if _state(pid) == "Z"]
    return found


def _state(pid: str) -> str:
    """The state letter in /proc/PID/stat; empty for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def pytest_unconfigure() -> None:
    """Engines that tests left running on purpose are gone by now; their Popen objects need not warn of it."""
    supervisor = sys.modules.get("agent.launch.supervisor")
    for child in getattr(supervisor, "_left_running", ()):
        child.returncode = 0
