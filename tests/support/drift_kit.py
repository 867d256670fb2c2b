"""What a host needs beside site_profile.yaml so that every role has all of its fields.

The packages are empty but for the driver's version, which the stand-in takes at its next boot; the engine's
environment is real, with one small wheel.
"""

from __future__ import annotations

import base64
import copy
import shutil
from pathlib import Path
from typing import Any

import yaml
from nspawn_rig import Host
from site_kit import PROFILE, Site
from small_wheels import make_wheel
from standin_seed import HOME

DRIVER, OLD_DRIVER = "580.159.04", "570.86.15"
PACKAGES = ("nvidia-driver-580-server", "nvidia-fabricmanager")
ENGINE = {"path": "/opt/engine", "packages": {"standin-engine": "1.0.0"}}
WHEELS = "/srv/wheels"
SERVICE = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
#: The embedded engine is part of nodegate; the environment borrows it from there.
BORROW = (
    "import glob, site; list(map(site.addsitedir, glob.glob('/opt/nodegate/lib/python3*/site-packages')))\n"
)
REPOSITORY = f"""
set -e
rm -rf /srv/packages && mkdir -p /srv/packages && cd /srv/packages
for name in {" ".join(PACKAGES)}; do
    for version in {DRIVER} {OLD_DRIVER}; do
        mkdir -p $name/DEBIAN
        printf 'Package: %s\\nVersion: %s-0ubuntu1\\n' $name $version > $name/DEBIAN/control
        printf 'Architecture: all\\nMaintainer: test <test@localhost>\\n' >> $name/DEBIAN/control
        printf 'Description: nothing\\n' >> $name/DEBIAN/control
        printf '#!/bin/sh\\nsed -i '"'"'s/"driver_version": "[^"]*"/"driver_version": "%s"/'"'"' %s\\n' \\
            $version /{HOME}/machine.json > $name/DEBIAN/postinst
        chmod 755 $name/DEBIAN/postinst
        dpkg-deb --build $name $name.$version.deb > /dev/null
        {{
            cat $name/DEBIAN/control
            echo "Filename: ./$name.$version.deb"
            echo "Size: $(stat -c %s $name.$version.deb)"
            echo "SHA256: $(sha256sum $name.$version.deb | cut -d' ' -f1)"
            echo
        }} >> Packages
    done
done
rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*
echo 'deb [trusted=yes] file:/srv/packages ./' > /etc/apt/sources.list.d/packages.list
"""


def widen(site: Site, name: str) -> dict[str, Any]:
    """Give a host packages and an environment, and its layer what asks for them; all layers merged."""
    host = site.rig[name]
    host.must(["sh", "-c", REPOSITORY])
    host.write("/etc/systemd/system/good.service", SERVICE)
    _wheels(host, site.folder)
    path = site.inventory / "profiles" / f"{name}.yaml"
    base = yaml.safe_load(PROFILE.read_text())
    command = [f"{ENGINE['path']}/bin/python", *base["engines"]["main"]["launch"]["command"][1:]]
    own = {
        **yaml.safe_load(path.read_text()),
        "gpus": {"packages": dict.fromkeys(PACKAGES, f"{DRIVER}-0ubuntu1")},
        "engines": {"main": {"launch": {"environment": ENGINE, "command": command}}},
        "host": {"services": {"good.service": "active"}},
    }
    site.layer(name, own)
    hosts = yaml.safe_load((site.inventory / "hosts.yml").read_text())
    hosts["all"].setdefault("vars", {})["nodegate_engine_sources"] = {"main": {"wheelhouse": WHEELS}}
    (site.inventory / "hosts.yml").write_text(yaml.safe_dump(hosts))
    return merged(base, own)


def merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Layers as the agent lays them: mappings by key, everything else whole."""
    found = copy.deepcopy(under)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = merged(found[key], value) if both else value
    return found


def _wheels(host: Host, folder: Path) -> None:
    wheels = folder / "wheels"
    for version in ("1.0.0", "0.9.0"):
        wheel = make_wheel(wheels, "standin-engine", version, {"standin_engine.pth": BORROW})
        put = f"mkdir -p {WHEELS} && base64 --decode > {WHEELS}/{wheel.name}"
        host.must(["sh", "-c", put], input=base64.b64encode(wheel.read_bytes()).decode())
    shutil.rmtree(wheels)
