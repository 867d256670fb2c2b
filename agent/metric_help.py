"""What each measure that a check takes is, as /metrics says it: names less their prefix `nodegate_`.

Base units; names that end in `_total` are lifetime counters of the device or the engine.
"""

from __future__ import annotations

ON_GPU = {
    "gpu_temperature_celsius": "Temperature of the GPU.",
    "gpu_memory_temperature_celsius": "Temperature of the GPU's memory.",
    "gpu_tlimit_margin_celsius": "Degrees that the GPU is below the point at which it slows itself down.",
    "gpu_power_draw_watts": "Power that the GPU draws.",
    "gpu_power_limit_watts": "Power limit that is enforced.",
    "gpu_utilization_percent": "Share of time in which a kernel ran.",
    "gpu_sm_clock_megahertz": "Clock of the streaming multiprocessors.",
    "gpu_memory_used_ratio": "Share of the GPU's memory that is in use while an engine serves on it.",
    "gpu_pcie_replays_total": "PCIe replays of the GPU since the driver was loaded.",
    "nvlink_errors_total": "NVLink errors of all links of the GPU since the driver was loaded.",
}

#: What BMCs, cooling units and PDUs report; the subject says which.
BY_REDFISH = {
    "coolant_inlet_celsius": "Warmest coolant at the inlet of the node, or that the cooling unit supplies.",
    "coolant_outlet_celsius": "Warmest coolant at the outlet of the node, or that returns to the unit.",
    "coolant_flow_liters_per_minute": "Coolant flow of the node, or of the unit's secondary loop.",
    "air_inlet_celsius": "Warmest air at the inlet of the node.",
    "node_power_draw_watts": "Power that the node draws, by its BMC.",
}

#: What the checks of a running engine measure, vLLM and SGLang alike; `usual` is the check's own baseline.
ON_ENGINE = {
    "engine_generation_tokens_total": "Tokens that the engine has generated since its start.",
    "engine_requests_running": "Requests that the engine works on.",
    "engine_requests_waiting": "Requests that wait in the engine's queue.",
    "engine_preemptions_total": "Requests that the engine set back for want of cache since its start.",
    "engine_kv_cache_used_ratio": "Share of the KV cache that is in use.",
    "engine_prefix_cache_hit_ratio": "Share of prompt tokens that the prefix cache had, over the window.",
    "engine_prefix_cache_usual_hit_ratio": "The same before that window: what is usual for this engine.",
    "engine_latency_seconds": "Latency over the check's window: canary, first token, or between tokens.",
    "engine_usual_latency_seconds": "The same before that window: what is usual for this engine.",
    "engine_host_memory_bytes": "Host memory of the engine's own processes (RssAnon).",
}

HELP = ON_GPU | BY_REDFISH | ON_ENGINE


def help_of(name: str, counter: str) -> str:
    """The help text of a measure; what is in no table is a port's counter, named by its driver."""
    return HELP.get(name, f"Counter of the RDMA port, as the driver names it: {counter or name}.")
