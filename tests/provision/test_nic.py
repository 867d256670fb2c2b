"""Role nic on a node in memory: what differs is set, read back and told, and nothing is half applied."""

import json

import pytest
from fake_nic_host import NicHost, fabric
from nodegate_apply.boot_unit import boot_settings
from nodegate_apply.nic import wanted, wanted_nic
from nodegate_apply.nic_apply import MODULES, apply_nic


@pytest.fixture
def host(tmp_path):
    """A node that fulfils fabric(), with its unit installed."""
    made = NicHost(tmp_path)
    apply_nic(made, fabric(), check=False)
    made.calls.clear()
    return made


def names(report):
    return [one["name"] for one in report.drift]


def orders(host):
    """Commands that change something."""
    reads = ("query", "-a ", "-g ", "is-active", "is-enabled", " show ")
    return [
        call for call in host.calls
        if not any(read in call for read in reads)
        and not call.endswith(("CAP_EXP+08.w", "-i eth0", "-i eth1"))
    ]  # fmt: skip


def test_what_is_right_is_left_alone(host):
    report = apply_nic(host, fabric(), check=False)
    assert not report.changed and not report.problems and not report.pending and not orders(host)
    assert len([call for call in host.calls if "query" in call]) == 2, "each card is asked once"


DRIFTS = {
    "mlx5_1 NUM_OF_VFS": lambda host: host.nv["18"].update(NUM_OF_VFS=("0", "8", "4")),
    "eth1 MTU": lambda host: host.poke("/sys/class/net/eth1/mtu", "1500"),
    "eth1 rx ring": lambda host: host.rings["eth1"].update(rx=512),
    "eth1 tx ring": lambda host: host.rings["eth1"].update(tx=512),
    "mlx5_1 MaxReadReq": lambda host: host.read_request.update({"18": 0x2936}),
    "eth1 global pause": lambda host: host.pause.update(eth1="on"),
    "eth1 DCBX": lambda host: host.dcb["eth1"].update(os=False),
    "eth1 PFC": lambda host: host.dcb["eth1"].update(pfc=[False] * 8),
    "eth1 DSCP 26": lambda host: host.dcb["eth1"]["map"].update({26: 0}),
    "eth1 ECN roce_np priority 3": lambda host: host.poke("/sys/class/net/eth1/ecn/roce_np/enable/3", "0"),
    "eth1 ECN roce_rp priority 3": lambda host: host.poke("/sys/class/net/eth1/ecn/roce_rp/enable/3", "0"),
    "eth1 CNP DSCP": lambda host: host.poke("/sys/class/net/eth1/ecn/roce_np/cnp_dscp", "0"),
    "mlx5_1 traffic class": lambda host: host.poke("/sys/class/infiniband/mlx5_1/tc/1/traffic_class", ""),
    "mlx5_1 TOS of librdmacm": lambda host: host.poke(
        "/sys/kernel/config/rdma_cm/mlx5_1/ports/1/default_roce_tos", "0"
    ),
    "nodegate-apply@nic.service at boot": lambda host: host.units.update({"nodegate-apply@nic.service": ""}),
    "/etc/nodegate/apply/nic.json": lambda host: host.written.update({"/etc/nodegate/apply/nic.json": "{"}),
}


@pytest.mark.parametrize("name", DRIFTS)
def test_each_drift_is_shown_and_repaired(host, name):
    DRIFTS[name](host)
    shown = apply_nic(host, fabric(), check=True)
    assert names(shown) == [name] and shown.changed and not orders(host)
    done = apply_nic(host, fabric(), check=False)
    assert names(done) == [name] and not done.problems, "check mode tells what is done"
    again = apply_nic(host, fabric(), check=False)
    assert not again.changed and not again.problems


def test_untrusted_dscp_also_lacks_its_map(host):
    host.dcb["eth0"]["map"] = {}
    assert names(apply_nic(host, fabric(), check=True)) == ["eth0 trust", "eth0 DSCP 26"]
    report = apply_nic(host, fabric(), check=False)
    assert not report.problems and orders(host) == ["mlnx_qos -i eth0 --trust dscp"], "26 / 8 is 3 by itself"


