"""The node as a small map: a tile for each GPU with its links and the NIC ports next to it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.evaluate import is_stale
from agent.model import Result, Snapshot, Verdict, gpu_slot_of, worst
from agent.node_profile import NodeProfile
from agent.page.spark import Curve, Look, curve
from agent.page.words import TONE_OF_VERDICT, Tone, cut, lasted, mark_of, number
from agent.recent_history import SeriesKey
from agent.rows import natural

_TEMPERATURE = Look("temperature", "C", 10.0)
_POWER = Look("power", "W", 100.0)
_CLOCK = Look("SM clock", "MHz", 200.0, min)
_FLOW = Look("flow", "l/min", 5.0, min)
#: With more GPUs than these each curve has a quarter of the points: a page stays small.
_MANY_GPUS = 8
#: A tile says what is the matter, the finding says all of it.
_TILE_CHARS = 140
_LOOP = (
    ("coolant_inlet_celsius", "coolant in", _TEMPERATURE),
    ("coolant_outlet_celsius", "coolant out", _TEMPERATURE),
    ("coolant_flow_liters_per_minute", "coolant flow", _FLOW),
    ("air_inlet_celsius", "air in", _TEMPERATURE),
    ("node_power_draw_watts", "power", _POWER),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One quantity: its name, its value with unit (or `unknown`), its curve."""

    name: str
    value: str
    curve: Curve | None = None


@dataclass(frozen=True, slots=True)
class Plane:
    """One port of a NIC."""

    port: int
    verdict: str
    text: str

    @property
    def tone(self) -> Tone:
        """For its colour."""
        return TONE_OF_VERDICT[self.verdict]

    @property
    def mark(self) -> str:
        """The sign in it."""
        return mark_of(self.verdict)


@dataclass(frozen=True, slots=True)
class Nic:
    """One NIC: a port, or the planes of one card."""

    device: str
    planes: Sequence[Plane]

    @property
    def well(self) -> int:
        """How many planes pass."""
        return sum(plane.verdict in (Verdict.PASS, Verdict.SKIP) for plane in self.planes)


@dataclass(frozen=True, slots=True)
class Tile:
    """One GPU. `used` is its temperature as a share (0 to 100) of that at which it slows itself down."""

    name: str
    verdict: str
    problem: str
    engines: str
    temperature: str
    memory: str
    margin: str
    used: int | None
    curve: Curve | None
    rows: Sequence[Row]
    links: tuple[int, int] | None
    nics: Sequence[Nic]

    @property
    def tone(self) -> Tone:
        """For its colour."""
        return TONE_OF_VERDICT[self.verdict]

    @property
    def mark(self) -> str:
        """The sign beside the verdict."""
        return mark_of(self.verdict)


@dataclass(frozen=True, slots=True)
class NodeMap:
    """GPUs by NVLink domain, NICs of no GPU, and what the BMC and cooling units tell."""

    domains: Sequence[Sequence[Tile]]
    nics: Sequence[Nic]
    loop: Sequence[Row]


