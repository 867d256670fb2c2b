"""topology.file: does the topology file that engines give to NCCL fit this machine?

The file that topology.nccl_file or NCCL_TOPO_FILE of an engine names, against /sys/bus/pci/devices and NVML.
After PCI enumeration has changed an old file is wrong. NCCL says nothing of it: it drops a branch whose
bus id no GPU has, and for a file that is not there it only writes a line of level INFO and goes on without.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks import advice
from agent.checks.gpus import no_gpus
from agent.checks.registry import Limits, check, unknown
from agent.errors import ConfigError, DeviceAbsent, SourceError
from agent.model import Action, Basis, Finding, Phase, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.topo.named import Named, named_files, tree_path
from agent.topo.verify import against_machine

_MEND = advice.play(
    "nccl_topology",
    "Run site.yml --tags nccl_topology on this node once topology.expected passes; by hand it is"
    " `nodegate topo write FILE`.",
)
_MOUNT = advice.person("Mount the file into the container at this path (launch.container.mounts), read-only.")
_MOST_TOLD = 3
_LONGEST_SUMMARY = 400


def _skip(profile: NodeProfile) -> str | None:
    named = None if named_files(profile) else "no topology file is named (topology.nccl_file, NCCL_TOPO_FILE)"
    return no_gpus(profile) or named


@check(
    "topology.file",
    title="NCCL topology file",
    source="the file; /sys/bus/pci/devices/*: link, numa_node, max_link_speed, max_link_width; NVLink states",
    serving_class=ServingClass.SOFT,
    phases=(Phase.ADMISSION, Phase.MAINTENANCE),
    period_s=60.0,
    deadline_s=15.0,
    fail_for_s=60.0,
    unknown_for_s=300.0,
    skip=_skip,
    action=_MEND,
)
def topology_file(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Each file must be there, be readable to NCCL and say what the machine is."""
    for named in named_files(profile):
        try:
            yield _judge(sources, profile, named)
        except SourceError as cause:
            yield unknown(named.subject, cause)


def _judge(sources: Sources, profile: NodeProfile, named: Named) -> Finding:
    if named.host is None:
        return _fail(named, f"the container has no {named.path}", "absent", _MOUNT)
    if not named.host.startswith("/"):
        return _fail(named, f"{named.path} is not an absolute path", named.path, _MEND)
    try:
        data = sources.tree.data(tree_path(named.host))
    except DeviceAbsent:
        text = f"{named.host} is not there: NCCL would go on without it and only log that"
        return _fail(named, text, "absent", _MEND)
    try:
        found = against_machine(sources, profile, data.decode(errors="replace"), named.host)
    except ConfigError as cause:
        return _fail(named, f"NCCL cannot read it: {cause}"[:_LONGEST_SUMMARY], "unreadable", _MEND)
    if not found:
        text = f"{named.host} fits the machine"
        return Finding(named.subject, Verdict.PASS, text, 0, 0, "differences", basis=Basis.profile(named.key))
    told = "; ".join(map(str, found[:_MOST_TOLD]))
    more = f" and {len(found) - _MOST_TOLD} more" if len(found) > _MOST_TOLD else ""
    summary = f"{named.host} does not fit the machine: {told}{more}"[:_LONGEST_SUMMARY]
    basis = Basis.profile(named.key)
    return Finding(named.subject, Verdict.FAIL, summary, len(found), 0, "differences", _MEND, basis=basis)


def _fail(named: Named, text: str, observed: str, action: Action) -> Finding:
    basis = Basis.profile(named.key)
    return Finding(named.subject, Verdict.FAIL, text, observed, named.path, action=action, basis=basis)
