"""nic.config: is the NV configuration of each card the profile's, now and at the next boot?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic import Field

from agent.checks import advice
from agent.checks.nic_record import NOT_LISTED, RECORD, Read, nic_record, same_value
from agent.checks.ports import INFINIBAND, address_of, judge_ports, no_ports, subject_of
from agent.checks.registry import Limits, check
from agent.checks.shared_tree import reading_once
from agent.errors import ParseError, SourceError, SourceUnavailable
from agent.fabric_profile import NvValue
from agent.model import Action, ActionKind, Basis, Finding, ServingClass, Verdict
from agent.node_profile import NicPort, NodeProfile
from agent.sources import Sources

_SET = advice.play("nic", "Set it with mlxconfig -d ADDRESS set NAME=VALUE on this card and reboot the node.")
_REBOOT = Action(ActionKind.REBOOT, "Drain and reboot the node: the card takes its new configuration then.")
#: A parameter of a port that not every card has.
_OTHER_PORT = re.compile(r"_P(?:[2-9]|\d\d)$")


class ConfigLimits(Limits):
    """How long a record counts."""

    max_age_s: float = Field(
        2700.0, description="Seconds that a record of the NV configuration counts", ge=60, le=86400
    )


def _not_asked(profile: NodeProfile) -> str | None:
    nic = profile.fabric.nic
    asked = nic.config or any(nic.config_by_board.values())
    return no_ports(profile) or (None if asked else "the profile has no NV configuration")


@check(
    "nic.config",
    title="NV configuration of the NICs",
    source=f"/{RECORD}, left by nodegate-apply@nic.service: mlxconfig -d ADDRESS -e query",
    serving_class=ServingClass.SOFT,
    network=True,
    limits=ConfigLimits,
    period_s=60.0,
    fail_for_s=60.0,
    skip=_not_asked,
    action=_SET,
    if_unreadable=(
        "Run site.yml --tags nic on this node: it installs the unit that reads NV configuration as root; see"
        " systemctl status nodegate-apply@nic."
    ),
)
def nic_config(sources: Sources, profile: NodeProfile, limits: ConfigLimits) -> Iterator[Finding]:
    """Each parameter of fabric.nic.config must be current on the card of each data port, and stay so."""
    sources = reading_once(sources)
    record: dict[str, Read] | SourceError
    try:
        record = nic_record(sources, limits.max_age_s)
    except SourceError as cause:
        record = cause
    yield from judge_ports(
        profile,
        lambda port: _judge(sources, profile, port, record),
        absent="no evidence of the card's configuration; see nic.present",
    )


def _judge(
    sources: Sources, profile: NodeProfile, port: NicPort, record: dict[str, Read] | SourceError
) -> Finding:
    if isinstance(record, SourceError):
        raise record
    owner = _card_of(sources, profile, port)
    wanted = _wanted(sources, profile, port)
    waiting: list[str] = []
    for name, (want, basis) in wanted.items():
        read = record.get(f"{owner} {name}")
        if read is None:
            raise SourceUnavailable(f"/{RECORD} has no {name} of {owner}: site.yml --tags nic writes it anew")
        if read.current is None or read.staged is None:
            raise SourceUnavailable(
                f"{name} of {owner} could not be read: {read.problem or 'no reason given'}"
            )
        if read.current.startswith(NOT_LISTED):
            if _OTHER_PORT.search(name) is None:
                raise ParseError(f"/{RECORD}: {name} of {owner} reads {read.current[:40]!r}")
            continue
        now, then = same_value(read.current, want), same_value(read.staged, want)
        if not then:
            turns = f"is {read.current}" if not now else f"becomes {read.staged} at the next boot"
            return _failed(port, f"{name} {turns}, expected {want}", read, want, _SET, basis)
        if not now:
            waiting.append(name)
    if waiting:
        read, (want, basis) = record[f"{owner} {waiting[0]}"], wanted[waiting[0]]
        more = f" (and {len(waiting) - 1} more)" if len(waiting) > 1 else ""
        summary = f"{waiting[0]} is {read.current} and becomes {read.staged} at the next boot{more}"
        return _failed(port, summary, read, want, _REBOOT, basis)
    summary = f"{len(wanted)} parameters as expected, now and at the next boot"
    basis = Basis.profile("fabric.nic.config")
    return Finding(subject_of(port), Verdict.PASS, summary, len(wanted), len(wanted), basis=basis)


def _failed(port: NicPort, summary: str, read: Read, want: NvValue, action: Action, basis: Basis) -> Finding:
    seen = read.current or ""
    return Finding(subject_of(port), Verdict.FAIL, summary, seen, str(want), "", action, basis=basis)


def _card_of(sources: Sources, profile: NodeProfile, port: NicPort) -> str:
    """The RDMA device that names the card: of the profile's ports in the same slot, the first."""
    slot = address_of(sources, port).rpartition(".")[0]
    for each in profile.fabric.ports:
        if each is port:
            break
        try:
            if address_of(sources, each).rpartition(".")[0] == slot:
                return each.device
        except SourceError:
            continue  # that port's own finding says so
    return port.device


def _wanted(sources: Sources, profile: NodeProfile, port: NicPort) -> dict[str, tuple[NvValue, Basis]]:
    """Parameters of this port's card, each with the key of the profile that it is from."""
    nic = profile.fabric.nic
    found: dict[str, tuple[NvValue, Basis]] = {
        name: (value, Basis.profile(f"fabric.nic.config.{name}")) for name, value in nic.config.items()
    }
    if nic.config_by_board:
        board = sources.tree.text(f"{INFINIBAND}/{port.device}/board_id")
        for name, value in nic.config_by_board.get(board, {}).items():
            found[name] = (value, Basis.profile(f"fabric.nic.config_by_board.{board}.{name}"))
    return found
