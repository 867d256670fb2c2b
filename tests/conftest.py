"""Shared helpers in tests/support become plain modules, and the environment is kept out of tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy, colour or terminal width of the developer's shell reaches a test."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE", "COLUMNS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
