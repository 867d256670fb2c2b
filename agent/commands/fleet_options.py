"""Options that the commands of `nodegate fleet` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

InventoryOption = Annotated[
    list[Path],
    typer.Option(
        "-i", "--inventory", metavar="INVENTORY", help="Folder or hosts file of a site; may be repeated."
    ),
]
LimitOption = Annotated[str | None, typer.Option("--limit", metavar="HOSTS", help="Only these hosts.")]
CheckOption = Annotated[
    bool, typer.Option("--check", help="Change nothing: tell what would change, with differences.")
]
VaultOption = Annotated[
    Path | None,
    typer.Option("--vault-password-file", metavar="FILE", help="Key of the inventory's encrypted files."),
]
ArtifactsOption = Annotated[
    Path | None,
    typer.Option(
        "--artifacts",
        metavar="DIR",
        help="Keep output, events and summary in a new folder of DIR [nodegate/fleet in the state folder].",
        show_default=False,
    ),
]
ExtraOption = Annotated[
    list[str] | None,
    typer.Option("-e", "--extra-vars", metavar="KEY=VALUE", help="Variable for the plays; no secrets here."),
]
