"""LiveSources: this machine, and the threads that follow its kernel log and its network interfaces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.clock import LiveClock
from agent.sources.engine import EngineBoard
from agent.sources.fs import SysTree
from agent.sources.host import LiveHost
from agent.sources.kmsg import KmsgFollower
from agent.sources.net_events import LinkFollower
from agent.sources.netlink import LiveNet
from agent.sources.nvml import NvmlProcess
from agent.sources.nvml_events import NvmlEvents
from agent.sources.redfish import RedfishClient
from agent.sources.workload_process import LiveWorkloads

NVML_DEADLINE_S = 2.0


class LiveSources:
    """The live bundle. A part that this machine lacks raises when it is read, never when it is started."""

    def __init__(self, on_event: Callable[[str], None] | None, root: Path, *, has_gpus: bool) -> None:
        """Build the bundle; threads begin at start()."""
        clock = LiveClock(root)
        self._nvml = NvmlProcess(deadline_s=NVML_DEADLINE_S)
        self._on_event = on_event
        # Not NVML's alone: its events only make checks look earlier at what the kernel log tells too.
        self._gpu_events = NvmlEvents(self._news) if on_event and has_gpus else None
        self._kmsg = KmsgFollower(clock, on_event=self._news if on_event else None, path=root / "dev/kmsg")
        self._links = LinkFollower(on_event) if on_event else None
        self._redfish = RedfishClient()
        self._tree = SysTree(root)
        self.sources = Sources(
            clock=clock,
            tree=self._tree,
            nvml=self._nvml,
            net=LiveNet(),
            kmsg=self._kmsg,
            engines=EngineBoard(on_event),
            host=LiveHost(),
            bmc=self._redfish,
            workloads=LiveWorkloads(),
        )

    def start(self) -> None:
        """Start the followers."""
        self._kmsg.start()
        if self._links:
            self._links.start()
        if self._gpu_events:
            self._gpu_events.start()

    def close(self) -> None:
        """Stop the followers, the NVML process and the BMC sessions; let go of files that were kept open."""
        if self._gpu_events:
            self._gpu_events.close()
        if self._links:
            self._links.close()
        self._kmsg.close()
        self._nvml.close()
        self._redfish.close()
        self._tree.close()

    def _news(self, kind: str) -> None:
        """A fault has been told: a reading from before it must not answer the checks that it rings up."""
        self._nvml.fresh()
        if self._on_event:
            self._on_event(kind)


def live_sources(
    profile: NodeProfile | None = None,
    *,
    on_event: Callable[[str], None] | None = None,
    root: Path = Path("/"),
) -> LiveSources:
    """This machine's sources; `on_event(kind)` is called from any thread.

    The profile, where there is one, says whether there are GPUs whose events to follow.
    """
    return LiveSources(on_event, root, has_gpus=profile is None or profile.gpus.count > 0)
