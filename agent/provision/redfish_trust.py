"""Whom the Redfish client that writes believes: a service with a certificate, or this machine itself."""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit

from agent.bmc_profile import RedfishEndpoint, plain_http_problem
from agent.errors import SourceError
from agent.provision.redfish_words import RedfishError, Untrusted
from agent.sources.redfish import make_context


def trust(
    url: str, ca_file: str | None, tls_verify: bool, *, has_secret: bool, used: bool = True
) -> ssl.SSLContext | bool:
    """What TLS trusts; False where none is `used`.

    Raises RedfishError for a bad CA file, and for plain HTTP to another machine.
    """
    endpoint = RedfishEndpoint.model_construct(
        url=url, ca_file=ca_file, tls_verify=tls_verify, credentials_file="given" if has_secret else None
    )
    where = f"BMC {url.rstrip('/')}"
    if not urlsplit(url).hostname or not url.startswith(("http://", "https://")):
        raise RedfishError("is no URL of a BMC", where=where, remedy="write bmc.redfish.url as https://NAME")
    problem = plain_http_problem(endpoint)
    if problem:
        raise Untrusted(problem, where=where)
    if not url.startswith("https:") or not (used or ca_file):
        return False
    try:
        return make_context(endpoint)
    except SourceError as cause:
        raise Untrusted(str(cause), where=where, remedy="correct nodegate_bmc_ca_file") from None
