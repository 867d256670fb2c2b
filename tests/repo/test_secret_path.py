"""`credential:NAME` in a profile: a file that systemd handed to the service."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import LaunchError, SourceUnavailable
from agent.launch.env_file import read_env_file
from agent.secret_path import open_to_others, secret_path
from agent.sources.redfish_credentials import read_credentials


@pytest.fixture
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    return tmp_path


def _put(path: Path, text: str, mode: int = 0o400) -> None:
    path.write_text(text)
    path.chmod(mode)


def test_a_path_is_taken_as_it_is() -> None:
    assert secret_path("/etc/x", {}) == Path("/etc/x")
    assert secret_path("x", {"CREDENTIALS_DIRECTORY": "/run/c"}) == Path("x")


def test_a_file_of_the_folder_and_a_credential_of_its_own(credentials: Path) -> None:
    _put(credentials / "nodegate_bmc", "username: a\npassword: b\n")
    assert read_credentials("credential:bmc").username == "a"
    _put(credentials / "bmc", "username: own\npassword: b\n")
    assert read_credentials("credential:bmc").username == "own"


def test_systemd_lets_the_service_in_by_group_bits(credentials: Path) -> None:
    _put(credentials / "key", "VLLM_API_KEY=secret\n", 0o440)
    assert read_env_file(Path("credential:key")) == {"VLLM_API_KEY": "secret"}
    _put(credentials / "key", "VLLM_API_KEY=secret\n", 0o444)
    with pytest.raises(LaunchError, match="mode is 0444"):
        read_env_file(Path("credential:key"))
    assert open_to_others(Path("/elsewhere/key"), 0o440)


def test_what_is_not_there_says_what_to_do(credentials: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceUnavailable, match=r"put the file none into /etc/nodegate/credentials"):
        read_credentials("credential:none")
    with pytest.raises(LaunchError, match="no name of a credential"):
        read_env_file(Path("credential:../etc/shadow"))
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    with pytest.raises(SourceUnavailable, match="only under systemd"):
        read_credentials("credential:bmc")
