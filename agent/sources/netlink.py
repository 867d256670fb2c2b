"""LiveNet: interfaces of this machine over netlink and ethtool; each kind of reading has its net_*.py."""

from __future__ import annotations

from collections.abc import Mapping

from agent.sources import DcbInfo, DriverInfo, LinkInfo, ModuleInfo, PauseInfo, RingInfo
from agent.sources.net_dcb import read_dcb
from agent.sources.net_driver import read_driver, read_pause, read_ring
from agent.sources.net_eeprom import read_module
from agent.sources.net_ethtool import read_stats
from agent.sources.net_link import read_link


class LiveNet:
    """Reads anew at every call and keeps no state, so any thread may call it."""

    def link(self, netdev: str) -> LinkInfo:
        """State of one interface. Raises DeviceAbsent if there is none of that name."""
        return read_link(netdev)

    def ethtool_stats(self, netdev: str) -> Mapping[str, int]:
        """Driver statistics by name. Raises DeviceAbsent, NotSupported."""
        return read_stats(netdev)

    def dcb(self, netdev: str) -> DcbInfo:
        """DCB state. Raises DeviceAbsent, NotSupported."""
        return read_dcb(netdev)

    def driver(self, netdev: str) -> DriverInfo:
        """Driver and firmware. Raises DeviceAbsent, NotSupported."""
        return read_driver(netdev)

    def pause(self, netdev: str) -> PauseInfo:
        """Global pause. Raises DeviceAbsent, NotSupported."""
        return read_pause(netdev)

    def ring(self, netdev: str) -> RingInfo:
        """Ring sizes. Raises DeviceAbsent, NotSupported."""
        return read_ring(netdev)

    def module(self, netdev: str) -> ModuleInfo:
        """The plugged module. Raises NotSupported, SourceUnavailable without CAP_NET_ADMIN."""
        return read_module(netdev)
