"""settle(): what is read, written, read back and told, on settings in memory."""

import os
import subprocess
import time

import pytest
from nodegate_apply.files import file_setting, no_file_setting, own_sources
from nodegate_apply.host import Host, HostError
from nodegate_apply.outcome import begin
from nodegate_apply.setting import Setting, settle


class Box:
    """A setting's value; `keeps` is what it becomes when it is written."""

    def __init__(self, value, keeps=None, staged=None):
        self.value, self.keeps, self.staged, self.writes = value, keeps, staged, 0

    def setting(self, name, want, **more):
        def write():
            self.writes += 1
            if isinstance(self.keeps, Exception):
                raise self.keeps
            kept = self.keeps or want
            if self.staged is None:
                self.value = kept
            else:
                self.staged = kept

        def read():
            if isinstance(self.value, Exception):
                raise self.value
            return self.value

        staged = (lambda: self.staged) if self.staged is not None else None
        return Setting(name, f"host.{name}", want, read, write, staged, **more)


def test_what_is_right_is_left_alone():
    box = Box("1")
    report = settle([box.setting("a", "1")])
    assert not report.changed and not report.drift and not report.problems and box.writes == 0


def test_what_differs_is_written_and_read_back():
    box = Box("60")
    report = settle([box.setting("a", "1")])
    assert report.changed and box.value == "1" and not report.problems
    assert report.drift == [{"name": "a", "field": "host.a", "before": "60", "after": "1"}]
    assert report.result()["diff"] == {"before": "a: 60\n", "after": "a: 1\n"}


def test_check_mode_tells_the_same_and_writes_nothing():
    box = Box("60")
    report = settle([box.setting("a", "1")], check=True)
    assert report.changed and box.value == "60" and box.writes == 0
    assert report.drift == settle([box.setting("a", "1")]).drift


def test_a_device_that_keeps_another_value_is_a_failure():
    report = settle([Box("60", keeps="10").setting("a", "1")])
    assert report.problems == [
        "a (host.a): was set and reads 10 afterwards, not 1; find what else sets it, then run again"
    ]


def test_a_write_that_undoes_another_setting_is_seen():
    first, second = Box("1"), Box("x")
    one, two = first.setting("a", "1"), second.setting("b", "2")
    write_two = two.write

    def both():
        write_two()
        first.value = "0"

    two.write = both
    assert settle([one, two]).problems[0].startswith("a (host.a): was 1 and reads 0 afterwards")


def test_nothing_is_written_when_one_cannot_be_read():
    good, bad = Box("60"), Box(HostError("mlxconfig: is not installed"))
    report = settle([good.setting("a", "1"), bad.setting("b", "1")])
    assert report.problems == ["b (host.b): mlxconfig: is not installed"] and good.writes == 0


def test_nothing_is_written_when_one_cannot_be_changed():
    good, fixed = Box("60"), Box("0")
    setting = fixed.setting("b", "1")
    setting.write = None
    report = settle([good.setting("a", "1"), setting])
    assert report.problems[0].startswith("b (host.b): is 0, must be 1;") and good.writes == 0


def test_a_failed_write_says_what_was_written_before():
    good, bad, never = Box("0"), Box("0", keeps=HostError("refused")), Box("0")
    report = settle([good.setting("a", "1"), bad.setting("b", "1"), never.setting("c", "1")])
    assert report.problems == ["b (host.b): refused; written before: a"] and never.writes == 0


@pytest.mark.parametrize(
    ("current", "staged", "changed", "pending"),
    [("1", "1", False, 0), ("0", "1", False, 1), ("0", "0", True, 1), ("1", "0", True, 0)],
)
def test_three_states(current, staged, changed, pending):
    box = Box(current, staged=staged)
    report = settle([box.setting("a", "1")])
    assert (report.changed, len(report.pending)) == (changed, pending) and not report.problems
    again = settle([box.setting("a", "1")])
    assert not again.changed and len(again.pending) == pending, "a rerun before the reboot changes nothing"


def test_what_is_still_pending_after_the_reboot_is_a_failure():
    report = settle([Box("0", staged="1").setting("a", "1")], settled=True)
    assert report.problems[0].startswith("a (host.a): still 0 after the reboot, 1 is staged;")


