"""The read-only HTTP interface (GET, HEAD, OPTIONS): every handler only reads what has been published.

What only a person or a scraper needs is imported when it is first asked for: /livez answers early.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from fastapi.responses import Response

from agent.probes import Probes
from agent.publisher import Publisher, Reply

if TYPE_CHECKING:
    from agent.metrics_page import MetricsPage
    from agent.page.answer import StatusPage

METHODS = ["GET", "HEAD", "OPTIONS"]
_ALLOW = {"allow": ", ".join(METHODS), "cache-control": "no-store"}


def make_api(publisher: Publisher) -> Probes:
    """The application; what it shows is read from the publisher at each request."""
    return Probes(_pages(publisher), publisher, _ALLOW)


def _pages(publisher: Publisher) -> FastAPI:
    """Everything that is read; of the probes what Probes leaves: HEAD, OPTIONS, and refusing the rest."""
    # Without redirects: HAProxy and Kubernetes take a 3xx of a health check for success.
    app = FastAPI(title="nodegate", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)

    @app.api_route("/livez", methods=METHODS)
    async def live(request: Request) -> Response:
        return _respond(request, publisher.live())

    @app.api_route("/readyz", methods=METHODS)
    async def ready(request: Request) -> Response:
        return _respond(request, publisher.ready())

    @app.api_route("/readyz/{engine}", methods=METHODS)
    async def ready_engine(request: Request, engine: str) -> Response:
        return _respond(request, publisher.ready(engine))

    _add_documents(app, publisher)
    return app


def _add_documents(app: FastAPI, publisher: Publisher) -> None:
    """What people, scrapers and the other members of a group read."""

    @app.api_route("/status", methods=METHODS)
    async def status(request: Request, brief: str = "") -> Response:
        from agent.status_view import brief_json, status_json

        answer = brief_json if brief not in ("", "0") else status_json
        return _respond(request, Reply(200, answer(publisher)))

    @app.api_route("/group/{engine}", methods=METHODS)
    async def group(request: Request, engine: str, nonce: str = "") -> Response:
        from agent.group.answer import group_reply

        return _respond(request, group_reply(publisher, engine, nonce))

    @cache
    def metrics_page() -> MetricsPage:
        from agent.metrics_page import MetricsPage

        return MetricsPage(publisher)

    @app.api_route("/metrics", methods=METHODS)
    async def metrics(request: Request) -> Response:
        return _respond(request, metrics_page().reply())

    @app.api_route("/history", methods=METHODS)
    async def history(request: Request) -> Response:
        from agent.recent_history import history_json

        return _respond(request, Reply(200, history_json(publisher.current)))

    _add_page(app, publisher)


def _add_page(app: FastAPI, publisher: Publisher) -> None:
    """What people look at."""

    @cache
    def page() -> StatusPage:
        from agent.page.answer import StatusPage

        return StatusPage(publisher)

    @app.api_route("/", methods=METHODS)
    async def index(request: Request) -> Response:
        return _respond(request, page().reply())


def _respond(request: Request, reply: Reply) -> Response:
    """The reply; HEAD and OPTIONS get its status and headers alone."""
    headers = {**_ALLOW, **reply.headers}
    if request.method == "OPTIONS":
        return Response(status_code=reply.status, headers=headers)
    return Response(reply.body, reply.status, headers, reply.media_type)