class MapMaker:
    """Makes the map of one publication."""

    def __init__(
        self,
        profile: NodeProfile,
        snapshot: Snapshot | None,
        series: Mapping[SeriesKey, list[float | None]],
        times_s: Sequence[float],
        now_mono_s: float,
    ) -> None:
        """Sort the results by what they are about."""
        self._profile = profile
        self._series = series
        self._times_s = times_s
        self._now_mono_s = now_mono_s
        self._step = 4 if profile.gpus.count > _MANY_GPUS else 1
        self._results = tuple(snapshot.results.values()) if snapshot else ()
        self._fresh = {
            (measure.name, result.subject): measure.value
            for result in self._results
            if result.measures and not is_stale(result, now_mono_s)
            for measure in result.measures
        }
        self._of: dict[str, list[Result]] = {}
        for result in self._results:
            slot = gpu_slot_of(result.subject)
            self._of.setdefault(result.subject if slot is None else f"gpu{slot}", []).append(result)

    def make(self) -> NodeMap:
        """The whole map."""
        count = self._profile.gpus.count
        domains = self._profile.nvlink.domains or [list(range(count))]
        placed = {slot for domain in domains for slot in domain}
        rest = [slot for slot in range(count) if slot not in placed]
        tiles = [[self._tile(slot) for slot in domain] for domain in (*domains, rest) if domain]
        return NodeMap(tiles, self._nics(None), self._loop())

    def _tile(self, slot: int) -> Tile:
        name = f"gpu{slot}"
        verdict, problem = self._judged(name)
        heat = self._fresh.get(("gpu_temperature_celsius", name))
        margin = self._fresh.get(("gpu_tlimit_margin_celsius", name))
        # NVML says 0 of a memory without that sensor.
        memory = self._fresh.get(("gpu_memory_temperature_celsius", name))
        known = heat is not None and margin is not None and heat + margin > 0
        return Tile(
            name=name,
            verdict=verdict,
            problem=problem,
            engines=", ".join(e for e, engine in self._profile.engines.items() if slot in engine.gpus),
            temperature="unknown" if heat is None else f"{number(heat)} °C",
            memory="" if not memory else f"memory {number(memory)} °C",
            margin="margin unknown" if margin is None else f"{number(margin)} °C to slowdown",
            used=min(100, max(0, round(100 * heat / (heat + margin)))) if known and heat and margin else None,
            curve=self._curve("gpu_temperature_celsius", name, _TEMPERATURE),
            rows=self._rows(name),
            links=self._links(name),
            nics=self._nics(slot),
        )

    def _rows(self, name: str) -> list[Row]:
        """The quantities of a GPU that there are, beside its temperature."""
        limit = self._fresh.get(("gpu_power_limit_watts", name))
        load = self._fresh.get(("gpu_utilization_percent", name))
        of = f" of {number(limit)}" if limit is not None else ""
        rows = [
            self._row("power", "gpu_power_draw_watts", name, f"{of} W", _POWER),
            self._row("clock", "gpu_sm_clock_megahertz", name, " MHz", _CLOCK),
        ]
        if load is not None:
            rows.append(Row("load", f"{number(load)} %"))
        return [row for row in rows if row.value or row.curve]

    def _row(self, what: str, metric: str, subject: str, after: str, look: Look) -> Row:
        """A value with what stands `after` it; one that was known a while ago is said to be unknown."""
        value = self._fresh.get((metric, subject))
        lost = "unknown" if (metric, subject) in self._series else ""
        text = lost if value is None else f"{number(value)}{after}"
        return Row(what, text, self._curve(metric, subject, look))

    def _curve(self, metric: str, subject: str, look: Look) -> Curve | None:
        values = self._series.get((metric, subject))
        return curve(self._times_s, values, look, self._step) if values else None

    def _judged(self, name: str) -> tuple[str, str]:
        """The worst verdict that counts, and what it says; too old is UNKNOWN, nothing at all too."""
        told = [
            (Verdict.UNKNOWN if self._is_old(result) else result.verdict, result)
            for result in self._of.get(name, ())
            if not (result.waived or result.shadow)
        ]
        verdict = worst([each for each, _ in told])
        if verdict in (Verdict.PASS, Verdict.SKIP):
            return verdict.value, ""
        first = next((result for each, result in told if each is verdict), None)
        if first is None:
            return verdict.value, "not looked at yet"
        if first.verdict is not verdict:
            return verdict.value, f"{first.check} was last read {lasted(first.age_s(self._now_mono_s))} ago"
        return verdict.value, cut(f"{first.check}: {first.finding.summary}", _TILE_CHARS)

    def _is_old(self, result: Result) -> bool:
        return is_stale(result, self._now_mono_s)

    def _links(self, name: str) -> tuple[int, int] | None:
        """NVLinks that are up, of how many; None where there are none to count."""
        for result in self._of.get(name, ()):
            seen, wanted = result.finding.observed, result.finding.expected
            if result.check != "nvlink.links" or self._is_old(result):
                continue
            if type(seen) is int and type(wanted) is int:
                return (seen, wanted) if seen >= 0 and 0 < wanted <= 64 else None
        return None

    def _nics(self, slot: int | None) -> list[Nic]:
        """The NICs whose ports are nearest to a GPU; with None those of no GPU in particular."""
        count = self._profile.gpus.count
        ports: dict[str, list[Plane]] = {}
        for port in self._profile.fabric.ports:
            near = port.gpu if port.gpu is not None and port.gpu < count else None
            if near != slot:
                continue
            verdict, problem = self._judged(f"{port.device}/{port.port}")
            text = problem or f"{number(port.rate_gbps)} Gb/s"
            ports.setdefault(port.device, []).append(Plane(port.port, verdict, text))
        return [Nic(device, ports[device]) for device in sorted(ports, key=natural)]

    def _loop(self) -> list[Row]:
        """What the BMC, cooling units and PDUs tell, by name and by who tells it."""
        rows = []
        for metric, what, look in _LOOP:
            for subject in self._subjects_of(metric):
                who = "" if subject == "node" else f" ({subject})"
                unit = " °C" if look.unit == "C" else f" {look.unit}"
                rows.append(self._row(f"{what}{who}", metric, subject, unit, look))
        return rows

    def _subjects_of(self, metric: str) -> Iterable[str]:
        known = {subject for name, subject in (*self._fresh, *self._series) if name == metric}
        return sorted(known, key=natural)
