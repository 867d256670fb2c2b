"""UpdateService: multipart push, SimpleUpdate, the tasks they start, and what images do to the inventory."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from bmc_image import BadImage, Image, parse_image
from bmc_machine import Machine
from bmc_reply import (
    Document,
    Refusal,
    Reply,
    Request,
    bad_parameter,
    busy,
    message,
    missing_parameter,
)
from bmc_tasks import Task, Tasks, update_message

UPDATE = "Update"
INVENTORY = "/redfish/v1/UpdateService/FirmwareInventory"
FETCH_S = 10.0
_RANKS_LOWER = "The version of the image is older than the running one."


@dataclass
class Plan:
    """What befalls the next update: it fails or stalls at a share, or ends well and writes nothing."""

    fails_at: float | None = None
    words: str = "Failed to apply the image."
    stalls_at: float | None = None
    writes: bool = True


@dataclass
class Updates:
    """The service's state. `images` has the hash of everything that was uploaded, in order."""

    machine: Machine
    tasks: Tasks
    plans: list[Plan] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    max_image_bytes: int = 512 * 1024 * 1024
    http_push: bool = False
    #: Targets of the request that was taken last.
    targets: list[str] = field(default_factory=list)

    def fail_next(self, at: float = 0.45, words: str = "Failed to apply the image.") -> None:
        self.plans.append(Plan(fails_at=at, words=words))

    def stall_next(self, at: float = 0.6) -> None:
        """It never goes on from there."""
        self.plans.append(Plan(stalls_at=at))

    def lie_next(self) -> None:
        """The task completes and nothing was written: the version stays even after the power cycle."""
        self.plans.append(Plan(writes=False))

    def multipart(self, request: Request) -> Reply:
        parts = multipart_parts(request)
        if "UpdateParameters" not in parts:
            raise missing_parameter("UpdateParameters", "UpdateService.MultipartHttpPush")
        if "UpdateFile" not in parts:
            raise missing_parameter("UpdateFile", "UpdateService.MultipartHttpPush")
        try:
            parameters = json.loads(parts["UpdateParameters"] or b"{}")
        except ValueError:
            raise _malformed() from None
        if not isinstance(parameters, dict):
            raise _malformed()
        return self._take(parts["UpdateFile"], parameters)

    def push(self, request: Request) -> Reply:
        """The deprecated way: the image is the body."""
        return self._take(request.body, {})

    def simple(self, parameters: dict[str, Any]) -> Reply:
        """SimpleUpdate: the BMC fetches the image itself, over http only."""
        uri = parameters.get("ImageURI")
        if not isinstance(uri, str):
            raise missing_parameter("ImageURI", "UpdateService.SimpleUpdate")
        if not uri.startswith("http://"):
            raise bad_parameter("ImageURI", uri, "UpdateService.SimpleUpdate")
        try:
            with urllib.request.urlopen(uri, timeout=FETCH_S) as answer:
                data = answer.read(self.max_image_bytes + 1)
        except (urllib.error.URLError, OSError):
            words = "The image could not be fetched."
            raise Refusal(
                400, update_message("TransferFailed", words, uri, "BMC", severity="Critical")
            ) from None
        return self._take(data, parameters)

    def _take(self, data: bytes, parameters: dict[str, Any]) -> Reply:
        if self.tasks.running(UPDATE) is not None:
            raise busy(25)
        if len(data) > self.max_image_bytes:
            raise Refusal(413, message("PayloadTooLarge", "The supplied payload exceeds the maximum size."))
        targets = self._targets(parameters)
        try:
            image = parse_image(data)
        except BadImage as cause:
            said = update_message("VerificationFailed", str(cause), "image", "BMC", severity="Critical")
            raise Refusal(400, said) from None
        self.images.append(image.sha256)
        self.targets = targets
        plan = self.plans.pop(0) if self.plans else Plan()
        task = self._start(image, targets, plan, force=parameters.get("ForceUpdate") is True)
        monitor = f"/redfish/v1/TaskService/TaskMonitors/{task.id}"
        return Reply(202, task.document(self.machine.clock), {"Location": monitor, "Retry-After": "5"})

    def _targets(self, parameters: dict[str, Any]) -> list[str]:
        """Inventory ids that the request is for. Raises Refusal for one that is none or cannot be updated."""
        links = parameters.get("Targets", [])
        if not isinstance(links, list) or not all(isinstance(each, str) for each in links):
            raise bad_parameter("Targets", links, "UpdateService.MultipartHttpPush")
        found: list[str] = []
        for link in links:
            ids = self._ids_of(link.rstrip("/"))
            if not ids:
                raise bad_parameter("Targets", link, "UpdateService.MultipartHttpPush")
            found += ids
        return found or [name for name, each in self.machine.firmware.items() if each.updateable]

    def _ids_of(self, link: str) -> list[str]:
        name = link.removeprefix(f"{INVENTORY}/")
        if name in self.machine.firmware:
            return [name] if self.machine.firmware[name].updateable else []
        if link.endswith("/Chassis/HGX_Chassis_0"):
            return [each for each in self.machine.firmware if each.startswith("HGX_")]
        return []

    def _start(self, image: Image, targets: list[str], plan: Plan, *, force: bool) -> Task:
        brought = {name: image.version_for(name) for name in targets}
        wanted = {name: version for name, version in brought.items() if version is not None}
        failure, at = None, plan.fails_at
        if not image.intact:
            failure, at = _failed("VerificationFailed", "The image's hash is wrong."), 0.1
        elif not wanted:
            failure, at = _failed("NoTargetsDetermined", "No target device is identified in the image."), 0.05
        elif plan.fails_at is not None:
            failure = _failed("ApplyFailed", plan.words)

        def end() -> list[Document]:
            return self._written(wanted, image, force=force, writes=plan.writes)

        task = self.tasks.start(
            UPDATE,
            self.machine.times.task_s,
            on_end=end,
            fails_at=at,
            failure=failure,
            stalls_at=plan.stalls_at,
        )
        task.messages.append(update_message("TargetDetermined", f"Targets: {', '.join(wanted)}.", *wanted))
        return task

    def _written(self, wanted: dict[str, str], image: Image, *, force: bool, writes: bool) -> list[Document]:
        said = []
        for name, version in wanted.items():
            item = self.machine.firmware[name]
            if version in (item.version, item.staged) and not force:
                said.append(_skipped(name, version, "the versions are identical"))
            elif _ranks(version) < _ranks(item.version) and not force:
                said.append(_skipped(name, version, _RANKS_LOWER))
            elif writes:
                item.staged, item.image_sha256, item.written = version, image.sha256, item.written + 1
                how = {"ac": "AC power cycle", "bmc": "BMC reset", "reset": "system reset"}[item.activation]
                words = (
                    f"Awaiting for an action to proceed with activating image '{version}' on '{name}': {how}."
                )
                said.append(update_message("AwaitToActivate", words, version, name))
        return [*said, update_message("UpdateSuccessful", "The update completed successfully.")]