def test_all_of_one_port_in_as_few_calls_as_the_tools_allow(host):
    host.dcb["eth0"] = {"os": False, "pfc": [True] * 8, "map": {26: 1}}
    host.nv["06"] |= {"SRIOV_EN": ("False(0)",) * 3, "NUM_OF_VFS": ("0", "0", "0")}
    report = apply_nic(host, fabric(), check=False)
    assert not report.problems and orders(host) == [
        "mlxconfig -d 0000:06:00.0 -y set SRIOV_EN=1 NUM_OF_VFS=8",
        "mlnx_qos -i eth0 --dcbx os --pfc 0,0,0,1,0,0,0,0",
        "mlnx_qos -i eth0 --dscp2prio set,26,3",
    ]
    assert report.pending == ["mlx5_0 SRIOV_EN = True", "mlx5_0 NUM_OF_VFS = 8"]


def test_only_the_bits_of_max_read_request_are_touched(host):
    host.read_request["06"] = 0x2ABC
    apply_nic(host, fabric(), check=False)
    assert host.read_request["06"] == 0x5ABC


def test_three_states_and_the_reboot(host):
    host.nv["06"]["SRIOV_EN"] = ("False(0)",) * 3
    first = apply_nic(host, fabric(), check=False)
    again = apply_nic(host, fabric(), check=False)
    assert (
        first.changed and not again.changed and first.pending == again.pending == ["mlx5_0 SRIOV_EN = True"]
    )
    assert (
        apply_nic(host, fabric(), check=False, settled=True)
        .problems[0]
        .startswith(
            "mlx5_0 SRIOV_EN (fabric.nic.config.SRIOV_EN): still False(0) after the reboot, True is staged;"
        )
    )
    host.reboot()
    assert not apply_nic(host, fabric(), check=False, settled=True).problems


def test_iproute2_where_there_is_no_mlnx_qos(host):
    host.tools.remove("mlnx_qos")
    host.dcb["eth0"] = {"os": False, "pfc": [True] * 8, "map": {}}
    report = apply_nic(host, fabric(), check=False)
    assert not report.problems and orders(host) == [
        "dcb dcbx set dev eth0 host ieee",
        "dcb pfc set dev eth0 prio-pfc all:off 3:on",
        "dcb app replace dev eth0 dscp-prio 26:3",
    ]
    pcp = fabric(roce={"trust": "pcp"})
    assert not apply_nic(host, pcp, check=False).problems
    assert "dcb app flush dev eth0 dscp-prio" in host.calls


def test_a_card_that_becomes_ethernet_at_the_next_boot(host, tmp_path):
    host.nv["06"]["LINK_TYPE_P1"] = ("IB(1)",) * 3
    (tmp_path / "class/net/eth0").rename(tmp_path / "ib0")
    report = apply_nic(host, fabric(), check=False)
    assert not report.problems and names(report) == ["mlx5_0 LINK_TYPE_P1"]
    assert report.pending == [
        "mlx5_0 LINK_TYPE_P1 = ETH", "mlx5_0: settings of eth0, when the card is Ethernet"
    ]  # fmt: skip


def test_two_ports_of_one_card_are_configured_once(host, tmp_path):
    link = tmp_path / "class/infiniband/mlx5_1/device"
    link.unlink()
    link.symlink_to("../../../0000:06:00.1")
    cards = wanted(host, fabric()).cards
    assert [setting.name.split()[0] for card in cards for setting in card] == ["mlx5_0"] * 4


def test_values_of_one_kind_of_card(host):
    nic = {"config_by_board": {"MT_0000000838": {"NUM_OF_VFS": 16}, "MT_0000001000": {"NO_SUCH_THING": 1}}}
    drift = apply_nic(host, fabric(nic=nic), check=True).drift
    field = "fabric.nic.config_by_board.MT_0000000838.NUM_OF_VFS"
    assert [(one["name"], one["field"]) for one in drift[:2]] == [
        ("mlx5_0 NUM_OF_VFS", field),
        ("mlx5_1 NUM_OF_VFS", field),
    ]


def break_device(host):
    (host.path("/sys/class/infiniband/mlx5_1/device")).unlink()


