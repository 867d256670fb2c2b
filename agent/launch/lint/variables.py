"""The environment of a launch: variables that the engine does not know, GPUs that it cannot find. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from agent.launch.lint.installed import EngineSource
from agent.node_profile import GPU_UUID
from agent.sources.launch_reading import Problem, Severity

_PREFIXES = {"vllm": ("VLLM_",), "sglang": ("SGLANG_", "SGL_")}
_FULL_UUID = re.compile(GPU_UUID)
#: From this version on vLLM takes UUIDs in CUDA_VISIBLE_DEVICES; before it fails on int().
UUIDS_SINCE = (0, 24)


def unknown_variables(
    source: EngineSource, names: Iterable[str], patched: Iterable[str] = ()
) -> list[Problem]:
    """Variables that look like the engine's and are none of its: it ignores them without a word."""
    if not source.env:
        return []
    known = source.env | set(patched)
    problems = []
    for name in sorted(set(names) - known):
        if not name.startswith(_PREFIXES[source.engine]):
            continue
        near = difflib.get_close_matches(name, source.env, 1, 0.85)
        remedy = f"did you mean {near[0]}?" if near else "remove it, or declare it in launch.patched.env"
        text = f"{source.title} reads no such variable"
        problems.append(Problem(Severity.WARNING, name, text, remedy))
    return problems


def gpu_problems(source: EngineSource, env: Mapping[str, str]) -> list[Problem]:
    """GPUs by UUID: only whole ones, and only where the engine reads them."""
    name = "CUDA_VISIBLE_DEVICES"
    listed = [part.strip() for part in env.get(name, "").split(",") if part.strip()]
    uuids = [part for part in listed if not part.isdecimal()]
    short = [part for part in uuids if not _FULL_UUID.match(part) and not part.startswith("MIG-")]
    problems = []
    if short:
        text = f"{short[0][:50]} is no full GPU UUID: the engine ends with NVMLError_NotFound"
        problems.append(
            Problem(Severity.ERROR, name, text, "write GPU- and all 36 characters (nvidia-smi -L)")
        )
    if uuids and source.engine == "vllm" and () < source.release[:2] < UUIDS_SINCE:
        text = (
            f"{source.title} cannot read GPU UUIDs: it takes them for numbers and says the model is at fault"
        )
        problems.append(Problem(Severity.ERROR, name, text, "install vllm 0.24 or newer"))
    return problems
