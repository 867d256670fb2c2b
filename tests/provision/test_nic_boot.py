"""The unit at boot: waits for late cards, applies what is there, is loud about what is not."""

import json

import pytest
from fake_nic_host import NicHost, fabric
from nodegate_apply import boot
from nodegate_apply.boot_unit import boot_settings
from nodegate_apply.nic import batches
from nodegate_apply.nic_apply import MODULES


@pytest.fixture
def host(tmp_path):
    return NicHost(tmp_path)


class Clock:
    """Time passes only in sleep; `late` happens at its second."""

    def __init__(self, late=None, at_s=0.0):
        self.now_s, self.late, self.at_s, self.naps = 100.0, late, 100.0 + at_s, 0

    def __call__(self):
        return self.now_s

    def sleep(self, seconds):
        self.now_s += seconds
        self.naps += 1
        if self.late and self.now_s >= self.at_s:
            self.late()
            self.late = None


def settled(host, clock, check=False, deadline_s=60.0):
    part = {"fabric": fabric()}
    return boot.until_settled(lambda: batches(host, part), check, deadline_s, clock, clock.sleep)


def test_nothing_is_waited_for_when_all_is_well(host):
    host.pause["eth0"] = "on"
    clock = Clock()
    reports = settled(host, clock)
    assert clock.naps == 0 and host.pause["eth0"] == "off" and any(report.changed for report in reports)


def test_a_late_card_is_waited_for_while_the_others_are_set(host, tmp_path):
    (tmp_path / "class/infiniband/mlx5_1").rename(tmp_path / "late")
    host.pause |= {"eth0": "on", "eth1": "on"}
    seen = []

    def come():
        seen.append(host.pause["eth0"])
        (tmp_path / "late").rename(tmp_path / "class/infiniband/mlx5_1")

    clock = Clock(come, at_s=20)
    reports = settled(host, clock)
    assert clock.naps == 4 and seen == ["off"], "the first card had not to wait"
    assert not any(report.problems for report in reports) and host.pause["eth1"] == "off"


def test_after_the_deadline_each_problem_is_a_line(host, tmp_path, capsys):
    (tmp_path / "class/infiniband/mlx5_1").rename(tmp_path / "gone")
    host.pause["eth0"] = "on"
    reports = settled(host, Clock())
    assert boot._told(reports, check=False) == 1
    said = capsys.readouterr().err.splitlines()
    assert any(
        line.startswith("mlx5_1 NUM_OF_VFS (fabric.nic.config.NUM_OF_VFS): mlx5_1: there") for line in said
    )
    assert said[-1] == "1 settings were set and read back"


def test_a_look_writes_nothing_and_tells_what_differs(host, capsys):
    host.pause["eth0"] = "on"
    reports = settled(host, Clock(), check=True, deadline_s=0)
    assert boot._told(reports, check=True) == 1 and host.pause["eth0"] == "on"
    assert "global pause (fabric.roce.priority): is 'rx on" in capsys.readouterr().err


def run(tmp_path, document, *more, name="nic"):
    path = tmp_path / "nic.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return boot.main([name, "--settings", str(path), *more])


def test_from_the_file_that_the_role_leaves(host, tmp_path, monkeypatch, capsys):
    part = {"fabric": fabric()}
    settings = boot_settings(host, "nic", part, MODULES)
    text = next(s.want for s in settings if s.name.endswith("/nic.json"))
    assert json.loads(text)["part"] == part and json.loads(text)["sys_root"] == host.sys_root
    host.units["lldpad.service"] = "active"
    monkeypatch.setattr(boot, "Host", lambda _root: host)
    assert run(tmp_path, text, "--check", "--record", "/run/nodegate-apply/nic.json") == 1
    assert capsys.readouterr().err.startswith("lldpad (fabric.roce.priority): is active, must be inactive;")
    record = json.loads(host.written["/run/nodegate-apply/nic.json"])
    assert {s["state"] for s in record["settings"]} == {"ok", "drifted"} and len(record["problems"]) == 1


@pytest.mark.parametrize(
    ("document", "line"),
    [
        ("{", "is no JSON"),
        ("[]", "is not what the role nic writes"),
        ({"name": "gpu", "part": {}, "sys_root": "/sys", "deadline_s": 1}, "holds settings of gpu, not nic"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path, capsys, document, line):
    assert run(tmp_path, document) == 1
    said = capsys.readouterr().err
    assert line in said and said.count("\n") == 1
