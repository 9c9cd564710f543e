"""Settings. The only reader of the environment: flags before environment before `.env` before defaults."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.env_file import read_env_file
from ragcache.errors import ConfigError
from ragcache.host import disk_size
from ragcache.records import FOLDER, Records
from ragcache.store.defaults import CODEC, ORDER, RAM_BYTES
from ragcache.store.eviction import MOST_VARIANTS, VARIANTS

PREFIX = "RAGCACHE_"
GIB = 1 << 30
DISK_FLOOR = (GIB, 10 * GIB)
MOST_NEIGHBOURS = 16  # on each side of a hit
# Where data goes, and what is loaded: whoever sets one of these has the documents.
REDIRECTING = ("database_url", "data_dir", "cache_dir", "remote", "model", "embedder", "reranker", "splitter")
UNITS = {"": 1, "b": 1} | {
    unit: base**power
    for power, letter in enumerate("kmgt", start=1)
    for unit, base in ((f"{letter}b", 1000), (f"{letter}ib", 1024))
}
BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)


def parse_bytes(value: object) -> object:
    """4GiB, 500 MB or 1048576 as a number of bytes; what is no text is left to the type's own check."""
    if not isinstance(value, str):
        return value
    if (found := BYTES.fullmatch(value.strip())) is None or found[2].lower() not in UNITS:
        raise ValueError("should be a size such as 4GiB, 500MB or 1048576")
    return int(Fraction(found[1]) * UNITS[found[2].lower()])


def default_cache_dir() -> Path:
    """Where the platform keeps what can be computed again."""
    return _xdg("XDG_CACHE_HOME", "~/.cache")


def default_data_dir() -> Path:
    """Where the platform keeps what cannot."""
    return _xdg("XDG_DATA_HOME", "~/.local/share")


def _xdg(name: str, otherwise: str) -> Path:
    named = Path(os.environ.get(name, ""))
    return (named if named.is_absolute() else expanded(Path(otherwise))) / "ragcache"  # XDG: ignore a relative path


def expanded(path: Path) -> Path:
    """With the home folder for a `~`. Raises ConfigError where there is none."""
    try:
        return path.expanduser()
    except RuntimeError:
        raise ConfigError(f"{path}: there is no home folder of that name here, so write the whole path") from None


def check_url(value: SecretStr) -> SecretStr:
    """Whether it can be a URL at all: the catalog, which knows the databases, has the last word."""
    if "://" not in value.get_secret_value():
        raise ValueError("should be a URL: sqlite:////absolute/path or postgresql://user:password@host/database")
    return value


PromptOrder = Literal["collection", "cached", "best"]
RetrievalMode = Literal["hybrid", "vector", "keyword"]
KvMode = Literal["auto", "eager", "on-use", "off"]
Name = Annotated[str, Field(min_length=1)]
Bytes = Annotated[int, BeforeValidator(parse_bytes), Field(ge=0)]
Folder = Annotated[Path, AfterValidator(expanded)]
DatabaseUrl = Annotated[SecretStr, AfterValidator(check_url)]


