"""What clients send as JSON. To say all that is wrong with a body would take longer than to read it, on the thread that
everybody is served by: it says the first of each list, and how much it is where it is much.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, ModelWrapValidatorHandler, ValidationError, model_validator

from app.server.problems import RefusedRequest

T = TypeVar("T")
Body = TypeVar("Body", bound="RequestBody")
MOST_FIELDS = 200  # those of OpenAI's that we leave out too
MOST_FAULTS = 64

Several = Annotated[list[T], Field(fail_fast=True)]


class RequestBody(BaseModel):
    @model_validator(mode="wrap")
    @classmethod
    def _few_faults(cls: type[Body], values: Any, handler: ModelWrapValidatorHandler[Body]) -> Body:
        if isinstance(values, dict) and len(values) > MOST_FIELDS:
            raise RefusedRequest(
                400, f"a body or a part of it has {len(values):,} fields: at most {MOST_FIELDS} are read"
            )
        try:
            return handler(values)
        except ValidationError as error:
            if (count := error.error_count()) > MOST_FAULTS:
                raise RefusedRequest(400, f"the body is wrong in {count:,} places: see /docs for its form") from None
            raise
