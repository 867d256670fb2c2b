"""Calls of nvidia-ml-py by the NVML child: a refused value is data, a lost GPU ends the request."""

from __future__ import annotations

import ctypes
import functools
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

import pynvml as nv

from agent.sources.nvml_child_loop import Refused

Json = dict[str, Any]
Handle = Any  # ctypes pointer of the binding

#: The GPU is gone as a whole: no value of the group means anything.
LOST = ("GPU_IS_LOST", "RESET_REQUIRED")

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


def lasting(handle: Handle, read: Callable[[Handle], Any]) -> Any:
    """A value that is part of the board (a threshold, a limit of a limit): asked again only now and then.

    Some of these take NVML a millisecond or two, and no fault changes them. A refusal is not kept.
    """
    key = (read, ctypes.cast(handle, ctypes.c_void_p).value)
    now_s = time.monotonic()
    value, until_s = _lasting.get(key, (None, 0.0))
    if now_s >= until_s:
        value = read(handle)
        if not any(refused(each) for each in (value if isinstance(value, list) else [value])):
            _lasting[key] = (value, now_s + LASTING_S)
    return value


#: How long such a value is taken for granted. A reset or a reloaded driver start this process anew anyway.
LASTING_S = 60.0
_lasting: dict[tuple[Callable[[Handle], Any], int | None], tuple[Any, float]] = {}


def field_values(handle: Handle, fields: Sequence[tuple[int, int]]) -> list[Any]:
    """Values of (field id, scope id) pairs in one call, each read by the type that NVML gives it.

    The binding's own function makes an object for every field, which on links costs as much as NVML itself;
    here the request is a copy of a prepared one and the answer is unpacked in one go.
    """
    call = getattr(nv.nvmlLib, "nvmlDeviceGetFieldValues", None)
    if call is None:
        return [refusal("FUNCTION_NOT_FOUND")] * len(fields)
    block = ctypes.create_string_buffer(_request(tuple(fields)), len(fields) * _FIELD.size)
    code = call(handle, ctypes.c_int(len(fields)), block)
    if code:
        return [refusal(error_name(code))] * len(fields)
    return [_value(kind, no, raw) for _, _, _, _, kind, no, raw in _FIELD.iter_unpack(block.raw)]


#: nvmlFieldValue_t: field id, scope id, time stamp, latency, value type, return code, and the value's union.
_FIELD = struct.Struct("=IIqqII8s")
#: nvmlValueType_t -> how the union holds it: double, unsigned int, unsigned long (64 bits on every platform
#: of this driver), unsigned and signed long long, signed int, unsigned short.
_UNION = tuple(struct.Struct(f"={code}") for code in "dIQQqiH")


@functools.lru_cache(maxsize=64)
def _request(fields: tuple[tuple[int, int], ...]) -> bytes:
    return b"".join(_FIELD.pack(field, scope, 0, 0, 0, 0, b"") for field, scope in fields)


def _value(kind: int, no: int, raw: bytes) -> Any:
    if no:
        return refusal(error_name(no))
    if kind >= len(_UNION):
        return refusal("VALUE_TYPE_UNKNOWN")
    return _UNION[kind].unpack_from(raw)[0]