FAILURES = [
    (lambda host: host.fail.update({"mlxconfig -d 0000:18": "hang"}), {},
     "mlx5_1 LINK_TYPE_P1 (fabric.nic.config.LINK_TYPE_P1): mlxconfig -d 0000:18:00.0 -e query: gave no"),
    (lambda host: None, {"nic": {"config": {"NO_SUCH": 1}}},
     "mlx5_0 NO_SUCH (fabric.nic.config.NO_SUCH): mlx5_0 at 0000:06:00.0 does not list NO_SUCH; take it out"),
    (break_device, {}, "mlx5_1 LINK_TYPE_P1 (fabric.nic.config.LINK_TYPE_P1): mlx5_1: there is no such RDMA"),
    (lambda host: host.tools.remove("mlxconfig"), {},
     "mlx5_0 LINK_TYPE_P1 (fabric.nic.config.LINK_TYPE_P1): mlxconfig: is not installed on this node;"),
    (lambda host: host.tools.difference_update({"mlnx_qos", "dcb"}), {},
     "eth0 DCBX (fabric.roce.priority): mlnx_qos: is not installed on this node, nor is dcb;"),
    (lambda host: host.fail.update({"mlnx_qos": "Cannot get interface index: [Errno 19] No such device"}), {},
     "eth0 DCBX (fabric.roce.priority): mlnx_qos -i eth0: Cannot get interface index: [Errno 19]"),
    (lambda host: None, {"nic": {"rx_ring": 16384}},
     "eth0 rx ring (fabric.nic.rx_ring): ethtool -g eth0: rx rings have at most 8192 entries, not 16384;"),
    (lambda host: host.units.update({"lldpad.service": "active"}), {},
     "lldpad (fabric.roce.priority): is active, must be inactive; it would set PFC anew: systemctl disable"),
    (lambda host: host.fail.update({"setpci": "Missing capability"}), {},
     "mlx5_0 MaxReadReq (fabric.nic.max_read_request_bytes): setpci -s 0000:06:00.0 CAP_EXP+08.w: Missing"),
    (lambda host: host.path("/sys/class/net/eth0/mtu").unlink(), {},
     "eth0 MTU (fabric.ports.0.mtu_bytes): eth0: there is no such interface;"),
    (lambda host: host.path("/sys/class/net/eth0/ecn/roce_np/enable/3").unlink(), {},
     "eth0 ECN roce_np priority 3 (fabric.roce.ecn): /sys/class/net/eth0/ecn/roce_np/enable/3: is not"),
]  # fmt: skip


@pytest.mark.parametrize(("broken", "changes", "line"), FAILURES)
def test_a_failure_is_one_line_and_nothing_is_written(host, broken, changes, line):
    broken(host)
    host.nv["06"]["SRIOV_EN"] = ("False(0)",) * 3
    host.pause["eth0"] = "on"
    report = apply_nic(host, fabric(**changes), check=False)
    assert any(problem.startswith(line) for problem in report.problems), report.problems
    assert not orders(host) and all("\n" not in problem for problem in report.problems)


def test_what_a_tool_does_not_keep_is_a_failure(host):
    host.dcb["eth0"]["pfc"] = [False] * 8
    host.lies = {"mlnx_qos"}
    assert apply_nic(host, fabric(), check=False).problems == [
        "eth0 PFC (fabric.roce.priority): was set and reads none afterwards, not 3;"
        " see mlnx_qos -i or dcb pfc show; is another agent setting DCB?"
    ]


def test_a_set_that_is_refused_says_what_was_written_before(host):
    for nv in host.nv.values():
        nv["SRIOV_EN"] = ("False(0)",) * 3
    host.fail["0000:18:00.0 -y set"] = "-E- Failed to set configuration: The firmware is busy"
    assert apply_nic(host, fabric(), check=False).problems == [
        "mlx5_1 SRIOV_EN (fabric.nic.config.SRIOV_EN): mlxconfig -d 0000:18:00.0 -y set SRIOV_EN=1:"
        " -E- Failed to set configuration: The firmware is busy; written before: mlx5_0 SRIOV_EN"
    ]


@pytest.mark.parametrize(
    ("file", "text", "seen"),
    [
        ("gid_attrs/types/3", "IB/RoCE v1", "IB/RoCE v1 of eth0"),
        ("gids/3", "0000:0000:0000:0000:0000:0000:0000:0000", "empty"),
        ("gids/3", "fe80:0000:0000:0000:0000:5eff:fe10:0000", "RoCE v2, link-local of eth0"),
        ("gid_attrs/ndevs/3", "eth9", "RoCE v2 of eth9"),
    ],
)
def test_a_wrong_gid_is_told_and_keeps_nothing_from_being_set(host, file, text, seen):
    host.poke(f"/sys/class/infiniband/mlx5_0/ports/1/{file}", text)
    host.pause["eth0"] = "on"
    report = apply_nic(host, fabric(), check=False)
    assert report.problems[0].startswith(
        f"mlx5_0 GID 3 (fabric.roce.gid_index): is {seen}, must be RoCE v2 of"
    )
    assert host.pause["eth0"] == "off"


