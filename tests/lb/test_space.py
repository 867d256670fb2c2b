"""Nothing of a Space outlives its test, however the test ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from daemon_rig import wait_until

pytestmark = [pytest.mark.root, pytest.mark.timeout(120)]
_SUPPORT = Path(__file__).parents[1] / "support"
#: A machine with a process that has gone its own way, and a folder; then it waits to be killed.
_PROGRAM = """
import subprocess, sys, time
from lb_space import Space, folder_for_now
with folder_for_now() as folder:
    (folder / "file").write_text("x")
    space = Space()
    child = subprocess.Popen(space.words("setsid", "sleep", "600"))
    print(space.pid, folder, flush=True)
    time.sleep(600)
"""


def test_a_killed_test_leaves_no_process_and_no_folder() -> None:
    words = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(_SUPPORT)!r})\n{_PROGRAM}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as test:
        assert test.stdout is not None
        pid, folder = test.stdout.readline().split()
        inode = Path(f"/proc/{pid}/ns/pid").stat().st_ino
        wait_until("its sleeper", lambda: len(_inside(inode)) > 1)
        test.send_signal(signal.SIGKILL)
    wait_until("nothing is left in it", lambda: not _inside(inode))
    wait_until("the folder is gone", lambda: not Path(folder).exists())


def _inside(inode: int) -> list[int]:
    """Processes of a process namespace."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "ns" / "pid").stat().st_ino == inode:
                found.append(int(entry.name))
        except OSError:
            continue
    return found
