"""`nodegate fleet bringup` with real Ansible on this machine: progress, summary, secrets, Ctrl-C, lock."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_words import NODEGATE, complaint, in_process
from repo_files import ROOT

HOSTS = """
all:
  vars: {ansible_connection: local, ansible_python_interpreter: "PYTHON"}
  hosts: {a: {}, b: {}}
  children:
    loadbalancers: {hosts: {lb: {}}}
""".replace("PYTHON", sys.executable)
PLAY = """
- hosts: "{{ nodegate_hosts }}"
  gather_facts: false
  tasks:
    - name: PHASE | first
      ansible.builtin.raw: "true"
    - name: PHASE | second
      ansible.builtin.raw: "exec -a nodegate-fleet-nap sleep {{ nap | default(0) }}"
      args: {executable: /bin/bash}
    - name: PHASE | third
      block:
        - name: PHASE | third, try
          ansible.builtin.fail: {msg: "said {{ nodegate_bmc_password | default('nothing') }}"}
          when: inventory_hostname == bad | default('')
      rescue:
        - name: Stop this host
          ansible.builtin.fail: {msg: "{{ ansible_failed_result.msg }}: look at the BMC, then run again"}
"""
SECRET = "pa55-of-the-bmc'x"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "hosts.yml").write_text(HOSTS)
    (tmp_path / "play.yml").write_text(PLAY)
    return folder


def words(site: Path, *more: str) -> list[str]:
    play, kept = site.parent / "play.yml", site.parent / "kept"
    return ["fleet", "bringup", "-i", str(site), "--playbook", str(play), "--artifacts", str(kept), *more]


def run(site: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(NODEGATE), *words(site, *more)], capture_output=True, text=True, timeout=100, cwd=site.parent
    )


def kept(site: Path) -> Path:
    (folder,) = (site.parent / "kept").iterdir()
    return folder


def vault(site: Path) -> Path:
    """An encrypted file with the BMC's password in the site; the key."""
    from ansible.parsing.vault import VaultLib, VaultSecret

    key = site.parent / "vault.key"
    key.write_text("throw-away")
    key.chmod(0o600)
    target = site / "group_vars" / "all" / "vault.yml"
    target.parent.mkdir(parents=True)
    text = json.dumps({"nodegate_bmc_username": "operator", "nodegate_bmc_password": SECRET})
    target.write_bytes(VaultLib([("default", VaultSecret(b"throw-away"))]).encrypt(text))
    return key


@pytest.mark.root
def test_a_host_that_fails_is_told_and_no_secret_is_kept(site: Path) -> None:
    """The play is careless: it repeats the password in an error. Nothing that nodegate writes has it."""
    done = run(site, "--vault-password-file", str(vault(site)), "-e", "bad=b")
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"2 hosts; kept in {kept(site)}"
    assert [line for line in lines if line.startswith("a: first: 1 changed (")]
    assert "b: third: FAILED: said (secret): look at the BMC, then run again" in lines
    head = next(i for i, line in enumerate(lines) if line.startswith("host "))
    rows = [line.split(None, 5) for line in lines[head + 1 :]]
    assert rows[0][:4] == ["a", "ok", "third", "2"]
    assert rows[1][:4] == ["b", "failed", "third", "2"]
    assert rows[1][5] == "said (secret): look at the BMC, then run again"
    files = sorted(kept(site).iterdir())
    assert [file.name for file in files] == ["events.jsonl", "output.log", "summary.json"]
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)
    everything = done.stdout + done.stderr + "".join(file.read_text() for file in files)
    assert SECRET not in everything and SECRET.replace("'", "''") not in everything
    assert "said (secret)" in (kept(site) / "output.log").read_text()
    summary = json.loads((kept(site) / "summary.json").read_text())
    assert summary["exit_code"] == 1
    assert [(row["host"], row["result"], row["changed"]) for row in summary["hosts"]] == [
        ("a", "ok", 2),
        ("b", "failed", 2),
    ]
    events = [json.loads(line) for line in (kept(site) / "events.jsonl").read_text().splitlines()]
    assert {"runner_on_ok", "runner_on_failed", "playbook_on_stats"} <= {event["event"] for event in events}


def _alive(words_of_it: str) -> list[str]:
    """Processes whose command line holds these words."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if words_of_it in line and int(entry.name) != os.getpid():
                found.append(f"{entry.name} {line}")
    return found


def _wait(what, within_s: float = 60.0):
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if result := what():
            return result
        time.sleep(0.05)
    raise AssertionError(f"nothing within {within_s} s")


@pytest.mark.root
def test_ctrl_c_ends_all_of_it_and_a_second_run_is_refused_meanwhile(site: Path) -> None:
    key = vault(site)
    nap = f"{300 + os.getpid() / 1e7:.7f}"
    child = subprocess.Popen(
        [str(NODEGATE), *words(site, "-e", f"nap={nap}", "--vault-password-file", str(key))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=site.parent,
    )
    try:
        _wait(lambda: len(_alive(f"nodegate-fleet-nap {nap}")) >= 2)
        # The second run, with the folder named by a file in it.
        file = site / "hosts.yml"
        second = run(site, "-i", str(file))
        assert "another fleet run on this inventory is going on; wait" in complaint(second)
        listed = _alive(str(site))
        assert listed and not [line for line in listed if SECRET in line]
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait(10)
    assert child.returncode == 130, err
    assert err == ""
    rows = [line.split(None, 5) for line in out.splitlines() if line.startswith(("a ", "b "))]
    assert [(row[0], row[1], row[2]) for row in rows] == [
        ("a", "failed", "second"),
        ("b", "failed", "second"),
    ]
    assert all(row[5] == "stopped by the operator; run again to go on" for row in rows)
    assert _alive(f"nodegate-fleet-nap {nap}") == [] and _alive(str(site / "")) == []
    assert json.loads((kept(site) / "summary.json").read_text())["exit_code"] == 130


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--limit", "zebra"], "no host of it matches --limit zebra"),
        (["-i", "nowhere"], "there is no inventory here; name a folder"),
        (["--playbook", "siet"], "there is no such playbook; shipped: "),
        (["--vault-password-file", "nowhere"], "there is no such key file"),
    ],
)
def test_what_cannot_run_is_one_line(
    site: Path,
    more: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANSIBLE_CONFIG", str(ROOT / "ansible.cfg"))
    assert told.partition(", ")[0] in complaint(in_process(capsys, *words(site, *more)))


@pytest.mark.root
def test_a_playbook_that_ansible_refuses_is_one_line(site: Path) -> None:
    (site.parent / "play.yml").write_text("- hosts: all\n  taks: []\n")
    done = run(site)
    assert "'taks' is not a valid attribute for a Play" in done.stderr
    assert done.returncode == 3 and done.stderr.count("\n") == 1
    assert "run did not begin" in done.stdout


def test_without_the_extra_it_says_what_to_install(
    site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ansible_runner", None)
    assert "pip install 'nodegate[provision]'" in complaint(in_process(capsys, *words(site)))


def test_an_inventory_that_cannot_be_read_says_why(
    site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANSIBLE_CONFIG", str(ROOT / "ansible.cfg"))
    (site / "hosts.yml").write_text("all: {hosts: [a]}\n")
    assert "it has no hosts (" in complaint(in_process(capsys, *words(site)))
