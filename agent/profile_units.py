"""Units of profile fields: the last part of a field's name says what its number counts."""

from __future__ import annotations

import re

#: Name suffix -> unit as people write it; longest suffixes first, so that `_mb_s` is not read as seconds.
UNITS = {
    "_l_per_min": "L/min",
    "_mb_s": "MB/s",
    "_gb_s": "GB/s",
    "_per_gpu": "per GPU",
    "_percent": "percent",
    "_bytes": "bytes",
    "_gbps": "Gb/s",
    "_per_s": "per second",
    "_mhz": "MHz",
    "_mib": "MiB",
    "_gib": "GiB",
    "_gts": "GT/s",
    "_us": "us",
    "_ms": "ms",
    "_s": "s",
    "_w": "W",
    "_c": "C",
}

#: Suffixes that are no unit of any profile field, but that people write.
_FOREIGN = (
    "_kw",
    "_mw",
    "_watt",
    "_watts",
    "_sec",
    "_secs",
    "_seconds",
    "_min",
    "_minutes",
    "_h",
    "_hours",
    "_d",
    "_days",
    "_ns",
    "_hz",
    "_ghz",
    "_k",
    "_f",
    "_pct",
    "_gb",
    "_mb",
    "_kib",
    "_kb",
    "_gbit",
    "_mbps",
    "_tbps",
)

#: Numeric fields that count things or name them and so have no unit.
UNITLESS = frozenset(
    [
        "schema_version",
        "count",
        "numa_node",
        "pins",
        "port",
        "agent_check_port",
        "gpu",
        "gpus",
        "domains",
        "priority",
        "dscp",
        "max_tokens",
        "restart_after",
        "requests",
        "concurrent",
        "factor",
        "jitter",
        "crashes",
        "bios",
        "cnp_dscp",
        "engine_limits",
        "gid_index",
        "hugepages",
        "links",
        "numa_nodes",
        "numa_nodes_per_socket",
        "order",
        "nvswitches",
        "pcie_generation",
        "pcie_width",
        "sysctl",
        "cpus",
        "long_prompt_tokens",
        "master_port",
        "min_decode",
        "min_prefill",
        "peers",
        "pids",
        "ports",
        "prompt_tokens",
        "rank",
        "rx_ring",
        "tx_ring",
        "shards",
    ]
)

_NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_WITH_UNIT = re.compile(rf"({_NUMBER})\s*([A-Za-z%°µ][A-Za-z/%°µ]{{0,11}})")


def unit_of(field: str) -> str | None:
    """The unit of a field by its name, None when it has none."""
    return next((unit for suffix, unit in UNITS.items() if field.endswith(suffix)), None)


def split_unit(value: str) -> tuple[str, str] | None:
    """`700W` -> (`700`, `W`); None when the text is no number followed by a unit."""
    match = _WITH_UNIT.fullmatch(value.strip())
    return (match.group(1), match.group(2)) if match else None


def _stem(name: str) -> str:
    """A name without its unit suffix."""
    for suffix in sorted((*UNITS, *_FOREIGN), key=len, reverse=True):
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


def same_but_unit(key: str, fields: list[str]) -> str | None:
    """The field that an unknown key means when only its unit suffix is wrong or missing."""
    return next((field for field in fields if unit_of(field) and _stem(field) == _stem(key)), None)
