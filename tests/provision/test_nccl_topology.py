"""Role nccl_topology: a file only of the machine that was recorded, and nccl.conf as the engines have it."""

from pathlib import Path

import pytest
from fake_h200 import h200_profile
from node_files import FolderHost
from nodegate_apply import topology
from nodegate_apply.host import HostError, Output
from nodegate_apply.setting import settle
from nodegate_apply.topology import CONF, TopologyFile, wanted_topology

from agent.launch.lint.nccl_settings import NcclSettings
from agent.launch.nccl_conf import nccl_conf
from agent.launch.nccl_env import nccl_env

FILE = "/etc/nodegate/topology.xml"
XML = '<system version="1">\n</system>\n'


class Nodegate:
    """The program on the node: writes XML, finds differences that the test gives, and verifies."""

    def __init__(self, folder: Path) -> None:
        """It is installed and everything fits."""
        self.host = FolderHost(folder, self._run)
        self.host.write("/opt/nodegate/bin/nodegate", "")
        self.differs: list[str] = []
        self.fits = True

    def _run(self, argv: list[str]) -> Output:
        if argv[2] == "write":
            Path(argv[3]).write_text(XML)
            said = "SIMULATED: x\n" + "".join(f"not as topology.expected has it: {d}\n" for d in self.differs)
            return Output(0, f"{argv[3]}: written\n", said)
        return Output(0, "", "") if self.fits else Output(1, "NCCL cannot read it: a TAB\n", "SIMULATED: x\n")

    def settle(self, conf: str = "", check: bool = False):
        """One run of the role."""
        file = TopologyFile(self.host, "/opt/nodegate/bin/nodegate", "profile", "--node /n")
        return settle(wanted_topology(self.host, FILE, conf, file), check=check)


@pytest.fixture
def node(tmp_path: Path) -> Nodegate:
    return Nodegate(tmp_path)


def test_the_file_is_made_and_kept(node: Nodegate) -> None:
    assert node.settle(check=True).changed and not node.host.exists(FILE)
    assert node.settle().changed and node.host.read(FILE) == XML
    assert node.host.ran[-1][-2:] == ["--node", "/n"]
    assert not node.settle().changed
    node.host.write(FILE, "<old/>")
    report = node.settle()
    assert "<old/>" in report.before and node.host.read(FILE) == XML


def test_no_file_is_made_of_another_machine(node: Nodegate) -> None:
    node.differs = ["gpu3: is on NUMA node 1", "gpu4: is on NUMA node 0"]
    with pytest.raises(HostError, match=r"gpu3: is on NUMA node 1 \(and 1 more\); put the card back"):
        node.settle()
    assert not node.host.exists(FILE)


def test_a_file_that_does_not_pass_is_not_installed(node: Nodegate) -> None:
    node.host.write(FILE, "<old/>")
    node.fits = False
    assert "does not pass: NCCL cannot read it: a TAB" in node.settle().problems[0]
    assert node.host.read(FILE) == "<old/>"


def test_without_nodegate_it_says_what_to_do(tmp_path: Path) -> None:
    file = TopologyFile(FolderHost(tmp_path), "/opt/nodegate/bin/nodegate", "", "")
    with pytest.raises(HostError, match="tasks_from install first"):
        file.text()


def test_nccl_conf(node: Nodegate) -> None:
    node.settle(f"{topology.OURS}\nNCCL_IB_TC=106\n")
    assert node.host.exists(CONF)
    node.settle("")
    assert not node.host.exists(CONF), "ours goes with its reason"
    node.host.write(CONF, "NCCL_DEBUG=INFO\n")
    node.settle("")
    assert node.host.exists(CONF), "what is not ours stays"


def test_nccl_reads_what_engines_are_given() -> None:
    profile = h200_profile({"topology": {"nccl_file": FILE}})
    settings = NcclSettings({})
    settings.add_file(CONF, nccl_conf(profile))
    want = {**nccl_env(profile.fabric, range(8)), "NCCL_TOPO_FILE": FILE}
    assert {name: settings.value(name) for name in want} == want
    assert nccl_conf(profile).startswith(topology.OURS)
    assert "=" not in nccl_conf(profile).splitlines()[0], "a comment with = would be a variable"
    assert nccl_conf(h200_profile({"fabric": {"kind": "none"}, "topology": {"nccl_file": None}})) == ""
