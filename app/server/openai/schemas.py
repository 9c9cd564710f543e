"""What OpenAI's clients send and get. Fields that are not here are left out, as those of its newer versions are; what
would change the answer and cannot be done is refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

from app.answering import SupportedSentence
from app.server.bodies import RequestBody, Several
from app.server.problems import RefusedRequest

LONGEST_LIST = 2048  # of texts in one request
MOST_BIASES = 2048
Count = Annotated[int, Field(ge=0, le=1 << 30)]
_REFUSED = {
    "tools": "this server calls no tools",
    "functions": "this server calls no functions",
    "audio": "this server makes no audio",
    "suffix": "this server writes no text between two others",
}


class Sampled(RequestBody):
    """How tokens are chosen. What is left out is as the makers of the model recommend."""

    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, le=1 << 30)
    min_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    repetition_penalty: float | None = Field(default=None, ge=0.01, le=100)
    logit_bias: Annotated[dict[str, float], Field(max_length=MOST_BIASES)] | None = None
    stop: (
        Annotated[str, Field(min_length=1, max_length=256)]
        | Annotated[list[Annotated[str, Field(min_length=1, max_length=256)]], Field(max_length=4)]
        | None
    ) = None
    n: int | None = Field(default=None, ge=1, le=16)
    max_tokens: int | None = Field(default=None, ge=1, le=1 << 30)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    # Ours: which tokens of cached chunks are computed again. "full" uses no cache.
    linker: str | None = Field(default=None, max_length=200)

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, values: Any) -> Any:
        if isinstance(values, dict):
            for name, why in _REFUSED.items():
                if values.get(name):
                    raise RefusedRequest(400, f"{name}: {why}", param=name, code="unsupported")
            form = values.get("response_format")
            if form and form != {"type": "text"}:
                raise RefusedRequest(
                    400, "response_format: this server writes text alone", param="response_format", code="unsupported"
                )
        return values

    @property
    def choices(self) -> int:
        return self.n or 1

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    @property
    def tells_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)


class StreamOptions(RequestBody):
    include_usage: bool | None = None


class TextContent(RequestBody):
    type: Literal["text"]
    text: str


class CacheContent(RequestBody):
    """Text whose KV was computed before, by the id of its context cache."""

    type: Literal["context_cache"]
    cache_id: str = Field(max_length=200)


Content = Annotated[TextContent | CacheContent, Field(discriminator="type")]


class RequestMessage(RequestBody):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Several[Content] | None = None


class ChatRequest(Sampled):
    model: str = Field(max_length=1000)
    messages: Several[RequestMessage] = Field(min_length=1, max_length=LONGEST_LIST)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=1 << 30)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    # Ours, of a model with documents: which collection, unless the model's name says it, and how its chunks are found.
    collection: str | None = Field(default=None, max_length=200)
    top_k_chunks: int | None = Field(default=None, ge=1, le=1000)


class CompletionRequest(Sampled):
    model: str = Field(max_length=1000)
    prompt: str | Several[str] | Several[Count] | Several[Several[Count]] = Field(default="")
    logprobs: int | None = Field(default=None, ge=0, le=20)
    echo: Literal[False] | None = None


class EmbeddingRequest(RequestBody):
    model: str = Field(max_length=1000)
    input: str | Several[str]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = Field(default=None, ge=1, le=1 << 30)


class CachedTokens(BaseModel):
    cached_tokens: int = 0


class CompletionUsage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens | None = None


class TopLogprob(BaseModel):
    token: str
    logprob: float
    bytes: list[int] | None = None


class ChosenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(BaseModel):
    content: list[ChosenLogprob] | None = None


class CompletionLogprobs(BaseModel):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class AnsweredMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class ChatChoice(BaseModel):
    index: int
    message: AnsweredMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: Literal["stop", "length"]


class AboutAnswer(BaseModel):
    """Ours, of an answer from documents: what is cited, and by which sentence, what of the prompt was reused, what its
    user should know.
    """

    citations: list[dict[str, Any]]
    support: list[SupportedSentence]
    report: dict[str, Any]
    notes: list[str]


class ChatResponse(BaseModel):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: CompletionUsage
    ragcache: list[AboutAnswer] | None = None  # of each choice


class CompletionChoice(BaseModel):
    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: Literal["stop", "length"]


class CompletionResponse(BaseModel):
    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: CompletionUsage


class Embedded(BaseModel):
    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class EmbeddingResponse(BaseModel):
    object: Literal["list"] = "list"
    data: list[Embedded]
    model: str
    usage: EmbeddingUsage
