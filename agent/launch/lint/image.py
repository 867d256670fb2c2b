"""The flags of the engine inside an image: the scanner's own text is run there by podman, without network.

An image is named by digest, so what was found in it stays true for as long as the agent runs. Tried with a
stand-in for podman only, not with a real image.
"""

from __future__ import annotations

import json
from importlib import resources

from agent.engine_profile import Launch
from agent.errors import SourceUnavailable
from agent.launch.lint.installed import EngineSource, NotLintable, source_from
from agent.sources.command import Commands

#: Images are there already, but a container's mounts and cgroups take their time.
DEADLINE_S = 60.0
LONGEST_ANSWER_B = 4 << 20
_IMPORT = "from agent.launch.lint.scan_types import"
_FUTURE = "from __future__ import annotations\n"

_commands = Commands()
_known: dict[tuple[str, str], EngineSource] = {}


def scanner_text() -> str:
    """scan_types.py and scan.py as one program that needs nothing of nodegate."""
    package = resources.files("agent.launch.lint")
    types = package.joinpath("scan_types.py").read_text(encoding="utf-8")
    scan = package.joinpath("scan.py").read_text(encoding="utf-8").replace(_FUTURE, "")
    lines = [line for line in scan.splitlines() if not line.startswith(_IMPORT)]
    return types + "\n".join(lines)


def podman_python(image: str, options: list[str], script: str, words: list[str]) -> list[str]:
    """The command that runs a script with the image's Python, without network and without GPUs."""
    return [
        "podman", "run", "--rm", "--network=none", "--pull=never", "--read-only", "--cap-drop=all", *options,
        "--entrypoint=python3", image, "-c", script, *words,
    ]  # fmt: skip


def image_source(launch: Launch) -> EngineSource:
    """What the engine in the image of a launch takes. Raises NotLintable and SourceError."""
    container = launch.container
    if container is None:
        raise SourceUnavailable("launch.runtime podman needs launch.container with its image")
    name = launch.command[0].rsplit("/", 1)[-1]
    if not (name in ("vllm", "sglang") or name.startswith("python")):
        raise NotLintable(f"{name} in the image is neither vllm nor sglang")
    key = (container.image, launch.kind.value)
    if key not in _known:
        _known[key] = source_from(_scan(*key))
    return _known[key]


def _scan(image: str, engine: str) -> dict[str, object]:
    key = f"the scan of {image.partition('@')[0]}"
    output = _commands.run(
        podman_python(image, [], scanner_text(), [engine]),
        deadline_s=DEADLINE_S,
        key=key,
        limit_b=LONGEST_ANSWER_B,
    )
    if output.status != 0:
        words = (output.errors.strip().splitlines() or ["no message"])[-1][:160]
        raise SourceUnavailable(f"podman cannot look into {image.partition('@')[0]}: {words}")
    try:
        found = json.loads(output.text)
    except ValueError as cause:
        raise SourceUnavailable(f"{key} answers no JSON") from cause
    if not isinstance(found, dict) or "error" in found:
        words = found.get("error", "") if isinstance(found, dict) else ""
        raise SourceUnavailable(f"{key}: {words or 'its answer has an unknown form'}")
    return found
