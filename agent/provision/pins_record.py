"""Pins and topology of a node in the site's inventory, on the controller: first use, and changes by name.

What the node's own nodegate saw (`pins show --json`) is judged by the same rules as on the node. The file is
written whole, and the profile that comes of it is looked at: a higher layer may say otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agent.errors import ConfigError
from agent.node_parts import ExpectedTopology
from agent.node_profile import GpuPin
from agent.pins import Seen, layer_text
from agent.pins_decide import ALL, Decision, decide
from agent.topo.new_file import write_whole

PLAY = "playbooks/pins.yml"


@dataclass(frozen=True)
class Outcome:
    """What a run of the role gives: one line that stops the host, or what was or would be written."""

    changed: bool = False
    problem: str = ""
    before: str = ""
    after: str = ""
    file: str = ""


def seen_from(told: Mapping[str, Any]) -> Seen:
    """What the node told, checked: it comes from another machine. Raises ConfigError."""
    try:
        recorded = told["recorded_topology"]
        return Seen(
            _pins(told["pinned"]),
            _pins(told["found"]),
            ExpectedTopology.model_validate(told["topology"]) if told["topology"] else None,
            ExpectedTopology.model_validate(recorded) if recorded else ExpectedTopology(),
            tuple(str(line) for line in told["topology_problems"]),
            tuple(str(line) for line in told["faults"]),
        )
    except (KeyError, TypeError, ValueError, ValidationError) as cause:
        first = str(cause).splitlines()[0]
        raise ConfigError(
            f"the node's `nodegate pins show --json` cannot be understood: {first}",
            remedy="install this release on the node first",
        ) from cause


def _pins(data: Mapping[str, Any]) -> dict[int, GpuPin]:
    return {int(slot): GpuPin.model_validate(pin) for slot, pin in data.items()}


def names_of(text: object) -> tuple[str, ...]:
    """`replace_pins` as names: `3`, `3,5`, a list, `topology`, `all`; `true` is none. Raises ConfigError."""
    if text is None or text is False or text == "":
        return ()
    parts = text if isinstance(text, list) else str(text).replace(",", " ").split()
    names = tuple(str(part).strip() for part in parts)
    for name in names:
        if name not in ("topology", ALL) and not (name.isascii() and name.isdigit()):
            raise ConfigError(
                f"replace_pins={name} names no slot",
                remedy="give the slots that may differ, e.g. replace_pins=3",
            )
    return names


def refuse_standing(replace: object, extra: Mapping[str, Any]) -> None:
    """Raise ConfigError for a `replace_pins` of the inventory: it would take every later card as well."""
    if names_of(replace) and "replace_pins" not in extra:
        raise ConfigError(
            "replace_pins is set in the inventory, where it would accept every later change, too",
            remedy="take it out, and give it to the one run that needs it with -e",
        )


def settle_pins(
    seen: Seen, host: str, file: Path, *, accept: bool, replace: Collection[str] = (), check: bool = False
) -> Outcome:
    """Compare, and with `accept` record. Raises ConfigError where the file cannot be written."""
    decision = decide(seen, replace)
    again = f"{PLAY} --limit {host} -e accept_pins=true"
    if decision.refusals:
        return Outcome(problem=_refused(decision, again))
    if not decision.changed:
        return Outcome()
    if not accept:
        parts = " and ".join(decision.first) or "; ".join(decision.changes)
        return Outcome(
            problem=f"{parts}: not recorded yet; look at {PLAY} --limit {host} --check --diff"
            f" -e accept_pins=true, then run it without --check"
        )
    before = file.read_text(encoding="utf-8") if file.is_file() else ""
    after = layer_text(dict(decision.pins), decision.topology, host)
    if not check:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, after)
    return Outcome(True, "", before, after, str(file))


def _refused(decision: Decision, again: str) -> str:
    """All of it on one line, and how it is accepted where that is possible."""
    text = "; ".join(decision.refusals)
    if not decision.names:
        return f"nothing can be recorded: {text}"
    names = ",".join(decision.names)
    return f"{text}; put it back, or, if it was changed on purpose, run {again} -e replace_pins={names}"
