"""The pinned requirements: exact versions with hashes, nothing that only this machine could install."""

from __future__ import annotations

import re
import tomllib

import pytest
from repo_files import ROOT

SETS = ("base", "dev", "provision")
_PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^\s;\\]+)")


def _lines(name: str) -> list[str]:
    """Logical lines without comments."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text().replace("\\\n", " ")
    return [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]


def _pins(name: str) -> dict[str, str]:
    return {m.group(1): m.group(2) for m in (_PIN.match(line) for line in _lines(name)) if m is not None}


def _declared(extra: str | None) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    items = project["dependencies"] if extra is None else project["optional-dependencies"][extra]
    return {re.split(r"[^A-Za-z0-9._-]", item, maxsplit=1)[0].lower().replace("_", "-") for item in items}


@pytest.mark.parametrize("name", SETS)
def test_every_line_is_a_pin_with_hashes(name: str) -> None:
    lines = _lines(name)
    assert lines
    assert [line for line in lines if _PIN.match(line) is None] == []
    assert [line for line in lines if not re.search(r"--hash=sha256:[0-9a-f]{64}", line)] == []


@pytest.mark.parametrize("name", SETS)
def test_no_address_and_no_path(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    assert (
        re.findall(r"https?:|file:/|--(?:extra-)?index-url|--find-links|--trusted-host|(?<=\s)/\w+", text)
        == []
    )


@pytest.mark.parametrize("name", ["dev", "provision"])
def test_the_sets_agree(name: str) -> None:
    base, more = _pins("base"), _pins(name)
    assert {key: (base[key], more.get(key)) for key in base if more.get(key) != base[key]} == {}


def test_dev_and_provision_agree() -> None:
    dev, provision = _pins("dev"), _pins("provision")
    assert {key for key in dev.keys() & provision.keys() if dev[key] != provision[key]} == set()


@pytest.mark.parametrize(("name", "extra"), [("base", None), ("dev", "dev"), ("provision", "provision")])
def test_every_declared_dependency_is_pinned(name: str, extra: str | None) -> None:
    assert _declared(extra) - {key.replace("_", "-").replace(".", "-") for key in _pins(name)} == set()


def test_the_build_backend_is_pinned() -> None:
    assert int(_pins("base")["setuptools"].split(".")[0]) >= 77
