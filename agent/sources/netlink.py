"""LiveNet: interfaces of this machine over netlink and ethtool; each kind of reading has its net_*.py."""

from __future__ import annotations

from collections.abc import Mapping

from agent.sources import DcbInfo, LinkInfo
from agent.sources.net_dcb import read_dcb
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
