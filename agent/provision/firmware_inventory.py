"""What firmware a BMC says that it has: UpdateService, its inventory, and what is written and waits.

A BMC without an inventory shows at least BIOS and BMC. A version that waits for activation is in no
inventory; the task that wrote it says so by a message `Update.*.AwaitToActivate` with component and version
in either order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Protocol

from agent.checks.redfish_tree import said
from agent.provision.firmware_plan import Inventory
from agent.provision.redfish_words import NotThere, Refused

UPDATE_SERVICE = "/redfish/v1/UpdateService"
_TASKS = "/redfish/v1/TaskService/Tasks"
#: No BMC has more; a longer list is none.
MAX_MEMBERS = 2000
MAX_TASKS = 50
_RUNNING = frozenset({"New", "Starting", "Running", "Pending", "Stopping", "Cancelling"})


class Reads(Protocol):
    """What is needed of a Redfish client to look."""

    def get(self, path: str, *, patience_s: float | None = None) -> Any:
        """A pair of document and ETag."""


def read_inventory(bmc: Reads, patterns: Iterable[str], *, patience_s: float | None = None) -> Inventory:
    """Versions of the ids that the patterns match; other ids by name only. Raises RedfishError."""
    service = document(bmc, UPDATE_SERVICE, patience_s)
    path = link(service, "FirmwareInventory") or f"{UPDATE_SERVICE}/FirmwareInventory"
    wanted = tuple(patterns)
    try:
        listed = members(document(bmc, path, patience_s))
    except NotThere:
        return Inventory(_without_inventory(bmc, patience_s), _waiting(bmc, patience_s))
    running: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    for member in listed:
        id_ = member.rstrip("/").rpartition("/")[2]
        if not any(fnmatchcase(id_, pattern) for pattern in wanted):
            running[id_] = ""
            continue
        try:
            version = document(bmc, member, patience_s).get("Version")
        except Refused as cause:
            unreadable[id_] = cause.problem
            continue
        running[id_] = version if isinstance(version, str) else ""
    return Inventory(running, _waiting(bmc, patience_s), unreadable)


def _without_inventory(bmc: Reads, patience_s: float | None) -> dict[str, str]:
    """What a simple service shows elsewhere, by the names BIOS and BMC. Raises RedfishError."""
    found: dict[str, str] = {}
    for name, where, key in (("BIOS", "Systems", "BiosVersion"), ("BMC", "Managers", "FirmwareVersion")):
        for path in members(document(bmc, f"/redfish/v1/{where}", patience_s)):
            version = document(bmc, path, patience_s).get(key)
            if isinstance(version, str) and version.strip():
                found.setdefault(name, version)
    return found


def _waiting(bmc: Reads, patience_s: float | None) -> dict[str, tuple[str, ...]]:
    """By inventory id, what finished tasks say is written and waits to be activated."""
    try:
        listed = members(document(bmc, _TASKS, patience_s))
    except Refused:
        return {}  # a BMC without a task list forgets what it has written: it is written again
    # What was written last counts: a task is still listed after its image ran and another one replaced it.
    found: dict[str, tuple[str, ...]] = {}
    for task in sorted(_tasks(bmc, listed, patience_s), key=lambda task: str(task.get("EndTime", ""))):
        for one, other in _awaited(task):
            found |= {one: (other,), other: (one,)}
    return found


def running_updates(bmc: Reads) -> list[str]:
    """Paths of the tasks that write firmware now. Raises RedfishError."""
    try:
        listed = members(document(bmc, _TASKS))
    except Refused:
        return []
    return [
        str(task["@odata.id"])
        for task in _tasks(bmc, listed, None)
        if task.get("TaskState") in _RUNNING and isinstance(task.get("@odata.id"), str) and _is_update(task)
    ]


def _tasks(bmc: Reads, listed: list[str], patience_s: float | None) -> Iterator[dict[str, Any]]:
    for path in listed[-MAX_TASKS:]:
        try:
            yield document(bmc, path, patience_s)
        except NotThere:
            continue  # tasks end and are forgotten while they are read


def _is_update(task: Mapping[str, Any]) -> bool:
    """By what was asked, by its messages, or by its name."""
    payload, messages = task.get("Payload"), task.get("Messages")
    target = payload.get("TargetUri") if isinstance(payload, dict) else None
    listed = messages if isinstance(messages, list) else []
    ids = [str(each.get("MessageId")) for each in listed if isinstance(each, dict)]
    return (
        str(target).startswith(UPDATE_SERVICE)
        or any(id_.startswith("Update.") for id_ in ids)
        or any(word in str(task.get("Name")).lower() for word in ("update", "firmware"))
    )


def _awaited(task: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Pairs of component and version, in either order."""
    if task.get("TaskState") != "Completed":
        return []
    messages = task.get("Messages")
    pairs = []
    for message in messages if isinstance(messages, list) else ():
        id_ = message.get("MessageId") if isinstance(message, dict) else None
        arguments = message.get("MessageArgs") if isinstance(message, dict) else None
        if not isinstance(id_, str) or not id_.startswith("Update.") or not id_.endswith(".AwaitToActivate"):
            continue
        if isinstance(arguments, list) and len(arguments) >= 2:
            pairs.append((str(arguments[0]), str(arguments[1])))
    return pairs


def document(bmc: Reads, path: str, patience_s: float | None = None) -> dict[str, Any]:
    """One document. Raises RedfishError."""
    found, _etag = bmc.get(path, patience_s=patience_s)
    return dict(found)


def link(holder: Mapping[str, Any], key: str) -> str | None:
    """Path of a linked resource."""
    value = holder.get(key)
    path = value.get("@odata.id") if isinstance(value, dict) else None
    return path if isinstance(path, str) and path else None


def members(collection: Mapping[str, Any]) -> list[str]:
    """Paths of a collection's members. Raises Refused for what is no list of members."""
    listed = collection.get("Members")
    paths = (
        [each.get("@odata.id") for each in listed if isinstance(each, dict)]
        if isinstance(listed, list)
        else []
    )
    found = [path for path in paths if isinstance(path, str) and path]
    if not isinstance(listed, list) or len(found) != len(listed) or len(found) > MAX_MEMBERS:
        name = said(str(collection.get("@odata.id", "a collection")), 100)
        raise Refused("is no list of members", where=name, remedy="update the BMC, or ask its vendor")
    return found
