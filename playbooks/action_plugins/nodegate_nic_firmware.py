"""nodegate_nic_firmware: runs the module of that name; copies to the node only images that it needs.

Images lie on the controller, a relative path beside the inventory. The module looks first; if a card needs an
image, its hash is proven here, it is copied, and the module burns it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Look, copy, burn."""

    TRANSFERS_FILES = True

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        """The module's result; failed with one line for an image that is not what the profile says."""
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        images = [dict(each) for each in arguments.get("images") or []]
        found = self._module(arguments, images, task_vars)
        needed = set(found.get("needed") or ())
        if not needed or found.get("failed"):
            return found
        beside = Path(str((task_vars or {}).get("inventory_dir") or "."))
        local = {each["board_id"]: beside / Path(each["image"]).expanduser() for each in images}
        wrong = [
            problem
            for each in images
            if each["board_id"] in needed and (problem := image_problem(each, local[each["board_id"]]))
        ]
        if wrong:
            return {
                **found,
                "changed": False,
                "failed": True,
                "msg": f"{'; '.join(wrong)}; nothing was burned",
            }
        if self._task.check_mode:
            return found
        for each in images:
            if each["board_id"] in needed:
                each["path"] = self._copied(local[each["board_id"]], each["sha256"])
        return self._module(arguments, images, task_vars)

    def _module(
        self, arguments: dict[str, Any], images: list[dict[str, Any]], task_vars: Any
    ) -> dict[str, Any]:
        result: dict[str, Any] = self._execute_module(
            module_name="nodegate_nic_firmware",
            module_args={**arguments, "images": images},
            task_vars=task_vars,
        )
        result.pop("invocation", None)
        return result

    def _copied(self, path: Path, sha256: str) -> str:
        """Where the image lies on the node, in the task's own folder, which goes when the task ends."""
        folder = self._connection._shell.tmpdir
        if folder is None:
            folder = self._make_tmp_path()
        target = self._connection._shell.join_path(folder, f"{sha256[:16]}-{path.name}")
        self._transfer_file(str(path), target)
        self._fixup_perms2((folder, target))
        return str(target)


def image_problem(image: dict[str, Any], path: Path) -> str | None:
    """Why a file is not the image of the profile; None when it is."""
    field = f"fabric.nic.images.{image['board_id']}"
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as cause:
        return f"{field}: {path}: cannot be read ({cause.strerror}); put the file there, or correct the path"
    if digest.hexdigest() != image["sha256"]:
        return (
            f"{field}: {path}: SHA-256 is {digest.hexdigest()}, the profile asks for {image['sha256']};"
            " fetch the file again, or correct the profile"
        )
    return None
