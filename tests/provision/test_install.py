"""A release of nodegate: the wheels that a node needs, the archive, the folder on the node and its link."""

import hashlib
import importlib.util
import platform
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from nodegate_apply.host import Host, HostError
from nodegate_apply.install import Install, facts
from nodegate_apply.setting import settle
from small_wheels import make_nodegate, make_wheel

from agent.errors import ConfigError
from agent.provision.install_parcel import parcel, unpack
from agent.provision.install_release import Target, choose, file_sha256, release

HERE = Target.from_facts(facts())
DEBIAN = Target("3.11", "x86_64", "2.36", "a70d0d0a")


def _house(folder: Path, *names: str) -> Path:
    for name in names:
        project, version, tag = name.split(" ")
        make_wheel(folder, project, version, {f"{project.replace('-', '_')}.py": "X = 1\n"}, tag)
    return folder


def _pins(folder: Path, *wheels: Path) -> Path:
    lines = [
        f"{wheel.name.split('-')[0]}=={wheel.name.split('-')[1]} \\\n    --hash=sha256:{file_sha256(wheel)}"
        for wheel in wheels
    ]
    path = folder / "requirements.txt"
    path.write_text("# made by hand\n" + "\n".join(lines) + "\n")
    return path


def test_other_contents_are_another_release(tmp_path: Path) -> None:
    wheel, house = make_nodegate(tmp_path), _house(tmp_path / "house", "one 1.0 py3-none-any")
    first = release(wheel, house, None)
    assert first.name.startswith("1.0.0-") and first == release(wheel, house, None)
    _house(house, "two 1.0 py3-none-any")
    assert release(wheel, house, None).name != first.name


def test_the_best_wheel_for_the_nodes_python_is_chosen(tmp_path: Path) -> None:
    house = _house(
        tmp_path / "house",
        "fast 1.0 cp311-cp311-manylinux_2_17_x86_64",
        "fast 1.0 cp313-cp313-manylinux_2_17_x86_64",
        "fast 1.0 cp311-cp311-manylinux_2_17_aarch64",
        "fast 1.0 py3-none-any",
        "plain 2.0 py3-none-any",
    )
    chosen = choose(release(make_nodegate(tmp_path), house, None), DEBIAN)
    assert sorted(path.name for path in chosen) == [
        "fast-1.0-cp311-cp311-manylinux_2_17_x86_64.whl",
        "plain-2.0-py3-none-any.whl",
    ]


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["fast 1.0 cp313-cp313-manylinux_2_17_x86_64"], "no wheel of fast for Python 3.11 on x86_64"),
        (["fast 1.0 cp311-cp311-manylinux_2_38_x86_64"], "no wheel of fast"),
        (["one 1.0 py3-none-any", "one 2.0 py3-none-any"], "has one 1.0 and 2.0"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, names: list[str], says: str) -> None:
    what = release(make_nodegate(tmp_path), _house(tmp_path / "house", *names), None)
    with pytest.raises(ConfigError, match=says):
        choose(what, DEBIAN)


def test_pins_are_held_to(tmp_path: Path) -> None:
    house = _house(tmp_path / "house", "one 1.0 py3-none-any", "stranger 9.0 py3-none-any")
    wheel, one = make_nodegate(tmp_path), house / "one-1.0-py3-none-any.whl"
    pins = _pins(tmp_path, one)
    assert choose(release(wheel, house, pins), DEBIAN) == [one]
    make_wheel(house, "one", "1.0", {"one.py": "X = 'another'\n"})
    with pytest.raises(ConfigError, match="has a hash that nodegate_requirements does not list"):
        choose(release(wheel, house, pins), DEBIAN)
    one.unlink()
    with pytest.raises(ConfigError, match="no wheel of one"):
        choose(release(wheel, house, pins), DEBIAN)


def test_requirements_without_hashes_are_refused(tmp_path: Path) -> None:
    pins = tmp_path / "requirements.txt"
    pins.write_text("\none==1.0\n")
    with pytest.raises(ConfigError, match=r"requirements.txt:2: nodegate_requirements: one is not pinned"):
        release(make_nodegate(tmp_path), None, pins)
    with pytest.raises(ConfigError, match="nodegate_wheel alone is not enough"):
        release(make_nodegate(tmp_path), None, None)


def test_a_damaged_wheel_is_refused(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "one", "1.0", {"one.py": "X = 1\n"})
    with zipfile.ZipFile(wheel) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    for name, data, says in (
        ("one.py", b"X = 2\n", "one.py is not what its RECORD says"),
        ("../one.py", b"", "holds a file outside of it"),
    ):
        with zipfile.ZipFile(wheel, "w") as archive:
            for key, text in {**parts, name: data}.items():
                archive.writestr(key, text)
        with pytest.raises(ConfigError, match=says):
            unpack(wheel, tmp_path / "tree", "/opt/x")


