"""nodegate-enforce.service as shipped, beside nodegate.service, on a host with systemd; a client outside it.

The engine is the embedded one (SIMULATED) and listens on an address that the client can reach.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pytest
from agent_host import ENGINE_PORT, AgentHost, node_profile
from nspawn_rig import Host, systemd_hosts, wait_for

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]
HELPER = "nodegate-enforce.service"
EXPOSURE_AT_MOST = 2.0
TIMEOUT_S = 3.0
CAP_NET_ADMIN = 1 << 12
_CONNECT = (
    "import socket, sys\n"
    "try: socket.create_connection((sys.argv[1], int(sys.argv[2])), 10).close()\n"
    "except ConnectionRefusedError: print('refused')\n"
    "else: print('taken')\n"
)


@pytest.fixture(scope="module")
def service() -> Iterator[AgentHost]:
    more = [
        "--bind=/dev/kmsg",
        "--system-call-filter=adjtimex clock_adjtime",
        "--capability=CAP_NET_ADMIN",
    ]
    with systemd_hosts("node", more=more) as hosts:
        whole = AgentHost(hosts["node"])
        profile = node_profile(enforce={"enabled": True, "timeout_s": TIMEOUT_S, "period_s": 0.2})
        profile["engines"]["main"]["host"] = hosts["node"].addresses["mgmt"]
        whole.install(profile)
        yield whole


def _outside(host: Host, port: int = ENGINE_PORT) -> str:
    """What becomes of a connection from outside."""
    words = [sys.executable, "-c", _CONNECT, host.addresses["mgmt"], str(port)]
    return host.network.run(words).stdout.strip()


def test_exposure(service: AgentHost) -> None:
    verified = service.host.run(["systemd-analyze", "verify", HELPER])
    assert (verified.returncode, verified.stderr) == (0, "")
    text = service.host.must(["systemd-analyze", "security", "--no-pager", HELPER])
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", text)
    assert found is not None, text
    assert float(found[1]) <= EXPOSURE_AT_MOST, text


def test_agent_helper_and_kernel_together(service: AgentHost) -> None:
    host = service.host
    host.must(["systemctl", "start", HELPER])
    status = host.read(f"/proc/{service.show('MainPID', HELPER)}/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    for kind in ("CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(fields[kind], 16) == CAP_NET_ADMIN, kind
    assert fields["Uid"].split()[0] != "0"
    assert "table inet nodegate" in host.must(["nft", "list", "tables"])

    service.start()
    service.wait_ready()
    wait_for("open to others", lambda: _outside(host) == "taken", 20)
    host.must(["nodegate", "gate", "drain", "main", "--reason", "test"])
    wait_for("closed to others", lambda: _outside(host) == "refused", 20)
    assert service.gate()["process"]["phase"] == "warm", "the agent itself still gets through to its engine"
    host.must(["nodegate", "gate", "resume", "main", "--reason", "test"])
    service.wait_ready()
    wait_for("open again", lambda: _outside(host) == "taken", 20)

    before = service.main_pid()
    host.must(["systemctl", "kill", "--kill-whom=main", "--signal=KILL", "nodegate.service"])
    wait_for("another agent", lambda: service.main_pid() not in (0, before))
    service.wait_ready()
    wait_for("open beside the next agent", lambda: _outside(host) == "taken", 20)

    host.must(["systemctl", "restart", HELPER])
    assert _outside(host) == "taken", "a restart of the helper closes nothing"
    host.must(["systemctl", "stop", HELPER])
    wait_for("closed without a helper", lambda: _outside(host) == "refused", TIMEOUT_S + 2)
    assert service.ready(), "and the agent is as ready as before"
    host.must(["nodegate", "enforce", "off"])
    assert _outside(host) == "taken"
