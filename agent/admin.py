"""The operators' interface on a Unix socket (0660, group nodegate): nothing on the network can change
anything.

Requests are checked here, on the servers' thread, and carried out by the operator desk on the main loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from agent.checklist.office import ChecklistOffice
from agent.errors import AgentError
from agent.operator_desk import (
    EngineOrder,
    GateOrder,
    Given,
    MaintenanceOrder,
    OperatorDesk,
    OrderRefused,
)
from agent.publisher import Publisher
from agent.status_view import status_json

MAX_BODY_BYTES = 64 * 1024
#: The longest an order may take: a slow disk, not a hung main loop.
ORDER_DEADLINE_S = 15.0
#: What may start an engine.
_OPENING = frozenset(
    {
        GateOrder.RESUME,
        GateOrder.CLEAR,
        GateOrder.FORCE_OPEN,
        EngineOrder.START,
        EngineOrder.RESTART,
        MaintenanceOrder.EXIT,
    }
)


def _one_line(text: str) -> str:
    """Refuse what would break the lines that reasons are shown in, or move a terminal's cursor."""
    if not text.isprintable() or not text.strip():
        raise ValueError("write one line of printable text")
    return text.strip()


Reason = Annotated[str, Field(max_length=500), AfterValidator(_one_line)]
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[!-~]+$")]


