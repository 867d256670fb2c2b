"""nodegate_bios: the BIOS settings of the node's profile, by Redfish from the controller.

Arguments: `bmc` (the profile's), `allow_reset`, `accept_pending`, `reset_type`, `reset_timeout_s`. User,
password and CA are variables of the inventory (nodegate_bmc_username, nodegate_bmc_password,
nodegate_bmc_ca_file) and no arguments, as logs have arguments.
"""

from __future__ import annotations

from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from pydantic import ValidationError

from agent.bmc_profile import Bmc
from agent.errors import AgentError
from agent.provision.bios_run import RESET_TIMEOUT_S, Options, Outcome, asks_for_nothing, run
from agent.provision.redfish_writer import PATIENCE_S, RedfishWriter

_ARGUMENTS = frozenset({"bmc", "allow_reset", "accept_pending", "reset_type", "reset_timeout_s"})


class ActionModule(ActionBase):
    """Arguments and inventory variables -> run() -> result."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        """The result of bios_run; failed with one line."""
        super().run(tmp, task_vars)
        args = self._task.args
        unknown = sorted(set(args) - _ARGUMENTS)
        if unknown:
            return _failed(
                f"nodegate_bios has no argument {unknown[0]}; it has {', '.join(sorted(_ARGUMENTS))}"
            )
        try:
            wanted = Bmc.model_validate(args.get("bmc") or {})
            options = self._options(args, task_vars["inventory_hostname"])
        except ValidationError as cause:
            return _failed(f"bmc: {' '.join(str(cause).split())}")
        except (TypeError, ValueError) as cause:
            return _failed(f"nodegate_bios: {' '.join(str(cause).split())}")
        if asks_for_nothing(wanted):
            outcome = Outcome(notes=["the profile asks for no BIOS version and no setting"])
            return outcome.result()
        if wanted.redfish is None:
            return _failed("bmc.bios is set, but no BMC is named; set bmc.redfish")
        try:
            with self._writer(wanted, task_vars, options) as bmc:
                result = run(bmc, wanted, options).result()
        except AgentError as cause:
            return _failed(str(cause))
        if not wanted.redfish.tls_verify:
            result["msg"] += " (TLS not verified: whoever answers there was believed and got the password)"
        return result

    def _options(self, args: Any, host: str) -> Options:
        display = Display()
        return Options(
            check=bool(self._task.check_mode),
            allow_reset=boolean(args.get("allow_reset", False)),
            accept_pending=boolean(args.get("accept_pending", False)),
            reset_type=str(args.get("reset_type") or "") or None,
            reset_timeout_s=float(args.get("reset_timeout_s") or RESET_TIMEOUT_S),
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
    return Outcome(problems=[line]).result()
