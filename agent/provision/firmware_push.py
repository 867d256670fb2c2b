"""One image to the BMC: the file is proven, then sent (or fetched by the BMC), then its task is followed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from agent.bmc_profile import FirmwareImage
from agent.errors import AgentError
from agent.provision.firmware_inventory import UPDATE_SERVICE, Reads, document, running_updates
from agent.provision.firmware_plan import Step
from agent.provision.redfish_reply import Reply
from agent.provision.redfish_task import TaskProgress
from agent.provision.redfish_words import Uncertain

_BLOCK_BYTES = 1 << 20
_SIMPLE = "#UpdateService.SimpleUpdate"
_APPLY_TIMES = "MultipartHttpPushUri@Redfish.OperationApplyTimeSupport"


class Writes(Reads, Protocol):
    """What is needed of a Redfish client to update."""

    def post(self, path: str, body: Mapping[str, Any], *, again: bool = False) -> Reply:
        """Start an action."""

    def post_multipart(
        self,
        path: str,
        parameters: Mapping[str, Any],
        file: Path,
        timeout_s: float,
        *,
        sha256: str | None = None,
    ) -> Reply:
        """Send a file."""

    def task_wait(
        self, uri: str, deadline_s: float, on_progress: Callable[[TaskProgress], None] | None = None
    ) -> dict[str, Any]:
        """Follow a task to its end."""


class ImageRefused(AgentError):
    """An image is not what the profile says, or the BMC cannot be given it; nothing of it was sent."""


def image_path(image: FirmwareImage, beside: Path) -> Path:
    """Where the file lies on this machine."""
    return beside / Path(image.image).expanduser()


def verify_file(name: str, image: FirmwareImage, beside: Path) -> Path:
    """The file, whose hash is the profile's. Raises ImageRefused."""
    path = image_path(image, beside)
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    except OSError as cause:
        raise ImageRefused(
            f"bmc.images.{name}.image: {path}: cannot be read ({cause.strerror}); put the file there,"
            " or correct the path"
        ) from None
    found = digest.hexdigest()
    if found != image.sha256:
        raise ImageRefused(
            f"bmc.images.{name}.sha256: {path}: SHA-256 is {found}, the profile asks for {image.sha256};"
            " fetch the file again, or correct the profile"
        )
    return path


def update_service(bmc: Reads) -> dict[str, Any]:
    """The UpdateService. Raises RedfishError, or ImageRefused when it is switched off."""
    service = document(bmc, UPDATE_SERVICE)
    if service.get("ServiceEnabled") is False:
        raise ImageRefused(f"{UPDATE_SERVICE}: ServiceEnabled is false; enable updates on the BMC")
    return service


def check_takes(service: Mapping[str, Any], name: str, image: FirmwareImage, path: Path) -> None:
    """Whether the BMC can be given this image at all. Raises ImageRefused."""
    if not _push_uri(service) and (image.image_url is None or not _simple_target(service)):
        what = (
            "and no SimpleUpdate" if image.image_url is not None else "and bmc.images has no image_url for it"
        )
        raise ImageRefused(
            f"bmc.images.{name}: this BMC takes no upload (no MultipartHttpPushUri), {what};"
            " update it by its own tools, or give image_url"
        )
    most = service.get("MaxImageSizeBytes")
    size_bytes = path.stat().st_size
    if isinstance(most, int) and not isinstance(most, bool) and 0 < most < size_bytes:
        raise ImageRefused(
            f"bmc.images.{name}: {path} has {size_bytes} bytes, the BMC takes {most}; update the BMC first"
        )


def push(
    bmc: Writes, service: Mapping[str, Any], step: Step, path: Path, tell: Callable[[str], None]
) -> None:
    """Send the image and wait for its task. Raises RedfishError."""
    image = step.image
    uri = _push_uri(service)
    if uri:
        tell(f"{step.name}: sending {path.name}")
        reply = bmc.post_multipart(
            uri, _parameters(service, step), path, image.update_deadline_s, sha256=image.sha256
        )
    else:
        target = _simple_target(service)
        assert target is not None and image.image_url is not None  # check_takes has seen to that
        tell(f"{step.name}: the BMC fetches {path.name} itself")
        body: dict[str, Any] = {"ImageURI": image.image_url}
        body |= {"Targets": image.targets} if image.targets else {}
        body |= {"ForceUpdate": True} if step.force else {}
        reply = bmc.post(target, body)
    task = _task_of(reply)
    if task is not None:
        bmc.task_wait(task, image.update_deadline_s, _Teller(step.name, tell))
    elif reply.status == 202:
        remedy = "wait until the BMC is done with it and run the play again, which reads first"
        raise Uncertain("the image was taken and no task is named", where=f"BMC {uri}", remedy=remedy)


def follow_running(bmc: Writes, step: Step, tell: Callable[[str], None]) -> bool:
    """Wait for the updates that the BMC works on already, as of a run that was cut off; were there any?

    Raises RedfishError, TaskFailed among them.
    """
    running = running_updates(bmc)
    for task in running:
        tell(f"{step.name}: the BMC works on {task}, waiting for that")
        bmc.task_wait(task, step.image.update_deadline_s, _Teller(step.name, tell))
    return bool(running)


def _parameters(service: Mapping[str, Any], step: Step) -> dict[str, Any]:
    """UpdateParameters: an empty list of targets leaves them to the image."""
    parameters: dict[str, Any] = {"Targets": list(step.image.targets)}
    if step.force:
        parameters["ForceUpdate"] = True
    support = service.get(_APPLY_TIMES)
    times = support.get("SupportedValues") if isinstance(support, dict) else None
    if step.image.activation == "reset" and isinstance(times, list) and "OnReset" in times:
        parameters["@Redfish.OperationApplyTime"] = "OnReset"
    return parameters


def _push_uri(service: Mapping[str, Any]) -> str | None:
    uri = service.get("MultipartHttpPushUri")
    return uri if isinstance(uri, str) and uri.startswith("/") else None


def _simple_target(service: Mapping[str, Any]) -> str | None:
    actions = service.get("Actions")
    action = actions.get(_SIMPLE) if isinstance(actions, dict) else None
    target = action.get("target") if isinstance(action, dict) else None
    return target if isinstance(target, str) and target.startswith("/") else None


def _task_of(reply: Reply) -> str | None:
    """The task: itself rather than its monitor, which some BMCs leave at 0 percent."""
    own = reply.document.get("@odata.id")
    if isinstance(own, str) and "/TaskService/Tasks/" in own:
        return own
    return reply.location.removesuffix("/Monitor") if reply.location else None


class _Teller:
    """Tells a task's progress: each new state and message, and every tenth of the way."""

    def __init__(self, name: str, tell: Callable[[str], None]) -> None:
        self._name, self._tell = name, tell
        self._told: tuple[str, int, str] | None = None

    def __call__(self, progress: TaskProgress) -> None:
        news = (progress.state, (progress.percent or 0) // 10, progress.message)
        if news == self._told:
            return
        self._told = news
        done = "" if progress.percent is None else f" {progress.percent} %"
        words = f" ({progress.message})" if progress.message else ""
        self._tell(f"{self._name}: {progress.state or 'running'}{done}{words}")
