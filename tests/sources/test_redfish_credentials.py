"""The credentials file: whose it must be, what must be in it, and that no error shows any of it."""

import os
import pwd
from pathlib import Path

import pytest

from agent.errors import SourceUnavailable
from agent.sources.redfish_credentials import read_credentials

GOOD = "username: reader\npassword: pa:ss word\n"


def _file(folder: Path, text: str | bytes = GOOD, mode: int = 0o600) -> str:
    path = folder / "credentials"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_private_file_is_read_and_not_shown(tmp_path: Path, mode: int) -> None:
    found = read_credentials(_file(tmp_path, mode=mode))
    assert (found.username, found.password) == ("reader", "pa:ss word")
    assert "pa:ss" not in repr(found) + str(found)
    assert "reader" not in repr(found)


def test_quotes_and_comments(tmp_path: Path) -> None:
    found = read_credentials(_file(tmp_path, "# the BMC\n\npassword: ' #x '\nusername: \"a\"\n"))
    assert (found.username, found.password) == ("a", " #x ")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o666, 0o644, 0o610])
def test_a_file_that_others_can_get_at_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(SourceUnavailable, match=f"credentials: mode {mode:04o}.*chmod 0600"):
        read_credentials(_file(tmp_path, mode=mode))


def _owned_by(monkeypatch: pytest.MonkeyPatch, owner: int) -> None:
    """Every file belongs to this user."""
    real = os.fstat
    fields = 10

    def of_somebody(descriptor: int) -> os.stat_result:
        values = list(real(descriptor))[:fields]
        values[4] = owner
        return os.stat_result(values)

    monkeypatch.setattr(os, "fstat", of_somebody)


def test_a_file_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _file(tmp_path)
    owner = Path(path).stat().st_uid + 4321
    _owned_by(monkeypatch, owner)
    with pytest.raises(SourceUnavailable, match=f"belongs to user id {owner}"):
        read_credentials(path)


def test_root_takes_the_file_of_the_agents_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _file(tmp_path)
    _owned_by(monkeypatch, 4321)
    agents = pwd.struct_passwd(("nodegate", "x", 4321, 4321, "", "/", ""))
    monkeypatch.setattr(pwd, "getpwnam", {"nodegate": agents}.__getitem__)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert read_credentials(path).username
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SourceUnavailable, match="belongs to user id 4321"):
        read_credentials(path)


def test_no_file_a_folder_and_a_pipe_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailable, match="none: No such file"):
        read_credentials(str(tmp_path / "none"))
    with pytest.raises(SourceUnavailable, match="regular file"):
        read_credentials(str(tmp_path))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    with pytest.raises(SourceUnavailable, match="regular file"):
        read_credentials(str(pipe))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "username: reader\n",
        "password: topsecret\n",
        "username:\npassword: topsecret\n",
        "username: a\npassword: topsecret\npassword: topsecret\n",
        "username: a\npassword: topsecret\ntoken: topsecret\n",
        "topsecret\n",
        b"username: a\npassword: \xff\xfe\n",
        "username: a\npassword: " + "topsecret" * 1000,
    ],
)
def test_what_is_not_two_lines_is_refused_unseen(tmp_path: Path, text: str | bytes) -> None:
    with pytest.raises(SourceUnavailable, match="write two lines") as caught:
        read_credentials(_file(tmp_path, text))
    assert "topsecret" not in str(caught.value)
    assert "\n" not in str(caught.value)
