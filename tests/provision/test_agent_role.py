"""Role agent: files and secrets from profile and inventory, and when the service is started anew."""

import json
import os
import time
from pathlib import Path

import pytest
from agent_host import node_profile
from node_files import FolderHost
from nodegate_apply import agent, agent_service
from nodegate_apply.agent import Given, secret_file, wanted_agent
from nodegate_apply.agent_service import AgentService, engine_pids, newer_files
from nodegate_apply.host import Output
from nodegate_apply.own_program import node_words
from nodegate_apply.setting import Setting, settle

from agent.profile_loader import profile_from_dict

SECRET = "s3cret-of-the-bmc"
REDFISH = {
    "redfish": {"url": "https://192.0.2.9", "credentials_file": "credential:bmc", "ca_file": "/etc/bmc.pem"}
}


def _profile(**more):
    return profile_from_dict(node_profile(supervision="systemd", **more)).profile.model_dump(mode="json")


class Node:
    """A node in a folder: the release in use has one unit, and takes every profile but bad ones."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """With the user of this process as nodegate's and root's."""
        self.link = folder / "release"
        share = self.link / "share/host/etc/systemd/system"
        for path in (share / "nodegate.service", share / "nodegate.service.d/process-supervision.conf"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("[Service]\n")
        self.host = FolderHost(folder / "root", self._run)
        self.service = AgentService(self.host, _profile(), "hash", link=str(self.link))
        self.made: list[str] = []
        monkeypatch.setattr(agent, "_uid", lambda _name: os.getuid())
        monkeypatch.setattr(agent, "_gid", lambda _name: os.getgid())
        monkeypatch.setattr(agent, "service_user", self._there)
        monkeypatch.setattr(agent, "service_folders", self._there)
        monkeypatch.setattr(self.service, "settings", lambda _profile: [])

    def _there(self, _host, _link) -> Setting:
        return Setting("x", "agent", "there", lambda: "there")

    def _run(self, argv: list[str]) -> Output:
        if argv[1:3] == ["profile", "validate"]:
            text = Path(self.host.path(argv[3])).read_text()
            return (
                Output(3, "", f"nodegate: {argv[3]}:1: unknown key\n") if "bad" in text else Output(0, "", "")
            )
        return Output(0, "", "")

    def settle(self, profile, given: Given, check: bool = False):
        """One run."""
        wanted = wanted_agent(self.host, profile, given, self.service, str(self.link))
        return settle(wanted, check=check, groups={"agent": lambda: self.made.append("agent")})


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def test_secrets_are_written_for_few_eyes_and_shown_to_none(node: Node) -> None:
    given = Given("text", "hash", bmc_username="ops", bmc_password=SECRET, bmc_ca="PEM\n")
    report = node.settle(_profile(bmc=REDFISH), given)
    assert not report.problems and node.made == ["agent"]
    file = node.host.path("/etc/nodegate/credentials/bmc")
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text() == f'username: "ops"\npassword: "{SECRET}"\n'
    assert node.host.path("/etc/bmc.pem").read_text() == "PEM\n"
    told = json.dumps(report.result()) + json.dumps(report.records)
    assert SECRET not in told and "/etc/nodegate/credentials/bmc: (secret)" in told
    assert not node.settle(_profile(bmc=REDFISH), given).changed
    file.chmod(0o644)
    assert node.settle(_profile(bmc=REDFISH), given).changed and file.stat().st_mode & 0o777 == 0o600


def test_a_secret_that_nobody_gives_is_asked_for(node: Node) -> None:
    report = node.settle(_profile(bmc=REDFISH), Given("text", "hash", bmc_ca="PEM\n"))
    assert report.problems == [
        "/etc/nodegate/credentials/bmc (bmc.redfish.credentials_file): is (not there), must be there;"
        " set nodegate_bmc_password in the inventory (a secret in its vault), or put the file there"
    ]
    assert not node.host.path("/etc/nodegate/profile.yaml").exists(), "nothing is written then"


def test_secrets_of_engines_and_groups(node: Node) -> None:
    engine = node_profile()["engines"]["main"]
    group = {
        "rank": 0,
        "members": [{"node": "test-node", "address": "192.0.2.1"}, {"node": "b", "address": "192.0.2.2"}],
        "key_file": "credential:group",
    }
    launch = {**engine["launch"], "env_file": "credential:tokens"}
    profile = _profile(engines={"main": {**engine, "launch": launch, "group": group}})
    given = Given("text", "hash", group_keys={"main": "key"}, engine_env={"main": "TOKEN=1\n"})
    assert not node.settle(profile, given).problems
    assert node.host.path("/etc/nodegate/credentials/group").read_text() == "key\n"
    assert node.host.path("/etc/nodegate/engine-credentials/tokens").read_text() == "TOKEN=1\n"
    assert secret_file("/srv/key") == ("/srv/key", False)


def test_a_profile_that_the_node_refuses_changes_nothing(node: Node) -> None:
    node.settle(_profile(), Given("good\n", "hash"))
    report = node.settle(_profile(), Given("bad\n", "hash", agent_args="--x"))
    assert "unknown key" in report.problems[0] and "nothing was written" in report.problems[0]
    assert node.host.path("/etc/nodegate/profile.yaml").read_text() == "good\n"
    assert [path.name for path in node.host.path("/etc/nodegate").iterdir()] == ["profile.yaml"]


def test_the_agents_arguments(node: Node) -> None:
    path = node.host.path("/etc/nodegate/agent.env")
    node.settle(_profile(), Given("t", "hash", agent_args="--node /x"))
    assert path.read_text() == "NODEGATE_ARGS=--node /x\n"
    node.settle(_profile(), Given("t", "hash", agent_args=None))
    assert path.exists(), "unset leaves it alone"
    node.settle(_profile(), Given("t", "hash", agent_args=""))
    assert not path.exists()
    assert node_words("--profile /p --node /x --scenario=s") == ["--node", "/x", "--scenario", "s"]


def test_the_drop_in_for_processes_follows_the_profile(node: Node) -> None:
    path = node.host.path(agent.FOR_PROCESSES)
    processes = profile_from_dict(node_profile(supervision="process")).profile.model_dump(mode="json")
    node.settle(processes, Given("t", "hash"))
    assert path.exists()
    node.settle(_profile(), Given("t", "hash"))
    assert not path.exists()


def test_check_mode_writes_nothing_and_tells_the_same(node: Node) -> None:
    given = Given("text", "hash", agent_args="--x")
    told = node.settle(_profile(), given, check=True)
    assert told.changed and node.made == [] and not node.host.root.exists()
    assert told.drift == node.settle(_profile(), given).drift


def test_files_that_changed_after_the_start(tmp_path: Path) -> None:
    old, new, folder = tmp_path / "old", tmp_path / "new", tmp_path / "credentials"
    folder.mkdir()
    for path in (old, new, folder / "bmc"):
        path.write_text("x")
    began_s = time.time() - 100
    for path in (old, folder):
        os.utime(path, (began_s - 5, began_s - 5))
    assert newer_files(began_s, map(str, (old, new, folder, tmp_path / "none"))) == [
        str(new),
        f"{folder}/bmc",
    ]
    os.utime(new, (began_s + 9000, began_s + 9000))
    assert newer_files(began_s, [str(new)]) == [], "the clock was put back"


def test_running_engines() -> None:
    gates = [
        {"engine": "a", "process": {"pid": 7, "phase": "warm"}},
        {"engine": "b", "process": {"pid": 8, "phase": "stopping"}},
        {"engine": "c", "process": None},
    ]
    assert engine_pids({"gates": gates}) == {"a": 7} and engine_pids(None) == {}


class Systemd:
    """systemctl and the agent's /status of one service."""

    def __init__(self, profile_hash: str, refuses: str = "") -> None:
        """`refuses`: what the agent says to a reload."""
        self.active, self.enabled, self.hash, self.refuses = True, True, profile_hash, refuses
        self.wanted, self.verbs, self.told = "new", [], []

    def run(self, argv: list[str]) -> Output:
        if argv[0] != "systemctl":
            return Output(0, "the last line\n", "")
        verb = argv[1]
        if verb == "show":
            state = ("enabled" if self.enabled else "disabled", "active" if self.active else "inactive")
            return Output(0, f"UnitFileState={state[0]}\nActiveState={state[1]}\nMainPID=0\n", "")
        self.verbs.append(verb)
        if verb == "enable":
            self.enabled = True
        if verb in ("start", "restart"):
            self.active, self.hash, self.told = True, self.wanted, []
        if verb == "reload" and self.refuses:
            self.told = [self.refuses]
        elif verb == "reload":
            self.hash = self.wanted
        return Output(0, "", "")

    def status(self):
        status = {"live": True, "profile_hash": self.hash, "gates": [], "problems": self.told}
        return status if self.active else None


