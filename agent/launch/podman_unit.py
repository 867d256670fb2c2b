"""A container inside a systemd unit (pure)."""

from __future__ import annotations

from collections.abc import Sequence


def in_unit(argv: Sequence[str]) -> tuple[str, ...]:
    """`podman run` for a unit with Delegate=yes: conmon and the engine stay in the unit's cgroup.

    Then whatever ends the unit ends the container. Any other command line is left as it is.
    """
    if tuple(argv[:2]) != ("podman", "run"):
        return tuple(argv)
    return ("podman", "run", "--cgroups=split", *argv[2:])
