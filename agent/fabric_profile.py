"""The network part of a node profile: data ports, NIC firmware, lossless Ethernet, InfiniBand."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from agent.bmc_profile import SHA256
from agent.profile_types import Part, PathText, Priority, Slot


class FabricKind(StrEnum):
    """The network between nodes."""

    ROCE = "roce"
    IB = "ib"
    NONE = "none"


class NicPort(Part):
    """One data port of an RDMA NIC."""

    device: str = Field(description="RDMA device under /sys/class/infiniband, e.g. mlx5_0", min_length=1)
    port: int = Field(1, description="Port number of the RDMA device", ge=1, le=254)
    netdev: str | None = Field(
        None, description="Network interface of the port; needed for roce", min_length=1
    )
    rate_gbps: float = Field(description="Rate that the port must run at in Gb/s", gt=0)
    mtu_bytes: int | None = Field(
        None, description="MTU of the interface in bytes; unset = not compared", ge=576
    )
    pci_bus_id: str | None = Field(None, description="PCI address of the function, compared when given")
    serial: str | None = Field(None, description="Serial number of the card (VPD), compared when given")
    gpu: Slot | None = Field(None, description="GPU slot nearest to this port; unset = none in particular")
    path_to_gpu: Literal["PIX", "PXB", "PHB", "NODE", "SYS"] | None = Field(
        None, description="Farthest PCIe path to that GPU, as nvidia-smi topo names it; unset = not compared"
    )
    numa_node: int | None = Field(None, description="NUMA node of the NIC; unset = not compared", ge=0)


class NicPair(Part):
    """Firmware and driver that go together, for one kind of card."""

    board_id: str = Field(description="PSID in /sys/class/infiniband/*/board_id; `*` matches", min_length=1)
    firmware_min: str = Field(description="Least firmware version, e.g. 40.48.1000", min_length=1)
    driver_min: str | None = Field(None, description="Least driver version; unset = any")
    driver_max: str | None = Field(None, description="Driver version that is too new for it; unset = none")


class NicImage(Part):
    """The firmware image of one kind of card."""

    board_id: str = Field(description="PSID of the cards that it is for", pattern=r"^[A-Z0-9_]{6,32}$")
    version: str = Field(description="Version of the image, e.g. 40.48.1000", pattern=r"^\d+(\.\d+)+$")
    match: Literal["exact", "least"] = Field(
        "exact", description="exact = no other version may run; least = a newer one may"
    )
    image: PathText = Field(
        description="File on the controller; a relative path is looked for beside the inventory", min_length=1
    )
    sha256: str = Field(description="SHA-256 of the file in hexadecimal", pattern=SHA256)


#: A parameter as `mlxconfig query` lists it, and a value as it is set.
NvName = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{1,63}$")]
NvValue = (
    bool | Annotated[int, Field(ge=0, lt=2**64)] | Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
)
Psid = Annotated[str, Field(pattern=r"^[A-Z0-9_]{6,32}$")]
RingSize = Annotated[int, Field(ge=1, le=1 << 20)]


class NicSettings(Part):
    """What the NICs must be; the same for every data port."""

    firmware: list[NicPair] = Field(
        default_factory=list, description="Matrix of firmware and driver; a card that is in no row is told"
    )
    images: list[NicImage] = Field(
        default_factory=list, description="Firmware that cards must run, one image for each kind of card"
    )
    pcie_speed_gts: float | None = Field(
        None, description="PCIe speed of the NIC in GT/s; unset = what the device itself can do", gt=0
    )
    pcie_width: int | None = Field(
        None, description="PCIe lanes of the NIC; unset = what the device itself can do", ge=1, le=32
    )
    max_read_request_bytes: Literal[128, 256, 512, 1024, 2048, 4096] | None = Field(
        None, description="PCIe MaxReadReq in bytes; unset = not compared"
    )
    rx_ring: RingSize | None = Field(
        None, description="Entries of each receive ring of a roce port; unset = not compared"
    )
    tx_ring: RingSize | None = Field(
        None, description="Entries of each transmit ring of a roce port; unset = not compared"
    )
    config: dict[NvName, NvValue] = Field(
        default_factory=dict,
        description="NV configuration of every card with a data port, by mlxconfig name (LINK_TYPE_P1: ETH)",
    )
    config_by_board: dict[Psid, dict[NvName, NvValue]] = Field(
        default_factory=dict, description="NV configuration of the cards of one PSID, over `config`"
    )


class Roce(Part):
    """Lossless Ethernet settings; every port has the same."""

    priority: Priority = Field(3, description="The one lossless priority (PFC on for it, off for all others)")
    dscp: int = Field(26, description="DSCP of RDMA traffic, mapped to the lossless priority", ge=0, le=63)
    trust: Literal["dscp", "pcp"] = Field("dscp", description="What the port sorts arriving packets by")
    ecn: bool = Field(True, description="ECN must be on at notification and reaction point for the priority")
    cnp_dscp: int | None = Field(
        None, description="DSCP of congestion notification packets; unset = not compared", ge=0, le=63
    )
    gid_index: int | None = Field(
        None,
        description="GID that RDMA uses (NCCL_IB_GID_INDEX); unset = any RoCE v2 GID will do",
        ge=0,
        le=255,
    )


class InfiniBand(Part):
    """InfiniBand settings; every port has the same."""

    subnet_manager: bool = Field(True, description="A subnet manager must have given each port its LID")


class Fabric(Part):
    """The network between nodes."""

    kind: FabricKind = Field(description="roce, ib or none")
    ports: list[NicPort] = Field(default_factory=list, description="The data ports; others are ignored")
    nic: NicSettings = Field(default_factory=NicSettings, description="What the NICs of those ports must be")
    roce: Roce = Field(default_factory=Roce, description="Lossless Ethernet settings, used when kind is roce")
    ib: InfiniBand = Field(default_factory=InfiniBand, description="Used when kind is ib")
