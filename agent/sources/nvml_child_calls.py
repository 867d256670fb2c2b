"""Calls of nvidia-ml-py by the NVML child: a refused value is data, a lost GPU ends the request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pynvml as nv

from agent.sources.nvml_child_loop import Refused

Json = dict[str, Any]
Handle = Any  # ctypes pointer of the binding

#: The GPU is gone as a whole: no value of the group means anything.
LOST = ("GPU_IS_LOST", "RESET_REQUIRED")
#: nvmlValueType_t -> member of the value union.
VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")

_ERROR_NAMES: dict[int, str] = {
    value: name.removeprefix("NVML_ERROR_")
    for name, value in vars(nv).items()
    if name.startswith("NVML_ERROR_") and isinstance(value, int)
}


def refusal(name: str) -> Json:
    """What stands in place of a value; raises Refused when the whole GPU is lost."""
    if name in LOST:
        raise Refused(name)
    return {"error": name}


def refused(value: object) -> bool:
    """Whether a value is a refusal."""
    return isinstance(value, dict)


def error_name(code: int) -> str:
    """An NVML error code as its name without NVML_ERROR_."""
    return _ERROR_NAMES.get(code, f"ERROR_{code}")


def demand(function: str, *args: object) -> Any:
    """Call a function of the binding; Refused with NVML's error, or when this binding does not have it."""
    call = getattr(nv, function, None)
    if call is None:
        raise Refused("FUNCTION_NOT_FOUND")
    try:
        return call(*args)
    except nv.NVMLError as error:
        raise Refused(error_name(error.value)) from None
    except UnicodeDecodeError:
        raise Refused("NOT_TEXT") from None


def ask(function: str, *args: object, convert: Callable[[Any], Any] | None = None) -> Any:
    """Like `demand`, but a refusal becomes the value, unless the GPU is lost."""
    try:
        value = demand(function, *args)
    except Refused as no:
        return refusal(no.name)
    return convert(value) if convert else value


def field_values(handle: Handle, fields: Sequence[tuple[int, int]]) -> list[Any]:
    """Values of (field id, scope id) pairs in one call, each read by the type that NVML gives it."""
    answers = ask("nvmlDeviceGetFieldValues", handle, fields)
    if refused(answers):
        return [answers] * len(fields)
    return [_field_value(answer) for answer in answers]


def _field_value(answer: Any) -> Any:
    if answer.nvmlReturn:
        return refusal(error_name(answer.nvmlReturn))
    if answer.valueType >= len(VALUE_MEMBERS):
        return refusal("VALUE_TYPE_UNKNOWN")
    return getattr(answer.value, VALUE_MEMBERS[answer.valueType])