def test_what_disturbs_is_written_only_on_a_node_that_is_free():
    def serves():
        raise HostError("this node serves (main)")

    box = Box("1")
    setting = box.setting("a", "2", disturbs=lambda: True)
    assert settle([setting], free=serves).problems == ["a (host.a): this node serves (main)"]
    assert box.writes == 0 and settle([setting], check=True, free=serves).changed
    setting.disturbs = lambda: False
    assert not settle([setting], free=serves).problems and box.value == "2"
    assert not settle([box.setting("a", "2", disturbs=lambda: True)], free=serves).problems


def test_a_group_is_run_once_after_its_settings():
    runs = []
    settings = [Box("0").setting("a", "1", after="reload"), Box("0").setting("b", "1", after="reload")]
    settle(settings, groups={"reload": lambda: runs.append("reload")})
    settle(settings, groups={"reload": lambda: runs.append("reload")})
    assert runs == ["reload"]


def test_a_secret_is_shown_nowhere():
    box = Box("old-secret")
    report = settle([box.setting("a", "new-secret", secret=True)])
    text = repr(report.result()) + repr(report.records)
    assert box.value == "new-secret" and "secret" in text and "old-secret" not in text and "new-" not in text


def test_files(tmp_path):
    host = Host()
    path = tmp_path / "etc/a.conf"
    setting = file_setting(host, str(path), "x = 1\n", "host.x", mode=0o600)
    assert settle([setting], check=True).changed and not path.exists()
    assert settle([setting]).changed and path.read_text() == "x = 1\n" and host.mode(str(path)) == 0o600
    assert not settle([setting]).changed
    path.chmod(0o644)
    drift = settle([setting]).drift
    assert drift[0]["before"].startswith("mode 0644") and host.mode(str(path)) == 0o600
    gone = no_file_setting(host, str(path), "host.x")
    assert settle([gone]).changed and not path.exists() and not settle([gone]).changed


def test_sys_root(tmp_path):
    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel/flag").write_text("0\n")
    host = Host(str(tmp_path))
    host.poke("/sys/kernel/flag", "1")
    assert host.read("/sys/kernel/flag") == "1" and host.names("/sys/kernel") == ["flag"]
    with pytest.raises(HostError, match="does not take"):
        host.poke("/sys/kernel/none", "1")


def test_commands():
    host = Host()
    assert host.must(["echo", "a b"]) == "a b\n"
    with pytest.raises(HostError, match="is not installed"):
        host.run(["no-such-program-here"])
    with pytest.raises(HostError, match="no answer within"):
        host.run(["sleep", "5"], timeout_s=0.1)
    with pytest.raises(HostError, match="cat: /no/such/file"):
        host.must(["cat", "/no/such/file"])


def test_a_command_that_cannot_be_killed_is_given_up(monkeypatch):
    """As one that waits for a lost GPU inside the kernel."""
    left, kill = [], subprocess.Popen.kill
    monkeypatch.setattr("nodegate_apply.host._DIE_S", 0.05)
    monkeypatch.setattr(subprocess.Popen, "kill", lambda self: left.append(self))
    began_s = time.monotonic()
    with pytest.raises(HostError, match="sleep 60: gave no answer"):
        Host().run(["sleep", "60"], timeout_s=0.05)
    assert time.monotonic() - began_s < 30
    kill(left[0])
    left[0].wait()


class Module:
    def fail_json(self, msg):
        raise SystemExit(msg)


def test_an_old_python_is_refused_and_a_narrow_umask_closes_nothing(tmp_path):
    with pytest.raises(SystemExit, match=r"is Python 3\.10, nodegate needs 3\.11.*_interpreter"):
        begin(Module(), (3, 10))
    before = os.umask(0o077)
    try:
        Host().write(str(tmp_path / "a/b/c.conf"), "x\n")
        begin(Module())
        assert os.umask(0o077) == 0o022
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b", "a/b/c.conf")] == [
        0o755, 0o755, 0o644,
    ]  # fmt: skip


def test_the_package_can_install_itself():
    assert "def settle(" in own_sources(["setting"])["setting.py"]
