"""What goes wrong, as OpenAI's API tells it: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from app.errors import KeyLapsed
from ragcache.errors import FAULTS, RagcacheError

BUG = "the server met a bug: its log tells which"
LONGEST = 2000  # characters of a message
LATER_S = 10  # where nothing says when there may be room
BROKEN = "the server cannot do that now: its log tells why"
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}
_log = logging.getLogger(__name__)


class ProblemDetail(BaseModel):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ProblemBody(BaseModel):
    error: ProblemDetail


class RefusedRequest(RagcacheError):
    """A request that is not served, with the status that says why."""

    status = 400

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(message)
        self.refused_with, self.param, self.code = status, param, code
        self.headers = dict(headers or {})


def unknown_key(why: str) -> RefusedRequest:
    return RefusedRequest(401, why, code="invalid_api_key", headers={"WWW-Authenticate": 'Bearer realm="ragcache"'})


def problem(
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    return JSONResponse(body_of(status, message, param, code), status, headers)


def body_of(status: int, message: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    message = message if len(message) <= LONGEST else f"{message[:LONGEST]}…"  # a client's own value may be in it
    kind = _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def status_of(error: RagcacheError) -> int:
    return error.refused_with if isinstance(error, RefusedRequest) else error.status


def shown(error: RagcacheError, frank: bool) -> str:
    """What breaks in the server names its folders, models and databases: to whoever runs it alone (`frank`)."""
    if status_of(error) >= 500 and not frank and not isinstance(error, RefusedRequest):
        return BROKEN
    return str(error)


def stream_problem(error: Exception, frank: bool) -> dict[str, Any]:
    """For a stream that has begun, whose status is sent."""
    if isinstance(error, RagcacheError):
        if status_of(error) >= 500:
            _log.error("amid a stream: %s", error)
        code = error.code if isinstance(error, RefusedRequest) else None
        return body_of(status_of(error), shown(error, frank), code=code)
    _log.error("a bug in a stream", exc_info=error)
    return body_of(500, BUG)


def tell_problems(app: FastAPI) -> None:
    """All of them leave `app` in this form."""
    app.add_exception_handler(RagcacheError, _of_users)
    app.add_exception_handler(RequestValidationError, _of_requests)
    app.add_exception_handler(HTTPException, _of_http)
    for kind in FAULTS:
        if not issubclass(kind, RagcacheError):
            app.add_exception_handler(kind, _of_bugs)


def refusal(request: Request, error: RagcacheError) -> JSONResponse:
    """What is answered for it; what whoever runs the server should know is in the log."""
    if isinstance(error, KeyLapsed):
        error = unknown_key(str(error))
    status = status_of(error)
    if status >= 500:
        _log.error("%s: %s", _route(request), error)
    if isinstance(error, RefusedRequest):
        return problem(status, str(error), param=error.param, code=error.code, headers=error.headers)
    caller = getattr(request.state, "caller", None)  # none of a request that nobody was let in with
    later = {"Retry-After": str(LATER_S)} if status == 429 else None
    return problem(status, shown(error, caller is not None and caller.runs_it), headers=later)


async def _of_users(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RagcacheError)
    return refusal(request, error)


async def _of_requests(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"][1:])
    return problem(400, f"{place or 'the request'}: {first['msg']}", param=place or None)


async def _of_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, str(error.detail), headers=error.headers)


async def _of_bugs(request: Request, error: Exception) -> JSONResponse:
    _log.error("%s", _route(request), exc_info=error)
    return problem(500, BUG)


def _route(request: Request) -> str:
    """Never its path, in which clients write what they like."""
    return f"{request.method} {getattr(request.scope.get('route'), 'path', 'before any route')}"
