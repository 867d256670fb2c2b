"""What a BMC shows of a machine's BIOS: system, attributes, what waits for a reset, and the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agent.bios.resolve import Machine
from agent.provision.bios_registry import Registry, parse_registry
from agent.provision.redfish_reply import Document, Reply
from agent.provision.redfish_words import NotThere, RedfishError, messages_of

ROOT = "/redfish/v1"
_SETTINGS = "@Redfish.Settings"
#: BootProgress.LastState values before the BIOS has done its part.
_IN_POST = frozenset(
    {
        "PrimaryProcessorInitializationStarted",
        "BusInitializationStarted",
        "MemoryInitializationStarted",
        "SecondaryProcessorInitializationStarted",
        "PCIResourceConfigStarted",
    }
)


class Acts(Protocol):
    """What is needed of the Redfish client."""

    origin: str
    mono_s: Callable[[], float]
    sleep: Callable[[float], None]

    def get(self, path: str, *, patience_s: float | None = None) -> Document:
        """A document and its ETag."""

    def patch(
        self,
        path: str,
        body: Mapping[str, Any],
        etag: str | None = None,
        *,
        settled: Callable[[Mapping[str, Any]], bool] | None = None,
    ) -> Reply:
        """Change a resource."""

    def post(self, path: str, body: Mapping[str, Any], *, again: bool = False) -> Reply:
        """Start an action."""


@dataclass(frozen=True, slots=True)
class State:
    """System, Bios and settings object as they were read."""

    system_path: str
    system: Mapping[str, Any]
    bios: Mapping[str, Any]
    settings_path: str
    settings: Mapping[str, Any]
    settings_etag: str | None

    @property
    def current(self) -> dict[str, Any]:
        """What the machine runs with."""
        return _attributes(self.bios)

    @property
    def staged(self) -> dict[str, Any]:
        """What the settings object shows: only what waits, or all."""
        return _attributes(self.settings)

    @property
    def machine(self) -> Machine | None:
        """What the intents' maps go by; None if the BMC leaves a part out."""
        told = [self.system.get(key) for key in ("Manufacturer", "Model", "BiosVersion")]
        return Machine(*(str(each) for each in told)) if all(isinstance(t, str) and t for t in told) else None

    @property
    def takes_on_reset(self) -> bool:
        """Whether a change may be asked for with the apply time OnReset."""
        times = _part(self.bios, _SETTINGS).get("SupportedApplyTimes")
        return isinstance(times, list) and "OnReset" in times

    @property
    def applied_at(self) -> Any:
        """When settings were last taken over, as the BMC has it."""
        return _part(self.bios, _SETTINGS).get("Time")

    @property
    def boot(self) -> str | None:
        """BootProgress.LastState; None where the BMC does not follow it."""
        last = _part(self.system, "BootProgress").get("LastState")
        return last if isinstance(last, str) else None

    @property
    def in_post(self) -> bool:
        """Whether the BIOS is at work, as far as the BMC follows it: what waits may be taken over by it."""
        return self.system.get("PowerState") == "On" and self.boot in _IN_POST

    def rejects(self) -> tuple[str, ...]:
        """What was wrong with the settings that were last taken over, in the BMC's words."""
        return messages_of({"@Message.ExtendedInfo": _part(self.bios, _SETTINGS).get("Messages")})


def read_state(bmc: Acts, *, patience_s: float | None = None) -> State:
    """Read everything. Raises RedfishError, also where there is no BIOS to set."""
    system_path, system = _system(bmc, patience_s)
    return read_again(bmc, system_path, system, patience_s=patience_s)


def read_again(
    bmc: Acts, system_path: str, system: Mapping[str, Any] | None = None, *, patience_s: float | None = None
) -> State:
    """As read_state(), of a system that is known."""
    if system is None:
        system = bmc.get(system_path, patience_s=patience_s).document
    where = f"{bmc.origin}{system_path}"
    bios_path = _link(system, "Bios")
    if bios_path is None:
        raise RedfishError("the system has no Bios", where=where)
    bios = bmc.get(bios_path, patience_s=patience_s).document
    settings_path = _link(bios, _SETTINGS, "SettingsObject")
    if settings_path is None:
        remedy = "this BMC cannot set the BIOS by Redfish: leave bmc.bios out and set it by hand"
        raise RedfishError("the Bios has no settings object", where=f"{bmc.origin}{bios_path}", remedy=remedy)
    settings = bmc.get(settings_path, patience_s=patience_s)
    return State(system_path, system, bios, settings_path, settings.document, settings.etag)


def read_registry(bmc: Acts, state: State) -> Registry | None:
    """The registry of the BIOS's attributes; None if the BMC has none."""
    name = state.bios.get("AttributeRegistry")
    if not isinstance(name, str) or not name:
        return None
    for path in _candidates(bmc, name):
        document = bmc.get(path).document
        if "RegistryEntries" in document:
            return parse_registry(document)
        ids = (path.rstrip("/").rpartition("/")[2], document.get("Registry"))
        if not any(_same_registry(each, name) for each in ids):
            continue
        locations = document.get("Location")
        for place in _english_first(locations if isinstance(locations, list) else []):
            return parse_registry(bmc.get(place).document)
    return None


def _candidates(bmc: Acts, name: str) -> list[str]:
    """Registries by their link: the one of that name first, then those that may be it under another."""
    try:
        members = bmc.get(f"{ROOT}/Registries").document.get("Members")
    except NotThere:
        return []
    links = [link for each in members if (link := _link(each))] if isinstance(members, list) else []
    exact = [link for link in links if link.rstrip("/").rpartition("/")[2] == name]
    near = [link for link in links if "bios" in link.lower() and link not in exact]
    return exact + near


def _same_registry(id_: Any, name: str) -> bool:
    """Whether an id is that of the registry; its version may be written in another way (v1_0_0, 1.0.0)."""
    return isinstance(id_, str) and id_.partition(".")[0].lower() == name.partition(".")[0].lower()


def _english_first(locations: list[Any]) -> list[str]:
    known = [each for each in locations if isinstance(each, Mapping) and isinstance(each.get("Uri"), str)]
    known.sort(key=lambda each: not str(each.get("Language", "")).lower().startswith("en"))
    return [str(each["Uri"]) for each in known]


def _system(bmc: Acts, patience_s: float | None) -> tuple[str, Mapping[str, Any]]:
    """The first system with a BIOS; a GPU baseboard that is listed as a system has none."""
    path = f"{ROOT}/Systems"
    members = bmc.get(path, patience_s=patience_s).document.get("Members")
    for member in members if isinstance(members, list) else []:
        link = _link(member)
        if link is not None:
            system = bmc.get(link, patience_s=patience_s).document
            if _link(system, "Bios") is not None:
                return link, system
    raise RedfishError("no system with a Bios is listed", where=f"{bmc.origin}{path}")


def _link(document: Any, *keys: str) -> str | None:
    inner = _part(document, *keys) if isinstance(document, Mapping) else {}
    target = inner.get("@odata.id")
    return target.partition("#")[0] if isinstance(target, str) else None


def _part(document: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    for key in keys:
        inner = document.get(key)
        if not isinstance(inner, Mapping):
            return {}
        document = inner
    return document


def _attributes(document: Mapping[str, Any]) -> dict[str, Any]:
    return dict(_part(document, "Attributes"))
