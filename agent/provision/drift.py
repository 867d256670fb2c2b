"""What one run in check mode and the agent found on a host, as lines for a person and as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: Roles that tell what differs, in the order of site.yml. Each registers ROLE_result.
ROLES = ("bios", "firmware", "kernel", "gpu", "nic", "pins", "nccl_topology", "engine", "agent")

#: What stands in a report until the host has been compared.
NOT_COMPARED: Mapping[str, list[Any]] = {
    "drift": [],
    "pending": [],
    "faults": ["not compared: the run did not reach its end on this host; see what Ansible says of it"],
    "findings": [],
    "agent": [],
}


def drift_of(variables: Mapping[str, Any]) -> dict[str, Any]:
    """drift, pending, faults and findings of a host, from the results that its roles have registered."""
    drift: list[dict[str, str]] = []
    pending: list[str] = []
    for role in ROLES:
        for result in _results(variables, role):
            drift += [
                {"role": role, **{k: str(v) for k, v in entry.items()}} for entry in result.get("drift", [])
            ]
            pending += [f"{role}: {name}" for name in result.get("pending", [])]
    verify = variables.get("verify_result") or {}
    return {
        "drift": drift,
        "pending": pending,
        "faults": [str(line) for line in variables.get("nodegate_faults", [])],
        "findings": [dict(finding) for finding in verify.get("findings", [])],
        "agent": [str(line) for line in verify.get("problems", [])] or _why(verify),
    }


def _results(variables: Mapping[str, Any], role: str) -> list[Mapping[str, Any]]:
    """Every result that a role has registered: ROLE_result and ROLE_..._result."""
    found = []
    for name, value in variables.items():
        mine = name == f"{role}_result" or (name.startswith(f"{role}_") and name.endswith("_result"))
        if mine and isinstance(value, Mapping):
            found.append(value)
    return found


def _why(verify: Mapping[str, Any]) -> list[str]:
    return [str(verify.get("msg", "the agent was not asked"))] if verify.get("failed") or not verify else []


def lines_of(found: Mapping[str, Sequence[Any]]) -> list[str]:
    """One line each: what differs, what waits for a reboot, what was not compared, what the agent says."""
    lines = [
        f"{one['role']}: {one.get('field') or one.get('name')}: {one.get('name')}"
        f" is {_short(one.get('before'))}, the profile says {_short(one.get('after'))}"
        for one in found["drift"]
    ]
    lines += [f"{line} waits for a reboot" for line in found["pending"]]
    lines += list(found["faults"])
    return lines + [f"agent: {line}" for line in found["agent"]]


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 80 else text[:77] + "..."