class _Strict(BaseModel):
    """Base of what is sent: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class _Body(_Strict):
    """An order with its reason."""

    reason: Reason


class GateBody(_Body):
    """An order to one gate, or to all."""

    engine: Name | None = None
    for_s: float | None = Field(None, ge=0)


class EngineBody(_Body):
    """An order to one engine."""

    engine: Name


class MaintenanceBody(_Body):
    """An order to the node."""


RunId = Annotated[str, Field(max_length=100, pattern=r"^\d{8}T\d{6}Z-[a-z0-9-]+$")]


class PassedBody(_Strict):
    """A checklist has passed all that comes before its gate step."""

    run_id: RunId
    soak_s: float = Field(ge=0, le=86_400)


class FailedBody(_Strict):
    """A checklist has not passed."""

    run_id: RunId
    step: Name
    why: Reason


class WaiveBody(_Body):
    """A waiver."""

    check: Name
    subject: Name
    for_s: float = Field(ge=0)


class History(Protocol):
    """The part of the journal that is asked for history."""

    def history(
        self, since_wall_s: float, limit: int = 1000, part: str | None = None
    ) -> list[dict[str, Any]]:
        """Entries since a time, oldest first; of one part alone if it is named."""


@dataclass(frozen=True, slots=True)
class Office:
    """What the admin interface leads to. `log_tail` is None for an engine that is not known."""

    publisher: Publisher
    desk: OperatorDesk
    journal: History
    log_tail: Callable[[str, int], list[str] | None]
    main_loop: asyncio.AbstractEventLoop
    wall_s: Callable[[], float]
    checklists: ChecklistOffice


def make_admin(office: Office) -> FastAPI:
    """The application."""
    app = FastAPI(
        title="nodegate admin", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False
    )
    app.add_middleware(BodyLimit)
    _add_errors(app)
    _add_orders(app, office)
    _add_checklists(app, office)
    _add_questions(app, office)
    return app


def _add_orders(app: FastAPI, office: Office) -> None:
    """What changes something."""
    desk = office.desk

    async def refuse_beside_run(order: GateOrder | EngineOrder | MaintenanceOrder) -> None:
        if order in _OPENING:
            behind = order is not MaintenanceOrder.EXIT
            await asyncio.to_thread(office.checklists.refuse_to_open, behind_maintenance=behind)

    @app.post("/gate/{order}")
    async def gate(request: Request, order: GateOrder, body: GateBody) -> dict[str, list[str]]:
        given = _given(request, body.reason)
        await refuse_beside_run(order)
        return await _on_main_loop(office, desk.gate(order, body.engine, given, body.for_s))

    @app.post("/engine/{order}")
    async def engine(request: Request, order: EngineOrder, body: EngineBody) -> dict[str, list[str]]:
        await refuse_beside_run(order)
        return await _on_main_loop(office, desk.engine(order, body.engine, _given(request, body.reason)))

    @app.post("/maintenance/{order}")
    async def maintenance(
        request: Request, order: MaintenanceOrder, body: MaintenanceBody
    ) -> dict[str, list[str]]:
        await refuse_beside_run(order)
        return await _on_main_loop(office, desk.maintenance(order, _given(request, body.reason)))

    @app.post("/waive")
    async def waive(request: Request, body: WaiveBody) -> dict[str, list[str]]:
        given = _given(request, body.reason)
        return await _on_main_loop(office, desk.waive(body.check, body.subject, body.for_s, given))


def _add_checklists(app: FastAPI, office: Office) -> None:
    """What runs of checklists ask and order."""
    checklists = office.checklists

    @app.get("/checklist/whereabouts")
    async def whereabouts() -> dict[str, Any]:
        return await asyncio.to_thread(checklists.whereabouts)

    @app.post("/checklist/passed")
    async def passed(request: Request, body: PassedBody) -> dict[str, list[str]]:
        order = checklists.passed(body.run_id, body.soak_s, _who(request))
        return await _on_main_loop(office, order)

    @app.post("/checklist/failed")
    async def failed(request: Request, body: FailedBody) -> dict[str, list[str]]:
        order = checklists.failed(body.run_id, body.step, body.why, _who(request))
        return await _on_main_loop(office, order)


def _add_questions(app: FastAPI, office: Office) -> None:
    """What changes nothing."""

    @app.get("/status")
    async def status() -> Response:
        return Response(status_json(office.publisher), media_type="application/json")

    @app.get("/history")
    async def history(
        since_s: Annotated[float, Query(ge=0, le=1e9)] = 7200.0,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
        part: Name | None = None,
    ) -> dict[str, Any]:
        entries = await asyncio.to_thread(office.journal.history, office.wall_s() - since_s, limit, part)
        return {"schema": 1, "entries": entries}

    @app.get("/engine/logs")
    async def logs(engine: Name, lines: Annotated[int, Query(ge=1, le=10_000)] = 200) -> dict[str, list[str]]:
        tail = await asyncio.to_thread(office.log_tail, engine, lines)
        if tail is None:
            raise OrderRefused(f"there is no engine {engine!r} that this agent launches", 404)
        return {"lines": tail}


def _add_errors(app: FastAPI) -> None:
    """Every refusal is one line under `error`."""

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        at = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
        text = str(first["msg"]).removeprefix("Value error, ")
        return _error(422, f"{at}: {text}" if at else text)

    @app.exception_handler(OrderRefused)
    async def refused(_request: Request, error: OrderRefused) -> JSONResponse:
        return _error(error.status, str(error))

    @app.exception_handler(HTTPException)
    async def not_served(_request: Request, error: HTTPException) -> JSONResponse:
        return _error(error.status_code, error.detail)

    @app.exception_handler(AgentError)
    async def failed(_request: Request, error: AgentError) -> JSONResponse:
        return _error(503, str(error))


def _error(status: int, text: str) -> JSONResponse:
    return JSONResponse({"error": " ".join(text.split())}, status)


def _given(request: Request, reason: str) -> Given:
    """Who asks, as the kernel knows it (PeerProtocol)."""
    return Given(reason, _who(request))


def _who(request: Request) -> str:
    return request.client.host if request.client else "unknown"


async def _on_main_loop(office: Office, order: Coroutine[Any, Any, list[str]]) -> dict[str, list[str]]:
    """Have an order carried out by the main loop, and wait for it, but not for ever."""
    try:
        future = asyncio.run_coroutine_threadsafe(order, office.main_loop)
    except RuntimeError as cause:
        order.close()
        raise OrderRefused("the agent is shutting down", 503) from cause
    try:
        async with asyncio.timeout(ORDER_DEADLINE_S):
            return {"said": await asyncio.wrap_future(future)}
    except TimeoutError as cause:
        raise OrderRefused("the main loop does not answer; nothing is known of the order", 503) from cause


class BodyLimit:
    """ASGI middleware: a body longer than any order is refused instead of kept in memory."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        """Wrap an application."""
        self._app = app

    async def __call__(self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Any) -> None:
        """Count what is received."""
        received = 0

        async def counting() -> Any:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MAX_BODY_BYTES:
                # Of the kind that FastAPI passes on while it reads a body.
                raise HTTPException(413, f"the body is longer than {MAX_BODY_BYTES} bytes")
            return message

        await self._app(scope, counting, send)
