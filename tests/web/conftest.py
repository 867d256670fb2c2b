"""One browser and one site for all tests of the page; pictures go to web-results/."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, chromium
from page_kit import Site

PICTURES = Path(__file__).parents[2] / "web-results"


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("browser") / "profile") as running:
        yield running


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site.open(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture(scope="session")
def pictures() -> Path:
    PICTURES.mkdir(exist_ok=True)
    return PICTURES


@pytest.fixture(scope="session")
def audit() -> str:
    """Asked of a page, it answers with its faults (accessibility)."""
    return (Path(__file__).parents[1] / "support" / "page_audit.js").read_text()
