"""The folders and sockets that a daemon has for itself."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from server_kit import profile

from agent.errors import DaemonError
from agent.node_profile import NodeProfile
from agent.premises import LOCK_NAME, Folders, take_premises


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    # A Unix socket's path is at most 107 characters: pytest's own folders can be longer.
    run_dir = Path(os.path.relpath(tmp_path / "run"))
    return Folders(tmp_path / "state", run_dir, tmp_path / "log")


def _free_profile() -> NodeProfile:
    node = profile(())
    return node.model_copy(update={"api": node.api.model_copy(update={"host": "127.0.0.1", "port": 0})})


def test_a_full_disk_does_not_keep_an_agent_from_starting(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with (
        take_premises(folders, _free_profile()),
        pytest.raises(DaemonError, match="another nodegate daemon"),
    ):
        take_premises(folders, _free_profile())


def test_a_lock_that_leads_elsewhere_is_refused_and_what_it_names_stays(
    folders: Folders, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    folders.state_dir.mkdir()
    (folders.state_dir / LOCK_NAME).symlink_to(precious)
    with pytest.raises(DaemonError, match=r"daemon\.lock: cannot be opened"):
        take_premises(folders, _free_profile())
    assert precious.read_text() == "kept"
