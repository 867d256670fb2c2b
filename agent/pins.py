"""What a machine's GPUs and topology are beside what the profile has pinned; the text of a layer with them.

A slot is a place in PCI bus order: the GPU found in slot 3 is the fourth that NVML lists, whatever is pinned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agent.checks.pci import normal_address
from agent.errors import ParseError, SourceError
from agent.node_parts import ExpectedTopology
from agent.node_profile import GpuPin, NodeProfile
from agent.profile_render import flow
from agent.sources import Sources
from agent.sources.gpu_reading import GpuIdentity
from agent.topo.expected import judge
from agent.topo.facts import record
from agent.topo.snippet import snippet

_HEAD = """\
# Which GPU is in which slot of {}, as it was when this was recorded by `nodegate pins`.
# From then on it is what the node is compared with; another GPU is accepted by nobody but an operator.
"""


@dataclass(frozen=True)
class Seen:
    """One look. `faults`: why nothing of it can be recorded; `topology_problems`: what is not as recorded."""

    pinned: dict[int, GpuPin]
    found: dict[int, GpuPin]
    topology: ExpectedTopology | None
    recorded: ExpectedTopology
    topology_problems: tuple[str, ...]
    faults: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As `pins show --json` has it."""
        return {
            "pinned": _pins_json(self.pinned),
            "found": _pins_json(self.found),
            "topology": self.topology.model_dump(mode="json") if self.topology else None,
            "recorded_topology": self.recorded.model_dump(mode="json")
            if is_recorded(self.recorded)
            else None,
            "topology_problems": list(self.topology_problems),
            "faults": list(self.faults),
        }


def look(sources: Sources, profile: NodeProfile) -> Seen:
    """Read the machine."""
    faults: list[str] = []
    found = _found(sources, profile, faults)
    topology = None
    if not faults:
        bare = profile.model_copy(update={"gpus": profile.gpus.model_copy(update={"pins": {}})})
        try:
            topology = record(sources, bare)
        except SourceError as cause:
            faults.append(f"its topology cannot be read: {cause}")
    problems = [] if faults else list(_topology_problems(sources, profile))
    recorded = profile.topology.expected
    return Seen(dict(profile.gpus.pins), found, topology, recorded, tuple(problems), tuple(faults))


def _found(sources: Sources, profile: NodeProfile, faults: list[str]) -> dict[int, GpuPin]:
    try:
        inventory = list(sources.nvml.inventory())
    except SourceError as cause:
        faults.append(f"NVML cannot list the GPUs: {cause}")
        return {}
    if len(inventory) != profile.gpus.count:
        faults.append(f"NVML lists {len(inventory)} GPUs, the profile has {profile.gpus.count}")
    found = {}
    for slot, gpu in enumerate(inventory):
        pin = _pin(gpu)
        if isinstance(pin, str):
            faults.append(f"slot {slot}: {pin}")
        else:
            found[slot] = pin
    uuids = [pin.uuid for pin in found.values()]
    if len(set(uuids)) != len(uuids):
        faults.append("NVML gives two GPUs the same UUID")
    return found


def _pin(gpu: GpuIdentity) -> GpuPin | str:
    """What pins a GPU, or why it cannot be pinned."""
    if gpu.error is not None:
        return f"NVML says {gpu.error}"
    if not gpu.uuid or not gpu.pci_bus_id:
        return "NVML gives no UUID or no PCI address"
    try:
        return GpuPin(uuid=gpu.uuid, serial=gpu.serial or None, pci_bus_id=normal_address(gpu.pci_bus_id))
    except (ParseError, ValueError):
        return f"NVML gives {gpu.uuid!r} at {gpu.pci_bus_id!r}, which is no UUID or no PCI address"


def _topology_problems(sources: Sources, profile: NodeProfile) -> Iterator[str]:
    for judged in judge(sources, profile):
        yield from (f"{judged.subject}: {problem.text}" for problem in judged.problems)
        if judged.unknown is not None:
            yield f"{judged.subject}: {judged.unknown}"


def is_recorded(topology: ExpectedTopology) -> bool:
    """Whether a topology says anything."""
    return bool(topology.gpus or topology.nics)


def layer_text(pins: dict[int, GpuPin], topology: ExpectedTopology | None, origin: str) -> str:
    """A profile layer with pins, and the topology where there is one."""
    lines = [_HEAD.format(origin) + "gpus:", "  pins:" if pins else "  pins: {}"]
    lines += [f"    {slot}: {flow(pin)}" for slot, pin in _pins_json(pins).items()]
    text = "\n".join(lines) + "\n"
    return text + (snippet(topology, origin) if topology is not None and is_recorded(topology) else "")


def _pins_json(pins: dict[int, GpuPin]) -> dict[str, dict[str, Any]]:
    return {str(slot): pin.model_dump(mode="json", exclude_none=True) for slot, pin in sorted(pins.items())}
