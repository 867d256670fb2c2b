"""NCCL's variables and files: as NCCL reads them, against devices, interfaces and fabric of the node."""

from __future__ import annotations

from typing import Any

import pytest
from fake_h200 import h200_node, h200_profile
from fake_sources import FakeNode
from lint_kit import told

from agent.errors import SourceUnavailable
from agent.launch.lint.nccl_lint import Around, known_variables, nccl_problems, rendezvous_problems
from agent.launch.lint.nccl_settings import read_settings
from agent.sources.launch_reading import LaunchReport, Severity

GOOD = {"NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1", "NCCL_IB_TC": "106", "NCCL_NET": "IB"}


def node(**files: str) -> FakeNode:
    found = h200_node()
    for name in ("eth0", "eth1", "eth10"):
        found.set(f"files:sys/class/net/{name}/operstate", "up")
    for path, text in files.items():
        found.set(f"files:{path}", text)
    return found


def look(
    env: dict[str, str], files: dict[str, str] | None = None, *, rdma: bool = True, **fabric: Any
) -> LaunchReport:
    """What is said of an environment on the H200 node with RoCE."""
    here = node(**(files or {}))
    profile = h200_profile({"fabric": fabric} if fabric else None)
    settings = read_settings(env, here.sources.tree, "/home/e")
    problems = nccl_problems(settings, Around(here.sources.tree, profile.fabric, rdma))
    return LaunchReport("", tuple(problems))


def test_a_good_environment_is_not_complained_of() -> None:
    assert look(GOOD).problems == ()
    assert look({**GOOD, "NCCL_SOCKET_IFNAME": "=eth1", "NCCL_IB_GID_INDEX": "-1"}).problems == ()
    assert look({}, rdma=False).problems == ()


BAD = [
    (
        {"NCCL_IB_HCA": "=mlx5_0:1,mlx5_77"},
        "NCCL_IB_HCA",
        "there is no RDMA device mlx5_77; name those that there",
    ),
    ({"NCCL_IB_HCA": "=mlx5_0:2"}, "NCCL_IB_HCA", "mlx5_0 has no port 2; its ports are 1"),
    (
        {"NCCL_IB_HCA": "=" + ",".join(["mlx5_0"] * 33)},
        "NCCL_IB_HCA",
        "names 33 devices and NCCL uses 32 at most",
    ),
    ({"NCCL_IB_TC": "104"}, "", ""),
    ({"NCCL_IB_TC": "96"}, "NCCL_IB_TC", "96 is DSCP 24, and fabric.roce.dscp is 26; write 106"),
    ({"NCCL_IB_TC": ""}, "NCCL_IB_TC", "0 is DSCP 0"),
    ({"NCCL_IB_TC": "x"}, "NCCL_IB_TC", "'x' is not 0 to 255"),
    ({"NCCL_IB_FIFO_TC": "96"}, "NCCL_IB_FIFO_TC", "96 is DSCP 24"),
    ({"NCCL_SOCKET_IFNAME": "=eth9"}, "NCCL_SOCKET_IFNAME", "no interface is named eth9; this node has eth0"),
    ({"NCCL_SOCKET_IFNAME": "ens"}, "NCCL_SOCKET_IFNAME", "no interface begins with ens"),
    ({"NCCL_NET": "Socket"}, "NCCL_NET", "is Socket, and launch.rdma says"),
    ({"NCCL_IB_DISABLE": "1"}, "NCCL_IB_DISABLE", "turns RDMA off"),
    ({"NCCL_TOPO_FILE": "/etc/topo.xml"}, "NCCL_TOPO_FILE", "there is no file /etc/topo.xml"),
    ({"NCCL_CONF_FILE": "/etc/own.conf"}, "NCCL_CONF_FILE", "/etc/own.conf is not there"),
]


@pytest.mark.parametrize(("env", "where", "text"), BAD, ids=[str(row[0])[:60] for row in BAD])
def test_mistakes_are_named(env: dict[str, str], where: str, text: str) -> None:
    found = told(look({**GOOD, **env}))
    assert list(found) == ([where] if where else [])
    assert text in found.get(where, "")


WARNED = [
    ({"NCCL_IB_TC": "104"}, "NCCL_IB_TC", "not ECN-capable"),
    ({"NCCL_IB_GID_INDEX": "5"}, "NCCL_IB_GID_INDEX", "indexes can shift at a reboot"),
    ({"NCCL_NET": ""}, "NCCL_NET", "NCCL falls back to TCP without a word"),
    ({"NCCL_IB_HCA": "^mlx5_7"}, "NCCL_IB_HCA", "write ^=mlx5_7"),
    ({"NCCL_SOCKET_IFNAME": "eth1"}, "NCCL_SOCKET_IFNAME", "eth1 is eth10 to eth19 too; write =eth1"),
    ({"NCCL_P2P_DISABLE": "1"}, "NCCL_P2P_DISABLE", "is for looking for faults"),
    ({"NCCL_IB_HCAS": "x"}, "NCCL_IB_HCAS", "NCCL reads no such variable; did you mean NCCL_IB_HCA?"),
    ({"NCCL_QQQQQQ": "x"}, "NCCL_QQQQQQ", "NCCL reads no such variable; remove it"),
]


