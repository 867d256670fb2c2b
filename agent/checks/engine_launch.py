"""engine.memory_plan and engine.checkpoint: can the weights on disk be launched here, and are they whole?

Both judge reports that are made in the background from safetensors headers, index and config.json
(huggingface/safetensors), NVML's memory and /proc/meminfo. A bad checkpoint is never launched again: an error
keeps the gate from opening; a gate that serves is left alone, for its weights are loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from agent.checks import advice
from agent.checks.launch_reports import judge_launches, judge_report, not_managed
from agent.checks.registry import Limits, check
from agent.launch.checkpoint.where import weights_folder
from agent.model import Basis, Finding, Phase, ServingClass, Verdict
from agent.node_profile import Engine, NodeProfile
from agent.sources import Sources
from agent.sources.launch_reading import LaunchReport

_MEMORY = advice.person(
    "Run nodegate launch plan ENGINE: it shows the arithmetic; change the launch, or free the memory."
)
_CHECKPOINT = advice.person(
    "Copy what the summary names from where the checkpoint comes from; nodegate launch plan ENGINE lists all."
)
_SUMS = advice.person("Wait until the sums are worked out, or leave launch.checkpoint.checksums out.")


def _no_weights(profile: NodeProfile) -> str | None:
    """Skip rule: no engine that nodegate launches has weights on this host's disk."""
    reason = not_managed(profile)
    if reason is not None or any(_why_not(engine) is None for engine in profile.engines.values()):
        return reason
    return "no engine with GPUs names a folder of weights"


def _why_not(engine: Engine) -> str | None:
    """Why one engine is left out."""
    if not engine.gpus:
        return "the engine has no GPUs"
    if weights_folder(engine.launch) is None:
        return "the engine names no folder of weights (launch.checkpoint.path, or a model with its full path)"
    return None


@check(
    "engine.memory_plan",
    title="Weights fit the devices",
    source="safetensors headers, config.json; nvmlDeviceGetMemoryInfo; /proc/meminfo",
    serving_class=ServingClass.INFO,
    phases=(Phase.ADMISSION, Phase.MAINTENANCE),
    period_s=30.0,
    fail_for_s=30.0,
    deadline_s=10.0,
    skip=_no_weights,
    action=_MEMORY,
    if_unreadable="Set launch.checkpoint.path to the folder of the weights, and let the agent read it.",
)
def engine_memory_plan(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Weights, offload and host memory must not make the launch impossible."""

    def judge(subject: str, report: LaunchReport) -> Finding:
        basis = Basis.device("memory of the GPUs and the host")
        return judge_report(subject, report, basis, "problems", _MEMORY)

    yield from _judge(sources, profile, sources.launches.memory, judge)


@check(
    "engine.checkpoint",
    title="Weights on disk are whole",
    source="model.safetensors.index.json, safetensors headers, config.json; sha256 sums",
    serving_class=ServingClass.INFO,
    phases=(Phase.ADMISSION, Phase.MAINTENANCE),
    period_s=30.0,
    fail_for_s=30.0,
    deadline_s=10.0,
    skip=_no_weights,
    action=_CHECKPOINT,
    if_unreadable="Set launch.checkpoint.path to the folder of the weights, and let the agent read it.",
)
def engine_checkpoint(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Every file that this node needs must be there, as long as its header says, and as index and sums say.

    While sums are still being worked out it is WARN: sizes are proven, which does not keep the gate closed.
    """

    def judge(subject: str, report: LaunchReport) -> Finding:
        basis = Basis.device("index and headers of the checkpoint")
        found = judge_report(subject, report, basis, "problems", _CHECKPOINT)
        if found.verdict is Verdict.PASS and report.pending:
            return replace(found, verdict=Verdict.WARN, action=_SUMS)
        return found

    yield from _judge(sources, profile, sources.launches.checkpoint, judge)


def _judge(
    sources: Sources,
    profile: NodeProfile,
    look: Callable[[str], LaunchReport],
    judge: Callable[[str, LaunchReport], Finding],
) -> Iterator[Finding]:
    """Engines without weights on this host are SKIP."""
    with_weights = {}
    for name, engine in profile.engines.items():
        reason = _why_not(engine)
        if reason is None:
            with_weights[name] = engine
        else:
            yield Finding(f"engine:{name}", Verdict.SKIP, reason)
    yield from judge_launches(sources, profile.model_copy(update={"engines": with_weights}), look, judge)
