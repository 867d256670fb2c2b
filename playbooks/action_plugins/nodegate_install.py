"""Brings nodegate to a node: asks what is there; only for another release it makes and sends the archive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from agent.errors import ConfigError
from agent.provision.install_parcel import parcel
from agent.provision.install_release import Release, Target, file_sha256, release

_OWN = ("wheel", "wheelhouse", "requirements", "cache")


class ActionModule(ActionBase):
    """`nodegate_install`: wheel, wheelhouse, requirements and cache are paths of the controller."""

    TRANSFERS_FILES = True
    _requires_connection = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask, make, send, install."""
        values = dict(self._task.args)
        given = {name: values.pop(name, None) for name in _OWN}
        if boolean(values.get("back", False)):
            return {**super().run(tmp, task_vars), **self._ask(values, task_vars)}
        beside = Path(str((task_vars or {}).get("inventory_dir") or "."))
        try:
            what = release(*(_file(given[name], beside) for name in _OWN[:3]))
        except ConfigError as cause:
            raise AnsibleActionFail(str(cause)) from None  # Ansible would tell the cause again
        result = super().run(tmp, task_vars)  # the first that needs the node
        values["release"] = what.name
        asked = self._ask(values, task_vars)
        if asked.get("failed") or not asked.get("changed") or self._task.check_mode:
            return {**result, **asked}
        try:
            return {**result, **self._install(what, asked, values, given["cache"], task_vars)}
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)

    def _ask(self, values: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        return self._execute_module("nodegate_install", module_args=values, task_vars=task_vars)

    def _install(
        self,
        what: Release,
        asked: dict[str, Any],
        values: dict[str, Any],
        cache: str | None,
        task_vars: dict[str, Any] | None,
    ) -> dict[str, Any]:
        folder = Path(cache or "~/.cache/nodegate/install").expanduser()
        try:
            archive = parcel(what, Target.from_facts(asked["facts"]), asked["home"], folder)
        except ConfigError as cause:
            raise AnsibleActionFail(str(cause)) from None  # Ansible would tell the cause again
        if not self._connection._shell.tmpdir:
            self._make_tmp_path()
        remote = self._connection._shell.join_path(self._connection._shell.tmpdir, "nodegate.tar.gz")
        self._transfer_file(str(archive), remote)
        self._fixup_perms2((self._connection._shell.tmpdir, remote))
        return self._ask({**values, "archive": remote, "sha256": file_sha256(archive)}, task_vars)


def _file(text: str | None, beside: Path) -> Path | None:
    """A path of the controller; a relative one lies beside the inventory, or where Ansible was started."""
    if not text:
        return None
    given = Path(text).expanduser()
    return next((path for path in (beside / given, given) if path.exists()), given)
