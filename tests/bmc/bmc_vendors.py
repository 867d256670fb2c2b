"""How the BMCs of some vendors differ: ids, paths, BIOS attributes, what they do with settings. SIMULATED.

Names and values that were seen in vendors' own samples and in tools that talk to such machines; no list is
complete, and another model or BIOS version has others. The names of `generic` are ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bmc_attributes import Attribute, Value, attributes

ON_OFF = "Enabled Disabled"
_PROFILE = ("SysProfile", "Custom")
_WORKLOAD = ("WorkloadProfile", "Custom")


@dataclass(frozen=True)
class Vendor:
    """One flavour of BMC."""

    name: str
    manufacturer: str
    model: str
    bios_version: str
    attributes: dict[str, Attribute]
    system: str = "1"
    chassis: str = "1"
    manager: str = "1"
    settings: str = "Bios/Settings"
    #: What Settings shows when nothing is set: "delta" only what waits, "full" every attribute.
    pending_view: str = "delta"
    apply_times: tuple[str, ...] = ("OnReset",)
    #: Dell: what is set waits until a job is made for it, by an apply time in the same request.
    needs_apply_time: bool = False
    #: Dell: with a job scheduled, nothing more can be set.
    locks_when_scheduled: bool = False
    #: HPE: no settings while the machine is in POST.
    refuses_in_post: bool = False
    #: Supermicro: the current Bios takes a PATCH too, and stages it.
    patch_current: bool = False
    numbered_values: bool = False
    registry: str = "BiosAttributeRegistry.v1_0_0"
    registry_uri: str = (
        "/redfish/v1/Registries/BiosAttributeRegistry.v1_0_0/BiosAttributeRegistry.v1_0_0.json"
    )
    #: Where AC power is cycled: (resource path below /redfish/v1, action, the ResetType that does it).
    ac_cycle: tuple[str, str, str] = (
        "Chassis/BMC_0", "Oem/NvidiaChassis.AuxPowerReset", "AuxPowerCycleForce",
    )  # fmt: skip
    #: HPE: only with the host switched off.
    ac_needs_off: bool = False
    #: Whether ResetType FullPowerCycle is offered, and whether it reaches the GPU baseboard.
    full_power_cycle: bool = True
    full_power_cycle_reaches_baseboard: bool = True
    on_when_on: int = 204
    #: HPE: every link ends with a slash.
    slashes: bool = False
    #: Whether the GPU baseboard is listed before the machine itself, as NVIDIA's own BMCs do.
    baseboard_first: bool = False
    #: What a value of a profile-like attribute sets besides: (attribute, value) -> others.
    implied: dict[tuple[str, str], dict[str, Value]] = field(default_factory=dict)


def vendor(name: str, cpu: str | None = None) -> Vendor:
    """The flavour of a name; `cpu` amd or intel where there are both."""
    key = f"{name}-{cpu}" if cpu else name
    if key not in VENDORS:
        raise ValueError(f"no vendor {key!r}; there are {', '.join(VENDORS)}")
    return VENDORS[key]


_DELL = (
    Attribute("SystemModelName", "", kind="String", read_only=True),
    Attribute("SystemBiosVersion", "", kind="String", read_only=True),
    (
        "SysProfile",
        "PerfPerWattOptimizedDapc PerfPerWattOptimizedOs PerfOptimized Custom",
        "PerfPerWattOptimizedDapc",
    ),
    ("WorkloadProfile", "NotAvailable NotConfigured HpcProfile LowLatencyOptimizedProfile", "NotConfigured"),
    Attribute("ProcCStates", "Enabled", ("Enabled", "Disabled", "Autonomous"), hinges=_PROFILE),
    Attribute("ProcC1E", "Enabled", ("Enabled", "Disabled"), hinges=_PROFILE),
    Attribute("ProcPwrPerf", "SysDbpm", ("MaxPerf", "SysDbpm", "OsDbpm", "HWPDBPM"), hinges=_PROFILE),
    Attribute("ProcTurboMode", "Enabled", ("Enabled", "Disabled"), hinges=_PROFILE),
    Attribute("PcieAspmL1", "Enabled", ("Enabled", "Disabled"), hinges=_PROFILE),
    ("SriovGlobalEnable", ON_OFF, "Disabled"),
    ("ProcVirtualization", ON_OFF, "Enabled"),
    ("ProcX2Apic", ON_OFF, "Enabled"),
    ("LogicalProc", ON_OFF, "Enabled"),
    ("NodeInterleave", ON_OFF, "Disabled"),
    ("MmioAbove4Gb", ON_OFF, "Enabled"),
    ("MemoryMappedIOH", "56TB 24TB 12TB 512GB", "56TB"),
    ("BootMode", "Uefi Bios", "Uefi"),
    ("AcPwrRcvry", "On Off Last", "Last"),
    ("AcPwrRcvryDelay", "Immediate User Random", "Immediate"),
    Attribute(
        "AcPwrRcvryUserDelay", 120, kind="Integer", lower=120, upper=600, hinges=("AcPwrRcvryDelay", "User")
    ),
    Attribute("AssetTag", "", kind="String"),
)
_DELL_INTEL = (
    *_DELL,
    ("SubNumaCluster", "Disabled 2-way 4-way", "Disabled"),
    ("IoatEngine", ON_OFF, "Disabled"),
    Attribute("UncoreFrequency", "DynamicUFS", ("DynamicUFS", "MaxUFS"), hinges=_PROFILE),
    Attribute(
        "EnergyPerformanceBias",
        "BalancedPerformance",
        ("MaxPower", "BalancedPerformance", "BalancedEfficiency", "LowPower"),
        hinges=_PROFILE,
    ),
    Attribute("MonitorMwait", "Enabled", ("Enabled", "Disabled"), hinges=_PROFILE),
    Attribute("ControlledTurbo", "Disabled", ("Enabled", "Disabled"), hinges=_PROFILE),
)
_DELL_AMD = (
    *_DELL,
    ("NumaNodesPerSocket", "0 1 2 4", "1"),
    ("CcxAsNumaDomain", ON_OFF, "Disabled"),
    ("IommuSupport", ON_OFF, "Enabled"),
    Attribute(
        "DeterminismSlider", "PerfDeterminism", ("PerfDeterminism", "PowerDeterminism"), hinges=_PROFILE
    ),
)
_PERF_OPTIMIZED: dict[str, Value] = {
    "ProcCStates": "Disabled",
    "ProcC1E": "Disabled",
    "ProcPwrPerf": "MaxPerf",
    "PcieAspmL1": "Disabled",
    "UncoreFrequency": "MaxUFS",
    "EnergyPerformanceBias": "MaxPower",
}
_DAPC: dict[str, Value] = {
    "ProcCStates": "Enabled",
    "ProcC1E": "Enabled",
    "ProcPwrPerf": "SysDbpm",
    "PcieAspmL1": "Enabled",
    "UncoreFrequency": "DynamicUFS",
    "EnergyPerformanceBias": "BalancedPerformance",
}


def _dell(name: str, model: str, version: str, each: tuple[Attribute | tuple[str, str, str], ...]) -> Vendor:
    return Vendor(
        name,
        "Dell Inc.",
        model,
        version,
        attributes(*each),
        system="System.Embedded.1",
        chassis="System.Embedded.1",
        manager="iDRAC.Embedded.1",
        apply_times=("OnReset", "AtMaintenanceWindowStart", "InMaintenanceWindowOnReset"),
        needs_apply_time=True,
        locks_when_scheduled=True,
        registry_uri="/redfish/v1/Systems/System.Embedded.1/Bios/BiosRegistry",
        ac_cycle=("Chassis/System.Embedded.1", "Oem/DellOemChassis.ExtendedReset", "PowerCycle"),
        full_power_cycle_reaches_baseboard=False,
        on_when_on=409,
        implied={
            ("SysProfile", "PerfOptimized"): _PERF_OPTIMIZED,
            ("SysProfile", "PerfPerWattOptimizedDapc"): _DAPC,
        },
    )


_SUPERMICRO_AMD = (
    Attribute("QuietBoot", True, kind="Boolean"),
    ("IOMMU", "Disabled Enabled Auto", "Auto"),
    ("SR-IOVSupport", "Disabled Enabled", "Disabled"),
    ("ASPMSupport", "Disabled Auto", "Auto"),
    ("ACSEnable", "Disable Enable Auto", "Auto"),
    ("Above4GDecoding", "Disabled Enabled", "Enabled"),
    ("NUMANodesPerSocket", "NPS0 NPS1 NPS2 NPS4 Auto", "Auto"),
    ("MemoryInterleaving", "Disabled Enabled Auto", "Auto"),
    ("GlobalC-stateControl", "Disabled Enabled Auto", "Auto"),
    ("DFCstates", "Disabled Enabled Auto", "Auto"),
    ("CorePerformanceBoost", "Disabled Auto", "Auto"),
    ("DeterminismControl", "Manual Auto", "Auto"),
    Attribute(
        "DeterminismEnable", "Performance", ("Power", "Performance"), hinges=("DeterminismControl", "Manual")
    ),
    (
        "PowerProfileSelection",
        "High Performance Mode|Efficiency Mode|Maximum IO Performance Mode",
        "Efficiency Mode",
    ),
    ("PCIeTenBitTagSupport", "Disabled Enabled Auto", "Auto"),
    ("SMTControl", "Disable Enable Auto", "Auto"),
    ("SVMMode", "Disabled Enabled", "Enabled"),
    ("SMEE", "Disable Enable Auto", "Auto"),
    ("SEV-SNPSupport", "Disabled Enabled", "Disabled"),
)
_SUPERMICRO_INTEL = (
    Attribute("QuietBoot_0027", True, kind="Boolean", label="Quiet Boot"),
    Attribute("OptionROMMessages_0028", "Force BIOS", ("Keep Current", "Force BIOS"), label="Option ROM"),
    Attribute("SR_IOVSupport_0048", "Disabled", ("Disabled", "Enabled"), label="SR-IOV Support"),
    Attribute("ASPMSupport_004B", "Auto", ("Disabled", "Auto"), label="ASPM Support"),
    Attribute("Above4GDecoding_0047", "Enabled", ("Disabled", "Enabled"), label="Above 4G Decoding"),
    Attribute("SNC_010A", "Disable", ("Disable", "Enable SNC2", "Auto"), label="SNC"),
    Attribute(
        "IntelVTforDirectedI_O_VT_d_1E12", "Enable", ("Disable", "Enable"), label="VT-d"
    ),
    Attribute(
        "PowerTechnology_0105", "Energy Efficient", ("Disable", "Energy Efficient", "Custom"), label="Power"
    ),
    Attribute(
        "PackageCState_0111", "Auto", ("C0/C1 state", "C2 state", "Auto"), label="Package C State",
        hinges=("PowerTechnology_0105", "Custom"),
    ),
)  # fmt: skip


def _supermicro(
    name: str, model: str, version: str, each: tuple[Attribute | tuple[str, str, str], ...], *, numbered: bool
) -> Vendor:
    return Vendor(
        name,
        "Supermicro",
        model,
        version,
        attributes(*each),
        settings="Bios/SD",
        patch_current=True,
        numbered_values=numbered,
        registry="BiosAttributeRegistry.1_0_0",
        registry_uri="/redfish/v1/Registries/BiosAttributeRegistry.1.0.0.json",
        ac_cycle=("Systems/1", "Oem/OemSystemExtensions.Reset", "ACCycle"),
        full_power_cycle=False,
    )


_HPE_AMD = (
    (
        "WorkloadProfile",
        "GeneralPowerEfficientCompute|GeneralPeakFrequencyCompute|GeneralThroughputCompute|"
        "Virtualization-MaxPerformance|LowLatency|HighPerformanceCompute(HPC)|GraphicProcessing|I/OThroughput|Custom",
        "GeneralPowerEfficientCompute",
    ),
    ("Sriov", ON_OFF, "Enabled"),
    ("ProcAmdIoVt", ON_OFF, "Enabled"),
    ("ProcSMT", ON_OFF, "Enabled"),
    Attribute("MinProcIdlePower", "C6", ("C6", "NoCStates"), hinges=_WORKLOAD),
    Attribute(
        "PowerRegulator",
        "OsControl",
        ("DynamicPowerSavings", "StaticHighPerf", "OsControl"),
        hinges=_WORKLOAD,
    ),
    Attribute("DataFabricCStateEnable", "Auto", ("Auto", "Enabled", "Disabled"), hinges=_WORKLOAD),
    ("NumaGroupSizeOpt", "Flat Clustered", "Flat"),
    ("NodeInterleaving", ON_OFF, "Disabled"),
    (
        "NumaMemoryDomainsPerSocket",
        "Auto OneMemoryDomainPerSocket TwoMemoryDomainsPerSocket FourMemoryDomainsPerSocket",
        "Auto",
    ),
    *((f"PciSlot{slot}Aspm", "Disabled Auto L0s L1 L0sL1", "Auto") for slot in (1, 2, 3)),
    ("ThermalConfig", "OptimalCooling IncreasedCooling MaxCooling", "OptimalCooling"),
    Attribute("SerialNumber", "SIM0000001", kind="String", read_only=True),
    Attribute("NetworkBootRetryCount", 20, kind="Integer", lower=0, upper=20),
)
_HPE_QUIET: dict[str, Value] = {
    "MinProcIdlePower": "NoCStates",
    "PowerRegulator": "StaticHighPerf",
    "DataFabricCStateEnable": "Disabled",
}
_GENERIC = (
    ("ACSControl", ON_OFF, "Enabled"),
    ("NumaNodesPerSocket", "0 1 2 4", "1"),
    ("SriovGlobalEnable", ON_OFF, "Disabled"),
    ("PcieAspm", "Enabled Disabled Auto", "Auto"),
    ("IommuSupport", ON_OFF, "Enabled"),
    ("CStates", ON_OFF, "Enabled"),
    ("PowerProfile", "Balanced Performance Custom", "Balanced"),
    ("MemoryInterleave", "Channel None Auto", "Auto"),
    ("NvlinkTopology", "Mesh Auto", "Auto"),
    ("Above4gDecoding", ON_OFF, "Enabled"),
    Attribute("TurboPower", 80, kind="Integer", lower=1, upper=100, hinges=("PowerProfile", "Custom")),
    Attribute("BootRetryCount", 3, kind="Integer", lower=0, upper=10),
    Attribute("QuietBoot", True, kind="Boolean"),
    Attribute("AssetTag", "", kind="String"),
    Attribute("BiosReleaseDate", "01/15/2026", kind="String", read_only=True),
)
_MANY = {
    "dell": _dell("dell", "PowerEdge XE9680", "2.4", _DELL_INTEL),
    "dell-intel": _dell("dell", "PowerEdge XE9680", "2.4", _DELL_INTEL),
    "dell-amd": _dell("dell", "PowerEdge XE9785L", "1.3.2", _DELL_AMD),
    "supermicro": _supermicro("supermicro", "AS -8126GS-TNMR", "1.4", _SUPERMICRO_AMD, numbered=False),
    "supermicro-amd": _supermicro("supermicro", "AS -8126GS-TNMR", "1.4", _SUPERMICRO_AMD, numbered=False),
    "supermicro-intel": _supermicro("supermicro", "SYS-821GE-TNHR", "2.1", _SUPERMICRO_INTEL, numbered=True),
    "hpe": Vendor(
        "hpe",
        "HPE",
        "ProLiant Compute XD685",
        "A64 v1.20 (01/15/2026)",
        attributes(*_HPE_AMD),
        pending_view="full",
        refuses_in_post=True,
        ac_needs_off=True,
        slashes=True,
        registry="BiosAttributeRegistryA64.v1_1_20",
        registry_uri="/redfish/v1/registrystore/registries/en/biosattributeregistrya64.v1_1_20",
        ac_cycle=("Systems/1", "Oem/Hpe/HpeComputerSystemExt.SystemReset", "AuxCycle"),
        full_power_cycle=False,
        implied={
            ("WorkloadProfile", value): _HPE_QUIET for value in ("LowLatency", "HighPerformanceCompute(HPC)")
        },
    ),
    "generic": Vendor(
        "generic",
        "SIMULATED",
        "HGX H200 8-GPU",
        "2.4",
        attributes(*_GENERIC),
        manager="BMC",
        baseboard_first=True,
    ),
}
VENDORS: dict[str, Vendor] = _MANY
