"""One systemd host that a module's tests share; a test that needs several, or a fresh one, boots its own."""

from collections.abc import Iterator

import pytest
from nspawn_rig import Host, systemd_hosts


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with systemd_hosts("node") as hosts:
        yield hosts["node"]