@pytest.mark.parametrize(("env", "where", "text"), WARNED, ids=[str(row[0]) for row in WARNED])
def test_what_may_hurt_is_warned_of(env: dict[str, str], where: str, text: str) -> None:
    report = look({**GOOD, **env})
    assert told(report) == {}
    assert text in told(report, Severity.WARNING)[where]


def test_a_prefix_takes_more_devices_than_it_names() -> None:
    files = {"sys/class/infiniband/mlx5_10/ports/1/state": "4: ACTIVE"}
    found = told(look({**GOOD, "NCCL_IB_HCA": "mlx5_1"}, files))
    assert found["NCCL_IB_HCA"] == (
        "mlx5_1 is taken for the beginning of a name, so mlx5_10 are meant too; write =mlx5_1"
    )


def test_a_mistake_of_an_engine_that_stays_inside_its_node_is_a_warning() -> None:
    report = look({**GOOD, "NCCL_IB_TC": "96", "NCCL_IB_HCA": "=mlx5_77"}, rdma=False)
    assert told(report) == {}
    assert set(told(report, Severity.WARNING)) == {"NCCL_IB_TC", "NCCL_IB_HCA"}


def test_several_nodes_meet_in_the_network_that_nccl_is_given() -> None:
    env = {"NCCL_SOCKET_IFNAME": "=eth1", "VLLM_HOST_IP": "192.0.2.1"}
    assert [problem.where for problem in rendezvous_problems(env, 2)] == ["GLOO_SOCKET_IFNAME"]
    assert rendezvous_problems(env, 1) == rendezvous_problems({}, 2) == []


def test_a_watched_gid_index_may_be_fixed() -> None:
    assert look({**GOOD, "NCCL_IB_GID_INDEX": "3"}).problems == ()  # as fabric.roce.gid_index


def test_files_are_read_as_nccl_reads_them() -> None:
    own = "# comment\n\nNCCL_IB_TC=96\n NCCL_DEBUG=INFO\n"
    own += "NCCL_ALGO=Ring # why\nNCCL_PROTO=Simple \nNCCL_MAX_CTAS\n"
    report = look(
        {"NCCL_IB_HCA": GOOD["NCCL_IB_HCA"], "NCCL_NET": "IB"},
        {"home/e/.nccl.conf": own, "etc/nccl.conf": "NCCL_IB_TC=106\nNCCL_NET=Socket\n"},
    )
    errors, warnings = told(report), told(report, Severity.WARNING)
    assert "is DSCP 24" in errors["/home/e/.nccl.conf: NCCL_IB_TC"]
    assert "no such variable is read" in errors["/home/e/.nccl.conf:4"]
    assert "with the comment for the value" in errors["/home/e/.nccl.conf:5"]
    assert "with its blanks for the value" in errors["/home/e/.nccl.conf:6"]
    assert len(errors) == 4
    assert "has no `=`" in warnings["/home/e/.nccl.conf:7"]
    assert warnings["/etc/nccl.conf:1"].startswith(
        "NCCL_IB_TC is '106' and /home/e/.nccl.conf sets '96', which counts"
    )
    assert warnings["/etc/nccl.conf:2"].startswith("NCCL_NET is 'Socket' and the launch sets 'IB'")


def test_a_named_file_stands_for_the_users_own() -> None:
    env = {**GOOD, "NCCL_CONF_FILE": "/etc/site.conf"}
    files = {"etc/site.conf": "NCCL_DEBUG=" + "x" * 1100, "home/e/.nccl.conf": "broken"}
    report = look(env, files)
    assert told(report) == {
        "/etc/site.conf:1": "the value has 1100 characters and NCCL cuts it at 1023; make it shorter"
    }
    assert told(report, Severity.WARNING) == {}


def test_a_file_that_cannot_be_read_is_no_evidence() -> None:
    here = node()
    here.set("files:etc/nccl.conf", {"error": "NO_PERMISSION"})
    with pytest.raises(SourceUnavailable):
        read_settings(GOOD, here.sources.tree, "/home/e")


def test_the_list_of_variables_has_those_that_are_used_most() -> None:
    used = {
        "NCCL_DEBUG",
        "NCCL_SOCKET_IFNAME",
        "NCCL_IB_HCA",
        "NCCL_TOPO_FILE",
        "NCCL_CUMEM_ENABLE",
        "NCCL_ALGO",
    }
    assert used <= known_variables()
    assert all(name.startswith("NCCL_") and name == name.strip() for name in known_variables())