class Settings(BaseSettings):
    """All settings. Names of strategies are checked by their registries, which know them."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        protected_namespaces=(),
    )

    model: Name = "bundled:smollm2"
    embedder: Name = "bundled:minilm"
    engine: Name = "torch"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    threads: int | None = Field(default=None, ge=1)
    vllm_url: str = ""
    vllm_key: SecretStr = SecretStr("")
    vllm_kv_bytes: Bytes = 2 * 1024**3
    vllm_context: int = Field(default=0, ge=0)
    vllm_compile: Literal["auto", "on", "off"] = "auto"
    cache_dir: Folder = Field(default_factory=default_cache_dir)
    data_dir: Folder = Field(default_factory=default_data_dir)
    database_url: DatabaseUrl | None = None
    backups: int = Field(default=3, ge=0)
    collection: Name = "default"
    splitter: Name = "auto"
    min_chunk_tokens: int = Field(default=32, ge=1)
    chunk_tokens: int = Field(default=240, ge=1, validate_default=True)  # checked also where only the minimum was set
    top_k: int = Field(default=5, ge=1)
    top_tokens: int = Field(default=0, ge=0)
    neighbours: int = Field(default=0, ge=0, le=MOST_NEIGHBOURS)
    prompt_order: PromptOrder = "collection"
    retrieval: RetrievalMode = "hybrid"
    vector_share: float | None = Field(default=None, ge=0, le=1)
    fusion: Literal["linear", "rank"] | None = None
    mmr: float | None = Field(default=None, ge=0, le=1)
    reranker: Name | None = None
    rerank_depth: int = Field(default=20, ge=1)
    condense: Literal["join", "model", "off"] = "join"
    max_tokens: int = Field(default=256, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    sampling_top_k: int | None = Field(default=None, ge=0)
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    ram_bytes: Bytes = RAM_BYTES
    disk_bytes: Bytes = 32 * 1024**3
    kv: KvMode = "auto"
    index_bytes: Bytes = GIB
    remote: str = ""
    remote_bytes: Bytes | None = None
    codec: Name = CODEC
    eviction: Name = ORDER
    variants: int = Field(default=VARIANTS, ge=1, le=MOST_VARIANTS)
    linker: Name = "auto"
    link_when: Literal["sooner", "always"] = "sooner"
    gate: float = Field(default=0.02, ge=0, le=1)
    anticipate: int = Field(default=2, ge=0, le=16)
    refine: int = Field(default=2, ge=0, le=64)
    context_chunks: int = Field(default=3, ge=0, le=128)
    system_prompt: str = (
        "You are a helpful assistant that answers questions over a collection of documents. You are given excerpts "
        "from the documents, followed by a question. Read all excerpts with care; they may come from different "
        "documents, and some of them may have nothing to do with the question. Answer the question from the excerpts "
        "alone. Be brief and exact: give names, numbers and dates as they stand in the excerpts. If the excerpts do "
        "not hold the answer, say that you do not know. Do not repeat the question, and do not mention the excerpts "
        "in your answer."
    )
    context_caches: int = Field(default=256, ge=0)
    context_bytes: Bytes = 8 * 1024**3
    serve_host: Name = "127.0.0.1"
    serve_port: int = Field(default=8000, ge=0, le=65535)
    serve_concurrent: int = Field(default=16, ge=1)
    serve_queue: int = Field(default=64, ge=0)
    serve_body_bytes: Bytes = 8 * 1024**2
    serve_upload_bytes: Bytes = 200 * 1024**2
    serve_origins: str = ""
    serve_grace_s: float = Field(default=30, ge=0)
    ui_host: Name = "127.0.0.1"
    ui_port: int = Field(default=8501, ge=0, le=65535)
    server: str = ""
    api_key: SecretStr | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    log_texts: bool = False

    @property
    def kv_folder(self) -> Path:
        return self.cache_dir / "kv"

    @property
    def disk_floor(self) -> int:
        """Bytes of its disk that KV leaves free: a twentieth within bounds, a quarter where that is less, or 0."""
        (smallest, largest), size = DISK_FLOOR, disk_size(self.kv_folder)
        return 0 if self.kv == "eager" else min(largest, size // 4, max(smallest, size // 20))

    @property
    def digests_file(self) -> Path:
        """Checksums of model files that were read before."""
        return self.cache_dir / "digests.json"

    @property
    def records(self) -> Records:
        """What earlier starts have found out about models."""
        return Records(self.cache_dir / FOLDER)

    @property
    def chunk_limits(self) -> dict[str, int]:  # as a splitter takes them
        return {"max_tokens": self.chunk_tokens, "min_tokens": self.min_chunk_tokens}

    @field_validator("chunk_tokens")
    @classmethod
    def _room_for_the_minimum(cls, value: int, info: ValidationInfo) -> int:
        smallest = info.data.get("min_chunk_tokens", 1)
        if value < 2 * smallest:  # every text can be split within both
            raise ValueError(f"should be at least {2 * smallest}, twice {variable('min_chunk_tokens')}={smallest}")
        return value


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


def load_settings(env_file: Path | None = Path(".env"), **flags: Any) -> Settings:
    """The settings of this process; a flag that is None was not given. Raises ConfigError."""
    given = {name: value for name, value in flags.items() if value is not None}
    in_file = check_names(env_file)
    named = {name.upper() for name in os.environ}
    of_file = {name: in_file[variable(name)] for name in Settings.model_fields if variable(name) in in_file}
    try:
        return Settings(**{name: value for name, value in of_file.items() if variable(name) not in named} | given)
    except ValidationError as error:
        told = [_told(detail, given, in_file, env_file) for detail in error.errors(include_url=False)]
        raise ConfigError("; ".join(told)) from error


def environment(**given: str | None) -> dict[str, str]:
    """For a process that this one starts, with these settings and no others of ours."""
    own = {variable(name): value for name, value in given.items() if value is not None}
    return {name: value for name, value in os.environ.items() if not name.upper().startswith(PREFIX)} | own


def check_names(env_file: Path | None = Path(".env")) -> dict[str, str | None]:
    """The variables of the file. Raises ConfigError for a setting that there is none of, here or in the environment."""
    in_file = read_env_file(env_file, PREFIX)
    _refuse_unknown(os.environ, "the environment")
    _refuse_unknown(in_file, str(env_file))
    return in_file


def redirection(env_file: Path | None = Path(".env"), **flags: Any) -> str:
    """What the file decides of where data goes and which models run, for the log; "" where it is nothing of that."""
    named = {name.upper() for name in os.environ} | {variable(name) for name, value in flags.items() if value}
    given = read_env_file(env_file, PREFIX).keys() - named
    found = ", ".join(name for name in map(variable, REDIRECTING) if name in given)
    return f"{env_file} in {Path.cwd()} sets {found}" if found else ""


def traces_wanted() -> bool:
    """By the variables of OpenTelemetry, whose own library reads all the others."""
    return any(os.environ.get(f"OTEL_EXPORTER_OTLP_{name}ENDPOINT") for name in ("", "TRACES_"))


def default_variables(defaults: Mapping[str, str]) -> set[str]:
    """Variables of other libraries, set where the environment has none of the name; those are returned."""
    unset = set(defaults) - set(os.environ)
    os.environ.update({name: defaults[name] for name in unset})
    return unset


def _refuse_unknown(names: Mapping[str, str | None], where: str) -> None:
    known = [variable(name) for name in Settings.model_fields]
    for name in (one for one in names if one.upper().startswith(PREFIX)):
        if name.upper() not in known:
            closest = get_close_matches(name.upper(), known, n=1, cutoff=0)[0]
            raise ConfigError(f"unknown setting {name} in {where}: did you mean {closest}?")
        if names[name] is None:
            raise ConfigError(f"{name} in {where} has no value: write {name}=value")


def _told(
    detail: ErrorDetails, flags: Mapping[str, object], in_file: Mapping[str, str | None], env_file: Path | None
) -> str:
    """One wrong value in words: its name, itself, where it was set and what is allowed."""
    upper = variable(name := str(detail["loc"][0]))
    if detail["type"] == "extra_forbidden":
        raise TypeError(f"load_settings() has no setting {name!r}")  # a caller's bug, not a user's
    if name in flags:
        value, where = flags[name], "given as a flag"
    else:
        given = {key.upper(): text for key, text in os.environ.items()}
        if upper in given:
            value, where = given[upper], "in the environment"
        elif upper in in_file:
            value, where = in_file[upper], f"in {env_file}"
        else:
            value, where = Settings.model_fields[name].default, "by default"
    allowed = detail["msg"].removeprefix("Value error, ").removeprefix("Input ").removeprefix("String ")
    shown = upper if name in ("database_url", "api_key") else f"{upper}={value!r}"  # these hold what is secret
    return f"{shown} {where} {allowed}"