def _ranks(version: str) -> list[int]:
    """The version's numbers, hexadecimal, for an order."""
    words = "".join(each if each.isalnum() else " " for each in version).split()
    return [int(each, 16) for each in words if all(digit in "0123456789abcdefABCDEF" for digit in each)]


def _skipped(name: str, version: str, why: str) -> Document:
    words = f"The update of component {name} to {version} is skipped because {why}."
    return message("ComponentUpdateSkipped", words, name, version, severity="OK", registry="NvidiaUpdate.1.0")


def _failed(id_: str, words: str) -> Document:
    return update_message(id_, words, "image", "component", severity="Critical")


def _malformed() -> Refusal:
    words = "The request body submitted was malformed JSON and could not be parsed by the receiving service."
    return Refusal(400, message("MalformedJSON", words, severity="Critical"))


def multipart_parts(request: Request) -> dict[str, bytes]:
    """The parts of a multipart/form-data body by name. Raises Refusal for what is none."""
    kind, _, rest = request.header("content-type").partition(";")
    boundary = ""
    for each in rest.split(";"):
        key, _, value = each.strip().partition("=")
        if key.lower() == "boundary":
            boundary = value.strip('"')
    if kind.strip().lower() != "multipart/form-data" or not boundary:
        raise Refusal(415, message("GeneralError", "The content type must be multipart/form-data."))
    mark = b"--" + boundary.encode()
    body = b"\r\n" + request.body
    pieces = body.split(b"\r\n" + mark)
    if len(pieces) < 3 or not pieces[-1].startswith(b"--"):
        raise Refusal(400, message("GeneralError", "The multipart body is cut off."))
    found = {}
    for piece in pieces[1:-1]:
        head, _, content = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        name = _name_of(head.decode("utf-8", "replace"))
        if name is not None:
            found[name] = content
    return found


def _name_of(head: str) -> str | None:
    for line in head.splitlines():
        if line.lower().startswith("content-disposition:"):
            for each in line.split(";"):
                key, _, value = each.strip().partition("=")
                if key.lower() == "name":
                    return value.strip('"')
    return None


def digest(data: bytes) -> str:
    """The hash as Updates.images has it."""
    return hashlib.sha256(data).hexdigest()


def matching(firmware: dict[str, Any], pattern: str) -> list[str]:
    """Inventory ids that a pattern names."""
    return [name for name in firmware if fnmatch.fnmatchcase(name, pattern)]