def test_the_kernels_own_driver(host, tmp_path):
    """No ecn folder: the card does ECN, CNPs are in debugfs, classes are not offered."""
    inbox = tmp_path / "kernel/debug/mlx5/0000:06:00.0/cc_params/np_cnp_dscp"
    inbox.parent.mkdir(parents=True)
    inbox.write_text("0\n")
    (tmp_path / "class/net/eth0/ecn").rename(tmp_path / "gone")
    (tmp_path / "class/infiniband/mlx5_0/tc").rename(tmp_path / "gone-too")
    config = {"nic": {"config": {"ROCE_CC_PRIO_MASK_P1": 255}}}
    report = apply_nic(host, fabric(**config), check=False)
    assert not report.problems and "eth0 CNP DSCP" in names(report) and inbox.read_text() == "48"


def test_infiniband_has_nv_configuration_and_pcie_alone(host):
    nic = {"config": {"LINK_TYPE_P1": "IB"}}
    found = wanted_nic(host, fabric(kind="ib", nic=nic))
    assert {setting.name.partition(" ")[2] for setting in found} == {"LINK_TYPE_P1", "MTU", "MaxReadReq"}


def test_without_a_fabric_the_unit_has_nothing_to_apply(host):
    assert "/etc/nodegate/apply/nic.json" in host.written
    assert apply_nic(host, fabric(kind="none"), check=False).changed
    assert "/etc/nodegate/apply/nic.json" not in host.written
    assert not apply_nic(host, fabric(kind="none"), check=False).changed


def other(value):
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    return {"dscp": "pcp", 4096: 512}.get(value, value + 1 if isinstance(value, int) else None)


@pytest.mark.parametrize(
    ("part", "key"),
    [("nic", key) for key in ("max_read_request_bytes", "rx_ring", "tx_ring")]
    + [("roce", key) for key in ("priority", "dscp", "trust", "ecn", "cnp_dscp", "gid_index")],
)
def test_every_field_changes_what_is_wanted(tmp_path, part, key):
    """Also of a node that is not there at all."""
    bare = NicHost(tmp_path / "nowhere", 0)
    plain = fabric()
    changed = fabric(**{part: {key: other(plain[part][key])}})

    def wants(data):
        return [(s.name, s.field, s.want) for s in wanted_nic(bare, data)]

    assert wants(plain) != wants(changed)


def test_the_record(host):
    apply_nic(host, fabric(), check=False)
    record = json.loads(host.written["/run/nodegate-apply/nic.json"])
    assert record["boot_id"].startswith("5d4f0c3e") and record["taken_mono_s"] > 0 and not record["problems"]
    assert {
        "name": "mlx5_0 SRIOV_EN",
        "want": "True",
        "current": "True(1)",
        "staged": "True(1)",
    }.items() <= next(s for s in record["settings"] if s["name"] == "mlx5_0 SRIOV_EN").items()


def test_the_unit_goes_with_all_modules_that_it_needs(tmp_path):
    """Every module of the package that is imported on the node is installed."""
    texts = {
        setting.name.rpartition("/")[2]: setting.want
        for setting in boot_settings(NicHost(tmp_path), "nic", {}, MODULES)
        if setting.name.endswith(".py")
    }
    for text in texts.values():
        for line in text.splitlines():
            if line.startswith("from ."):
                assert f"{line.split()[1].lstrip('.')}.py" in texts, line


def test_four_ports_of_one_device(tmp_path):
    """CX8 with its planes as ports of one device: what belongs to the device is wanted once."""
    data = fabric(1)
    data["ports"] = [{**data["ports"][0], "port": number, "netdev": f"eth{number}"} for number in (3, 6)]
    names = [setting.name for setting in wanted_nic(NicHost(tmp_path), data)]
    assert len(names) == len(set(names))
    assert names.count("mlx5_0 MaxReadReq") == 1 and {"mlx5_0/3 GID 3", "mlx5_0/6 traffic class"} <= set(
        names
    )
