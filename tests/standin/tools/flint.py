#!/usr/bin/python3 -ES
"""Stand-in for flint (MFT) and mstflint: q, v and burn of stand-in images. SIMULATED.

A stand-in image is a text: `STANDIN-IMAGE psid=MT_... version=28.43.2566 sum=SHA256-of-the-two\n`.
"""

from __future__ import annotations

import hashlib
import pathlib
import re
from typing import Any

import standin
from standin import Machine, Refused

_IMAGE = re.compile(r"STANDIN-IMAGE psid=(\S+) version=(\S+) sum=([0-9a-f]{64})\n")


def image(path: str) -> tuple[str, str, bool]:
    """PSID and version of an image, and whether it is whole."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as cause:
        raise Refused(f"-E- Can not open {path}: {cause.strerror}") from cause
    found = _IMAGE.match(text)
    if found is None:
        raise Refused(f"-E- Can not open {path}: Unrecognized image")
    return found[1], found[2], hashlib.sha256(f"{found[1]} {found[2]}".encode()).hexdigest() == found[3]


def table(psid: str, version: str, running: str | None, guid: str, mac: str) -> str:
    lines = ["Image type:            FS4", f"FW Version:            {version}"]
    if running is not None and running != version:
        lines.append(f"FW Version(Running):   {running}")
    return "\n".join(
        [
            *lines,
            "FW Release Date:       28.8.2024",
            f"Product Version:       {version}",
            "Rom Info:              type=UEFI version=14.36.16 cpu=AMD64,AARCH64",
            "                       type=PXE version=3.7.500 cpu=AMD64",
            "Description:           UID                GuidsNumber",
            f"Base GUID:             {guid:<24}16",
            f"Base MAC:              {mac:<24}16",
            "Image VSD:             N/A",
            "Device VSD:            N/A",
            f"PSID:                  {psid}",
            "Security Attributes:   secure-fw",
            "",
        ]
    )


def burn(nic: dict[str, Any], path: str, sure: bool, force: bool) -> str:
    psid, version, whole = image(path)
    if psid != nic["psid"]:
        raise Refused(
            f"-E- PSID mismatch. The PSID on flash ({nic['psid']}) differs from the PSID in the given image"
            f" ({psid})."
        )
    said = (
        f"\n    Current FW version on flash:  {nic['burned']}\n    New FW version:               {version}\n"
    )
    old, new = (tuple(int(part) for part in text.split(".")) for text in (nic["burned"], version))
    if new <= old:
        how = "the same as" if new == old else "older than"
        said += f"\n    Note: The new FW version is {how} the current FW version on flash.\n"
        if not (sure or force):
            raise Refused(said + "\n Do you want to continue ? (y/n) [n] : n\n-E- Aborted by user")
    if not whole:
        raise Refused(said + "\n-E- Burning FS4 image failed: The image failed verification: bad signature")
    nic["burned"] = version
    return (
        f"{said}\nFSMST_INITIALIZE -   OK\nWriting Boot image component -   OK\n"
        "-I- To load new FW run mlxfwreset or reboot machine.\n"
    )


def work(words: list[str], machine: Machine) -> str:
    device = standin.option(words, "-d", "--device")
    path = standin.option(words, "-i", "--image")
    sure = any(word in ("-y", "-yes", "--yes") for word in words)
    verb = next((w for w in words if w in ("q", "query", "v", "verify", "b", "burn")), None)
    if verb is None:
        raise Refused("-E- No command found in the given arguments.")
    if device is None:
        if path is None:
            raise Refused('-E- For this command one of the "--image" or "--device" flags must be specified.')
        psid, version, whole = image(path)
        if verb in ("v", "verify"):
            if not whole:
                raise Refused("\n-E- FS4 failsafe image verification failed. AN HW DEVICE WILL NOT BOOT")
            return "\n     FS4 failsafe image\n\n-I- FW image verification succeeded. Image is bootable.\n\n"
        if verb in ("q", "query"):
            return table(psid, version, None, "N/A", "N/A")
        raise Refused('-E- For this command the "--device" flag must be specified.')
    found = machine.nic(device)
    if found is None:
        raise Refused(f"-E- Cannot open Device: {device}. No such file or directory. MFE_CR_ERROR")
    name, nic = found
    if verb in ("b", "burn"):
        if path is None:
            raise Refused('-E- For this command the "--image" flag must be specified.')
        return burn(nic, path, sure, "--force" in words or "-force" in words)
    if verb in ("v", "verify"):
        return "\n     FS4 failsafe image\n\n-I- FW image verification succeeded. Image is bootable.\n\n"
    guid = standin.sysfs(f"class/infiniband/{name}/node_guid").read_text().strip().replace(":", "")
    return table(nic["psid"], nic["burned"], nic["running"], guid, guid[:6] + guid[10:])


if __name__ == "__main__":
    standin.main("flint", work)
