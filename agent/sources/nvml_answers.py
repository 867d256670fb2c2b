"""The NVML child's replies, checked and turned into typed readings; anything unexpected is a ParseError."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent.errors import ParseError
from agent.sources.gpu_reading import (
    GROUP_FIELDS,
    LARGEST_NUMBER,
    GpuIdentity,
    GpuReading,
    NvmlGroup,
    NvmlRefusal,
    SystemReading,
)
from agent.sources.nvml_roster import pci_address

#: The type at the head of a description in GROUP_FIELDS -> whether a value is plainly of it, and the getter
#: that judges every other value and says what is wrong with it.
_KINDS: dict[str, tuple[Callable[[Any], bool], Callable[[GpuReading, str], object]]] = {
    "int": (lambda value: type(value) is int, GpuReading.integer),
    "float": (lambda value: type(value) is float and abs(value) < LARGEST_NUMBER, GpuReading.number),
    "bool": (lambda value: type(value) is bool, GpuReading.boolean),
    "list[int]": (lambda value: _list_of(int, value), GpuReading.integers),
    "list[float]": (lambda value: value == [], GpuReading.numbers),
    "list[bool]": (lambda value: _list_of(bool, value), GpuReading.booleans),
}
_KIND_OF = {
    group: {field: _KINDS[text.split(",")[0].split()[0]] for field, text in fields.items()}
    for group, fields in GROUP_FIELDS.items()
}


def _list_of(kind: type, value: object) -> bool:
    return type(value) is list and all(type(each) is kind for each in value)


def typed_values(group: NvmlGroup, values: object) -> dict[str, Any]:
    """Values as the child gave them: exactly the fields of the group, each a refusal or of its type."""
    kinds = _KIND_OF[group]
    if not isinstance(values, dict) or values.keys() != kinds.keys():
        raise ParseError(f"the NVML process sent the wrong fields for {group}")
    typed = {field: _refusal_or_value(value) for field, value in values.items()}
    for field, (plainly, getter) in kinds.items():
        if not plainly(typed[field]) and not isinstance(typed[field], NvmlRefusal):
            getter(GpuReading("", group, 0.0, typed), field)
    return typed


def _refusal_or_value(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    name = value.get("error")
    if not isinstance(name, str):
        raise ParseError(f"the NVML process sent {value!r} as a value")
    return NvmlRefusal(name)


def refusals(values: Mapping[str, Any]) -> set[str]:
    """Names of the NVML errors among the values."""
    return {value.name for value in values.values() if isinstance(value, NvmlRefusal)}


def system_reading(values: object) -> SystemReading:
    """Versions and device count."""
    part = _Part(values, "system")
    return SystemReading(
        driver_version=part.text("driver_version"),
        nvml_version=part.text("nvml_version"),
        cuda_version=part.integer("cuda_version"),
        device_count=part.integer("device_count"),
    )


def gpu_identity(index: int, values: object) -> GpuIdentity:
    """Who a GPU is."""
    part = _Part(values, "identity")
    try:
        address = pci_address(part.text("pci_bus_id"))
    except ValueError:
        raise ParseError(f"NVML gives {part.text('pci_bus_id')!r} as a PCI address") from None
    return GpuIdentity(
        index=index,
        uuid=part.text("uuid"),
        pci_bus_id=address,
        name=part.optional("name", str),
        serial=part.optional("serial", str),
        vbios=part.optional("vbios", str),
        minor=part.optional("minor", int),
    )


class _Part:
    """Typed access to a JSON object of the child."""

    def __init__(self, values: object, what: str) -> None:
        if not isinstance(values, Mapping):
            raise ParseError(f"the NVML process sent no {what}")
        self._values = values
        self._what = what

    def optional(self, key: str, kind: type) -> Any:
        value = self._values.get(key)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise ParseError(f"the NVML process sent {value!r} as {self._what}.{key}")
        return value

    def _needed(self, key: str, kind: type) -> Any:
        value = self.optional(key, kind)
        if value is None:
            raise ParseError(f"the NVML process sent no {self._what}.{key}")
        return value

    def text(self, key: str) -> str:
        value: str = self._needed(key, str)
        return value

    def integer(self, key: str) -> int:
        value: int = self._needed(key, int)
        return value
