"""The NCCL topology file of this node as the installed nodegate makes it, and /etc/nccl.conf."""

from __future__ import annotations

import pathlib
import tempfile

from .files import file_setting, no_file_setting
from .host import Host, HostError, Output
from .own_program import ask_nodegate, first_line
from .setting import Setting

CONF = "/etc/nccl.conf"
#: First line of a file that is ours, so that nobody else's is taken away.
OURS = "# Written by nodegate"
_DIFFERS = "not as topology.expected has it: "


class TopologyFile:
    """What the file must be: made of the machine, refused where it is not the expected one."""

    def __init__(self, host: Host, program: str, rendered: str, agent_args: str) -> None:
        """Nothing is asked yet."""
        self._host, self._program, self._rendered, self._args = host, program, rendered, agent_args

    def text(self) -> str:
        """The file for the machine as it is. Raises HostError where it is not what was recorded."""
        with tempfile.TemporaryDirectory(prefix="nodegate-topo-") as folder:
            file = pathlib.Path(folder, "topology.xml")
            done = self._ask("write", str(file))
            if done.status != 0:
                raise HostError(f"no topology file can be made: {first_line(done)}")
            wrong = [
                line.removeprefix(_DIFFERS) for line in done.err.splitlines() if line.startswith(_DIFFERS)
            ]
            if wrong:
                more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
                raise HostError(
                    f"the machine is not the one that was recorded, no file is made of it: {wrong[0]}{more};"
                    " put the card back, or record the new topology with pins.yml"
                )
            return file.read_text(encoding="ascii")

    def put(self, path: str, text: str) -> None:
        """Install it once NCCL could read it and it fits the machine. Raises HostError."""
        with tempfile.TemporaryDirectory(prefix="nodegate-topo-") as folder:
            fresh = pathlib.Path(folder, "topology.xml")
            fresh.write_text(text, encoding="ascii")
            done = self._ask("verify", str(fresh))
            if done.status != 0:
                raise HostError(f"the new topology file does not pass: {first_line(done)}")
        self._host.write(path, text)

    def _ask(self, verb: str, file: str) -> Output:
        return ask_nodegate(self._host, self._program, ["topo", verb, file], self._rendered, self._args)


def wanted_topology(host: Host, nccl_file: str | None, conf: str, file: TopologyFile) -> list[Setting]:
    """The file where the profile names one, and nccl.conf. Raises HostError."""
    settings = []
    if nccl_file:
        text = file.text()
        setting = file_setting(host, nccl_file, text, "topology.nccl_file")
        setting.write = lambda: file.put(nccl_file, text)
        settings.append(setting)
    if conf:
        settings.append(file_setting(host, CONF, conf, "fabric"))
    elif (host.read(CONF) or "").startswith(OURS):
        settings.append(no_file_setting(host, CONF, "fabric"))
    return settings
