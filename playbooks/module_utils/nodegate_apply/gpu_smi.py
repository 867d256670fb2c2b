"""GPUs as nvidia-smi tells of them, in PCI bus order: one call a look.

`nvidia-smi --query-gpu=... --format=csv,noheader,nounits`; a value that a GPU does not have is `[N/A]` or
`[Not Supported]`. Fields and words as read from driver 580.159.04.
"""

from __future__ import annotations

from .host import Host, HostError
from .shared_look import SharedLook

FIELDS = (
    "index", "uuid", "pci.bus_id", "name", "power.limit", "enforced.power.limit", "power.default_limit",
    "power.min_limit", "power.max_limit", "persistence_mode", "ecc.mode.current", "ecc.mode.pending",
    "mig.mode.current", "mig.mode.pending",
)  # fmt: skip
_QUERY = ("nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits")
#: Without persistence the driver starts all GPUs anew for the question: seconds each.
_QUERY_S = 90.0
_SET_S = 90.0
_NONE = frozenset({"[N/A]", "N/A", "[Not Supported]", "Not Supported", "[Not Found]"})

Gpu = dict[str, str]


def parse(text: str) -> list[Gpu]:
    """Rows by field, in PCI bus order. Raises HostError."""
    gpus = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        # `WARNING: infoROM is corrupted at gpu ...` stands among the rows.
        if not line.strip() or line.lstrip().upper().startswith("WARNING:"):
            continue
        if len(cells) != len(FIELDS):
            raise HostError(f"nvidia-smi: says {line.strip()[:120]!r}, not {len(FIELDS)} values")
        gpus.append(dict(zip(FIELDS, cells, strict=True)))
    return sorted(gpus, key=lambda gpu: gpu["pci.bus_id"].upper())


def has(value: str) -> bool:
    """Whether the GPU has this value at all."""
    return value not in _NONE


def value_of(gpu: Gpu, field: str, slot: int) -> str:
    """A value, or that the GPU has none. Raises HostError for an error in its place, as of a lost GPU."""
    text = gpu[field]
    if text.startswith("[") and has(text):
        raise HostError(
            f"nvidia-smi says {text[:60]} for {field} of gpu{slot}: look at the kernel log (Xid);"
            " the GPU or the node has to be reset"
        )
    return text


class Smi:
    """The node's GPUs."""

    def __init__(self, host: Host, count: int) -> None:
        """`count`: GPUs that there must be."""
        self._host, self._count = host, count
        self._look = SharedLook(self._fetch)

    def gpu(self, slot: int, reader: str) -> Gpu:
        """The GPU in a slot. Raises HostError."""
        gpus = self._look.get(f"{slot} {reader}")
        if len(gpus) != self._count:
            raise HostError(
                f"nvidia-smi lists {len(gpus)} GPUs, the profile has {self._count}: look for the missing one"
                " (nodegate check), or correct gpus.count"
            )
        return gpus[slot]

    def forget(self) -> None:
        """Something was changed."""
        self._look.forget()

    def change(self, slot: int, *words: str) -> None:
        """Set something of the GPU in a slot, by its UUID. Raises HostError."""
        uuid = self.gpu(slot, f"change {' '.join(words)}")["uuid"]
        try:
            self._host.must(["nvidia-smi", "-i", uuid, *words], timeout_s=_SET_S)
        finally:
            self._look.forget()

    def _fetch(self) -> list[Gpu]:
        return parse(self._host.must(list(_QUERY), timeout_s=_QUERY_S))
