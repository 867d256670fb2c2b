"""nodegate_firmware: the firmware that the node's BMC updates, by Redfish from the controller.

Arguments: `bmc` (the profile's), `allow_reset`, `allow_downgrade`. User, password and CA are variables of the
inventory (nodegate_bmc_username, nodegate_bmc_password, nodegate_bmc_ca_file), as logs have arguments.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from pydantic import ValidationError

from agent.bmc_profile import Bmc
from agent.errors import AgentError
from agent.provision.firmware_run import Options, run
from agent.provision.redfish_writer import PATIENCE_S, RedfishWriter

_ARGUMENTS = frozenset({"bmc", "allow_reset", "allow_downgrade"})


class ActionModule(ActionBase):
    """Arguments and inventory variables -> run() -> result."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        """The result of firmware_run; failed with one line."""
        super().run(tmp, task_vars)
        unknown = sorted(set(self._task.args) - _ARGUMENTS)
        if unknown:
            return _failed(
                f"nodegate_firmware has no argument {unknown[0]}; it has {', '.join(sorted(_ARGUMENTS))}"
            )
        try:
            wanted = Bmc.model_validate(self._task.args.get("bmc") or {})
        except ValidationError as cause:
            return _failed(f"bmc: {' '.join(str(cause).split())}")
        if not wanted.images and not wanted.firmware:
            return {"changed": False, "msg": "the profile asks for no firmware of the BMC", **_NOTHING}
        if wanted.redfish is None:
            return _failed("bmc.images or bmc.firmware is set, but no BMC is named; set bmc.redfish")
        try:
            options = self._options(task_vars)
        except TypeError as cause:
            return _failed(f"nodegate_firmware: {' '.join(str(cause).split())}")
        try:
            with self._writer(wanted, task_vars, options) as bmc:
                outcome = run(bmc, wanted, options)
        except AgentError as cause:
            return _failed(str(cause))
        result = outcome.result() | ({"failed": True} if outcome.problems else {})
        if not wanted.redfish.tls_verify:
            result["msg"] += " (TLS not verified: whoever answers there was believed and got the password)"
        return result

    def _options(self, task_vars: Any) -> Options:
        host, display = task_vars["inventory_hostname"], Display()
        return Options(
            beside=Path(str(task_vars.get("inventory_dir") or ".")),
            check=bool(self._task.check_mode),
            allow_reset=boolean(self._task.args.get("allow_reset", False)),
            allow_downgrade=boolean(self._task.args.get("allow_downgrade", False)),
            tell=lambda line: display.display(f"{host}: {line}"),
        )

    def _writer(self, wanted: Bmc, task_vars: Any, options: Options) -> RedfishWriter:
        def given(name: str) -> Any:
            value = task_vars.get(name)
            return None if value is None else self._templar.template(value)

        assert wanted.redfish is not None
        patience_s = _seconds("nodegate_bmc_patience_s", given("nodegate_bmc_patience_s"))
        return RedfishWriter(
            wanted.redfish.url,
            given("nodegate_bmc_username"),
            given("nodegate_bmc_password"),
            ca_file=given("nodegate_bmc_ca_file"),
            tls_verify=wanted.redfish.tls_verify,
            patience_s=PATIENCE_S if patience_s is None else patience_s,
            on_wait=options.tell,
        )


_NOTHING: dict[str, Any] = {"drift": [], "pending": [], "reboot_required": False, "activated": False}


def _seconds(name: str, value: Any) -> float | None:
    """A number of the inventory. Raises AgentError."""
    try:
        seconds = None if value is None else float(value)
    except (TypeError, ValueError):
        seconds = -1.0
    if seconds is not None and not 0 <= seconds < float("inf"):
        raise AgentError(f"{name}: is no number of seconds; correct it in the inventory")
    return seconds


def _failed(line: str) -> dict[str, Any]:
    return {"changed": False, "failed": True, "msg": line, **_NOTHING}