@pytest.mark.parametrize(
    ("active", "runs", "refuses", "wanted", "did"),
    [
        (False, "old", "", "new", ["start"]),
        (True, "old", "", "new", ["reload"]),
        (True, "old", "the new profile is refused: mode has changed", "new", ["reload", "restart"]),
        (True, "new", "", "new", []),
    ],
)
def test_no_more_is_done_than_is_due(tmp_path: Path, active, runs, refuses, wanted, did) -> None:
    systemd = Systemd(runs, refuses)
    systemd.active = active
    service = AgentService(FolderHost(tmp_path, systemd.run), _profile(), wanted, link=str(tmp_path / "no"))
    service.status = systemd.status
    service.bring()
    assert service.did == did and systemd.hash == "new"


def test_an_agent_that_does_not_get_well_is_told_with_its_last_line(tmp_path: Path) -> None:
    systemd = Systemd("old")
    systemd.active = False
    host = FolderHost(tmp_path, systemd.run)
    service = AgentService(host, _profile(), "new", link=str(tmp_path / "no"), health_s=0.01)
    service.status = lambda: None
    with pytest.raises(agent_service.HostError, match=r"does not run with this profile.*the last line"):
        service.bring()
    systemd.active, systemd.wanted = False, "other"
    service.status = systemd.status
    with pytest.raises(
        agent_service.HostError, match="runs with profile other, not with new: does NODEGATE_ARGS"
    ):
        service.bring()
