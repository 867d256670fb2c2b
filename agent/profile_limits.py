"""`limits:` and `checks:` of a profile against the checks that there are and their own Limits models."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from agent.checks import registry
from agent.errors import ConfigError
from agent.profile_schema import validate_tree
from agent.profile_tree import Path, Table, is_null, mark_of
from agent.profile_yaml import clean


def limits_faults(root: Table) -> tuple[list[ConfigError], frozenset[Path]]:
    """Faults below `limits` and `checks`, and the limits whose spelling is meant as text."""
    limits, overrides = root.entries.get("limits"), root.entries.get("checks")
    if not _has_entries(limits) and not _has_entries(overrides):
        return [], frozenset()  # the usual case imports no check
    known = registry.load_all()
    faults = [*_unknown_ids(root, "limits", list(known)), *_unknown_ids(root, "checks", list(known))]
    text: set[Path] = set()
    for check_id, node in limits.entries.items() if isinstance(limits, Table) else ():
        if check_id in known and isinstance(node, Table):
            found = validate_tree(known[check_id].limits, root, at=("limits", check_id))
            faults += found.faults
            text |= found.as_text
    return faults, frozenset(text)


def _has_entries(node: object) -> bool:
    return isinstance(node, Table) and bool(node.entries)


def _unknown_ids(root: Table, part: str, known: list[str]) -> Iterator[ConfigError]:
    """Check ids that no check has."""
    node = root.entries.get(part)
    for check_id, child in node.entries.items() if isinstance(node, Table) else ():
        if check_id in known or is_null(child):
            continue
        near = difflib.get_close_matches(check_id, known, 1, 0.5)
        remedy = f"did you mean {near[0]}?" if near else "`nodegate check` shows them all"
        problem = f"{part}.{clean(check_id)}: there is no check {clean(check_id)}"
        yield ConfigError(problem, where=mark_of(root, (part, check_id)).where, remedy=remedy)
