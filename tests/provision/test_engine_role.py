"""Role engine: environments as pinned, images by digest, model folders readable."""

from pathlib import Path

import pytest
from node_files import FolderHost
from nodegate_apply import engine
from nodegate_apply.engine import Environment, installed, wanted_engines
from nodegate_apply.host import Host, HostError, Output
from nodegate_apply.setting import settle

from agent.profile_loader import ConfigError, profile_from_dict

DIGEST = "sha256:" + "a" * 64
IMAGE = f"registry.example/vllm@{DIGEST}"
BASE = {"gpus": {"count": 0}, "nvlink": {"links_per_gpu": 0}, "fabric": {"kind": "none"}, "mode": "manage"}


def _profile(**launch):
    engines = {"main": {"gpus": [], "port": 8000, "launch": launch}}
    return profile_from_dict({**BASE, "engines": engines}).profile.model_dump(mode="json")


class Pip(Host):
    """`python -m venv` and pip that install what the test has."""

    def __init__(self, version: str) -> None:
        """`version` of vllm that pip gets."""
        super().__init__()
        self.version, self.ran = version, []

    def run(self, argv, timeout_s=30.0, stdin=""):
        self.ran.append(list(argv))
        if "venv" in argv:
            Path(argv[-1]).mkdir(parents=True)
        elif self.version == "none":
            return Output(1, "", "ERROR: No matching distribution found for vllm==0.32.0")
        else:
            site = Path(argv[0]).parents[1] / "lib/python3.12/site-packages"
            (site / f"vllm-{self.version}.dist-info").mkdir(parents=True)
        return Output(0, "", "")


def _environment(host: Host, path: Path, source=None) -> Environment:
    return Environment(host, "main", {"path": str(path), "packages": {"vllm": "0.32.0"}}, source or {})


def test_an_environment_is_made_beside_the_old_one(tmp_path: Path) -> None:
    path, old, new = tmp_path / "vllm", Pip("0.31.0"), Pip("0.32.0")
    first = Environment(old, "main", {"path": str(path), "packages": {"vllm": "0.31.0"}}, {})
    assert settle([first.setting()]).changed and installed(path) == {"vllm": "0.31.0"}
    setting = _environment(new, path).setting()
    told = settle([setting], check=True)
    assert told.drift == [
        {
            "name": str(path),
            "field": "engines.main.launch.environment",
            "before": "vllm 0.31.0",
            "after": "vllm 0.32.0",
        }
    ]
    assert settle([setting]).drift == told.drift and installed(path) == {"vllm": "0.32.0"}
    assert not settle([setting]).changed
    assert len(list((tmp_path / "vllm.d").iterdir())) == 2, "what a running engine was started from stays"


@pytest.mark.parametrize(
    ("gets", "says"), [("none", "No matching distribution"), ("0.33.0", "not what is pinned")]
)
def test_a_failed_installation_leaves_the_old_one(tmp_path: Path, gets: str, says: str) -> None:
    path = tmp_path / "vllm"
    _environment(Pip("0.32.0"), path).write()
    bad = Environment(Pip(gets), "main", {"path": str(path), "packages": {"vllm": "0.34.0"}}, {})
    report = settle([bad.setting()])
    assert says in report.problems[0] and "is as it was" in report.problems[0]
    assert installed(path) == {"vllm": "0.32.0"} and len(list((tmp_path / "vllm.d").iterdir())) == 1


def test_where_packages_come_from(tmp_path: Path) -> None:
    pins = tmp_path / "pins.txt"
    pins.write_text("vllm==0.32.0 --hash=sha256:0\n")
    host = Pip("0.32.0")
    _environment(host, tmp_path / "vllm", {"requirements": str(pins), "wheelhouse": "/mnt/wheels"}).write()
    words = host.ran[1]
    assert words[words.index("--no-index") :][:3] == ["--no-index", "--find-links", "/mnt/wheels"]
    assert words[-3:] == ["--require-hashes", "-r", str(pins)]


def test_a_folder_that_was_not_made_here_stays(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    with pytest.raises(HostError, match="move it away"):
        _environment(Pip("0.32.0"), tmp_path / "vllm").write()


def test_model_folder_and_program(tmp_path: Path) -> None:
    model = tmp_path / "model"
    profile = _profile(command=["/opt/vllm/bin/vllm"], model=str(model))
    problems = settle(wanted_engines(Host(), profile, {})).problems
    assert "engines.main.launch.command): is (not there)" in problems[0]
    assert f"{model} (engines.main.launch.checkpoint.path): is (not there)" in problems[1]
    model.mkdir()
    here = _profile(command=["/bin/sh"], model=str(model))
    assert "is empty or no folder" in settle(wanted_engines(Host(), here, {})).problems[0]
    (model / "config.json").write_text("{}")
    model.chmod(0o755)
    assert not settle(wanted_engines(Host(), here, {})).problems
    model.chmod(0o700)
    assert "closed to the engine" in settle(wanted_engines(Host(), here, {})).problems[0]


def test_an_image_is_pulled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = []

    def podman(argv: list[str]) -> Output:
        assert argv[:5] == ["runuser", "-u", "nodegate", "--", "podman"]
        if argv[5] == "image":
            text = f'[{{"Digest": "{DIGEST}", "RepoDigests": []}}]'
            return Output(0, text, "") if there else Output(125, "", "no such image")
        there.append(argv[5:])
        return Output(0, "", "")

    monkeypatch.setattr(engine, "_user_is_there", lambda: True)
    setting = engine._image(FolderHost(tmp_path, podman), "main", IMAGE, None)
    assert settle([setting]).changed and there == [["pull", "--quiet", IMAGE]]
    assert not settle([setting]).changed
    there.clear()
    settle([engine._image(FolderHost(tmp_path, podman), "main", IMAGE, "/mnt/vllm.tar")])
    assert there == [["load", "--quiet", "--input", "/mnt/vllm.tar"]]


@pytest.mark.parametrize(
    ("launch", "says"),
    [
        (
            {"command": ["/opt/other/bin/vllm", "serve"]},
            "is not started from there.*; write /opt/vllm/bin/vllm",
        ),
        ({"runtime": "podman", "container": {"image": IMAGE}}, "launch.runtime is podman"),
    ],
)
def test_a_profile_must_not_contradict_itself(launch, says: str) -> None:
    environment = {"path": "/opt/vllm", "packages": {"vllm": "0.32.0"}}
    with pytest.raises(ConfigError, match=says):
        _profile(environment=environment, **launch)
