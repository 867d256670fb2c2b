"""Certificates for several BMCs: one CA, one file (certificate and key) for any number of addresses."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from pathlib import Path

from redfish_server import make_certificates, signed


def bmc_certificates(folder: Path, hosts: Sequence[str]) -> tuple[Path, Path]:
    """The CA's file, and the certificate that it has signed for these addresses and names. Needs openssl."""
    ca = make_certificates(folder).ca
    return ca, signed(folder, ca, "bmcs", ",".join(f"{_kind(host)}:{host}" for host in hosts))


def _kind(host: str) -> str:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return "DNS"
    return "IP"
