"""Read-only by itself, or only as this process sees it."""

from __future__ import annotations

import pytest

from agent.errors import ParseError
from agent.sources.mount_table import file_system_read_only, is_read_only

TABLE = r"""
22 1 8:1 / / ro,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
30 22 8:2 / /data ro,relatime - ext4 /dev/sdb1 ro
31 22 8:3 / /data\040two rw,relatime shared:2 master:1 - xfs /dev/sdc1 rw
32 22 0:40 / /over ro - overlay overlay ro,lowerdir=/a
33 32 8:4 / /over rw - ext4 /dev/sdd1 rw
""".strip()


@pytest.mark.parametrize(
    ("path", "read_only"),
    [
        ("/", False),
        ("/etc/hosts", False),
        ("/data", True),
        ("/data/models", True),
        ("/data2", False),
        ("/data two/x", False),
        ("/over", False),
    ],
)
def test_the_file_systems_own_options_count(path: str, read_only: bool) -> None:
    assert is_read_only(path, TABLE) is read_only


@pytest.mark.parametrize(
    "table", ["", "22 1 8:1 / / ro", "22 1 - ext4 /dev/sda1 rw", TABLE.replace(" - ", " ")]
)
def test_a_garbled_table_is_no_answer(table: str) -> None:
    with pytest.raises(ParseError):
        is_read_only("/data", table)


def test_this_machine_answers() -> None:
    assert isinstance(file_system_read_only("/proc/self"), bool)
