"""What the machine itself says: a capture of now, kernel log, driver, and firmware by Redfish."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent.bmc_profile import RedfishEndpoint
from agent.bundle.parts import Case, NotHere, Piece, as_json
from agent.errors import DeviceAbsent, SourceError, SourceUnavailable
from agent.node_profile import Bmc, NodeProfile
from agent.sources import capture as recorder
from agent.sources.bmc_reading import NODE_BMC
from agent.sources.bounded_nvml import BoundedNvml
from agent.sources.kmsg_records import format_line

CAPTURE_NOW = "capture-now"
COMMAND_S = 20.0
#: All of NVML together; where it hangs, the rest of the capture is still worth having.
NVML_S = 15.0
_INVENTORY = "/redfish/v1/UpdateService/FirmwareInventory"
_SYSTEMS = "/redfish/v1/Systems"
_MOST_FIRMWARES = 300
_LOG_BYTES = 16 * 1024 * 1024


def read_capture(case: Case) -> Iterator[Piece]:
    """A node folder of now, as `nodegate capture` makes it; BMCs are another source's."""
    profile = case.loaded.profile if case.loaded is not None else None
    asked = profile.model_copy(update={"bmc": Bmc()}) if profile is not None else None
    sources = dataclasses.replace(case.sources, nvml=BoundedNvml(case.sources.nvml, NVML_S))
    about = {"name": case.node, "simulated": True} if case.node_dir is not None else None
    recording = recorder.record(sources, about=about, profile=asked)
    for name, text in recorder.documents(recording).items():
        yield Piece(f"{CAPTURE_NOW}/{name}", text.encode(errors="replace"))
    if recording.not_captured:
        raise SourceUnavailable("not captured: " + "; ".join(recording.not_captured))


def read_kernel_log(case: Case) -> Iterator[Piece]:
    """The kernel log of this boot, and of the boots before since the time asked for."""
    if case.node_dir is not None:
        yield _kept_records(case)
        return
    problems = []
    for read in (_dmesg, _kernel_journal):
        try:
            yield from read(case)
        except SourceError as cause:
            problems.append(str(cause))
    if problems:
        raise SourceUnavailable("; ".join(problems))


def _dmesg(case: Case) -> Iterator[Piece]:
    """All that the kernel still has; else, told as missing, the records that checks look at."""
    argv = ["dmesg", "--decode", "--time-format=iso"]
    try:
        output = case.ask(argv, deadline_s=COMMAND_S, key="dmesg", limit_b=_LOG_BYTES)
        problem = _why(output.errors) or "dmesg failed" if output.status else ""
    except SourceError as cause:
        problem = str(cause)
    if not problem:
        yield Piece("kernel/dmesg.log", output.text.encode(), log=True)
        return
    yield _kept_records(case)
    raise SourceUnavailable(f"dmesg: {problem}; here are the records that checks look at")


def _kernel_journal(case: Case) -> Iterator[Piece]:
    argv = ["journalctl", "--no-pager", "--output=short-iso-precise", f"--since=@{case.since_wall_s:.0f}"]
    yield from command_pieces(case, {"kernel/journal.log": [*argv, "--lines=50000", "_TRANSPORT=kernel"]})


def _kept_records(case: Case) -> Piece:
    """The records that checks look at, by the agent's own reader."""
    lines = [format_line(record) for record in case.sources.kmsg.records()]
    data = "".join(f"{line}\n" for line in lines).encode()
    return Piece("kernel/kmsg.txt", data, "only records that checks look at", log=True)


def read_driver(case: Case) -> Iterator[Piece]:
    """What nvidia-smi says of every GPU and of how they are joined."""
    if case.node_dir is not None:
        raise NotHere("nvidia-smi is not asked of a captured node")
    if case.loaded is not None and not case.loaded.profile.gpus.count:
        raise NotHere("the profile has no GPUs")
    yield from command_pieces(
        case,
        {
            "nvidia/nvidia-smi-q.txt": ["nvidia-smi", "-q"],
            "nvidia/topology.txt": ["nvidia-smi", "topo", "-m"],
            "nvidia/nvlink.txt": ["nvidia-smi", "nvlink", "--status"],
        },
    )


def command_pieces(
    case: Case, commands: Mapping[str, Sequence[str]], *, prompts: bool = False
) -> Iterator[Piece]:
    """What commands write, by file; those that gave nothing are told at the end. Raises SourceUnavailable."""
    problems = []
    for path, argv in commands.items():
        try:
            output = case.ask(argv, deadline_s=COMMAND_S, key=f"bundle {path}", limit_b=_LOG_BYTES)
        except SourceError as cause:
            problems.append(str(cause))
            continue
        if output.text.strip():
            note = f"exit status {output.status}" if output.status else ""
            yield Piece(path, output.text.encode(), note, log=True, prompts=prompts)
        else:
            problems.append(
                f"{' '.join(argv[:3])}: {_why(output.errors) or f'exit status {output.status}, no output'}"
            )
    if problems:
        raise SourceUnavailable("; ".join(dict.fromkeys(problems)))


def _why(errors: str) -> str:
    return " ".join(errors.split())[:200]


def read_firmware(case: Case) -> Iterator[Piece]:
    """Firmware and systems of each Redfish service of the profile."""
    if case.loaded is None:
        raise SourceUnavailable(f"no profile names a BMC: {case.profile_problem}")
    services = _services(case.loaded.profile)
    if not services:
        raise NotHere("the profile names no Redfish service")
    problems = []
    for name, endpoint in sorted(services.items()):
        documents: dict[str, Any] = {}
        for path in (_INVENTORY, _SYSTEMS):
            problem = _read_members(case, name, endpoint, path, documents)
            problems += [problem] if problem else []
        if documents:
            yield Piece(f"redfish/{name}.json", as_json(documents))
    if problems:
        raise SourceUnavailable("; ".join(problems))


def _services(profile: NodeProfile) -> dict[str, RedfishEndpoint]:
    own = {NODE_BMC: profile.bmc.redfish} if profile.bmc.redfish is not None else {}
    return {**profile.bmc.cooling.units, **profile.bmc.pdus, **own}


def _read_members(
    case: Case, name: str, endpoint: RedfishEndpoint, path: str, documents: dict[str, Any]
) -> str:
    """A collection and its members into `documents`; why not all of it, in one line."""
    try:
        found = dict(case.sources.bmc.get(name, endpoint, path))
        documents[path] = found
        for member in found.get("Members", [])[:_MOST_FIRMWARES]:
            at = str(member.get("@odata.id", "")) if isinstance(member, Mapping) else ""
            if at.startswith("/redfish/"):
                documents[at] = json.loads(
                    json.dumps(dict(case.sources.bmc.get(name, endpoint, at)), default=str)
                )
    except DeviceAbsent:
        return ""  # a cooling unit or PDU without such a collection
    except SourceError as cause:
        return str(cause)
    return ""