def test_an_archive_is_made_once(tmp_path: Path) -> None:
    what = release(make_nodegate(tmp_path), _house(tmp_path / "house", "one 1.0 py3-none-any"), None)
    path = parcel(what, HERE, "/opt/x", tmp_path / "cache")
    made = path.stat().st_mtime_ns
    assert parcel(what, HERE, "/opt/x", tmp_path / "cache") == path and path.stat().st_mtime_ns == made
    with tarfile.open(path) as archive:
        names = archive.getnames()
        assert {"bin/nodegate", "lib/one.py", "lib/agent/cli.py"} <= set(names)
        assert any(name.endswith(f"cli.{sys.implementation.cache_tag}.pyc") for name in names)
        script = archive.extractfile("bin/nodegate")
        assert script is not None and script.read().startswith(b"#!/opt/x/bin/python\n")


class Node:
    """A node's folders below a test's own, and releases brought to it."""

    def __init__(self, folder: Path) -> None:
        """Nothing is installed."""
        self.folder = folder
        self.link = folder / "opt/nodegate"
        self.link.parent.mkdir()

    def install(self, version: str, says: str | None = None, *, check: bool = False):
        """One run, as the module does it."""
        wheel = make_nodegate(self.folder / f"wheels-{version}", version, says)
        what = release(wheel, _house(self.folder / "house", "one 1.0 py3-none-any"), None)
        install = Install(Host(), what.name, str(self.link), f"{self.link}.d")
        archive = parcel(what, HERE, str(install.home), self.folder / "cache")
        setting = install.setting(str(archive), file_sha256(archive))
        return install, settle([setting], check=check)

    def version(self) -> str:
        """What the link's nodegate says."""
        return subprocess.run(
            [self.link / "bin/nodegate", "--version"], capture_output=True, text=True, check=True, timeout=30
        ).stdout.strip()

    def folders(self) -> list[str]:
        """Releases that are there."""
        return sorted(path.name.split("-")[0] for path in Path(f"{self.link}.d").iterdir() if path.is_dir())


def test_install_upgrade_and_back(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert node.install("1.0.0", check=True)[1].changed and not node.link.exists()
    _, report = node.install("1.0.0")
    assert report.changed and not report.problems and node.version() == "nodegate 1.0.0"
    unit = node.link / "share/host/etc/systemd/system/nodegate.service"
    assert f"ExecStart={node.link}\n" in unit.read_text(), "units name the link"
    assert not node.install("1.0.0")[1].changed
    node.install("2.0.0")
    newest, _ = node.install("3.0.0")
    assert node.version() == "nodegate 3.0.0" and node.folders() == ["2.0.0", "3.0.0"]
    assert newest.back(False).startswith("2.0.0-") and node.version() == "nodegate 2.0.0"


def test_a_release_that_a_process_runs_from_stays(tmp_path: Path) -> None:
    node = Node(tmp_path)
    install, _ = node.install("1.0.0")
    with subprocess.Popen([install.home / "bin/python", "-c", "input()"], stdin=subprocess.PIPE) as runs:
        node.install("2.0.0")
        node.install("3.0.0")
        assert node.folders() == ["1.0.0", "2.0.0", "3.0.0"]
        runs.kill()


def test_a_failed_install_leaves_the_old_one(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.install("1.0.0")
    _, report = node.install("2.0.0", says="2.0.1")
    (problem,) = report.problems
    assert "says that it is 2.0.1" in problem and "is as it was" in problem and "\n" not in problem
    assert node.version() == "nodegate 1.0.0" and node.folders() == ["1.0.0"]


def test_an_unfinished_folder_is_made_anew(tmp_path: Path) -> None:
    node = Node(tmp_path)
    install, _ = node.install("1.0.0")
    (install.home / ".nodegate-release.json").unlink()
    assert "not whole" in (install.used() or "")
    assert node.install("1.0.0")[1].changed and node.version() == "nodegate 1.0.0"


def test_what_was_not_made_here_is_not_replaced(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.link.mkdir()
    _, report = node.install("1.0.0")
    assert "is there and not a link; move it away" in report.problems[0]


def test_an_archive_that_came_damaged_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(b"half")
    install = Install(Host(), "1.0.0-x", str(tmp_path / "nodegate"), str(tmp_path / "nodegate.d"))
    with pytest.raises(HostError, match="SHA-256 differs"):
        install.make(str(archive), "0" * 64)
    with tarfile.open(archive, "w") as tar:
        tar.addfile(tarfile.TarInfo("../escape"))
    with pytest.raises(HostError, match=r"holds what it must not: \.\./escape"):
        install.make(str(archive), hashlib.sha256(archive.read_bytes()).hexdigest())
    assert not list((tmp_path / "nodegate.d").iterdir())


def test_facts_are_this_pythons() -> None:
    assert HERE.magic == importlib.util.MAGIC_NUMBER.hex() and HERE.machine == platform.machine()
