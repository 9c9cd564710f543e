"""Settings. The only reader of the environment: flags before environment before `.env` before defaults.

The `.env` of the current folder is read for its owner's sake only, since a folder may be anybody's.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO

from dotenv import dotenv_values
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from ragcache.errors import ConfigError
from ragcache.records import FOLDER, Records

PREFIX = "RAGCACHE_"
GIB = 1 << 30
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
    found = BYTES.fullmatch(value.strip())
    if found is None or found[2].lower() not in UNITS:
        raise ValueError("should be a size such as 4GiB, 500MB or 1048576")
    return int(Fraction(found[1]) * UNITS[found[2].lower()])


def default_cache_dir() -> Path:
    """Where the platform keeps what can be computed again."""
    return _xdg("XDG_CACHE_HOME", "~/.cache")


def default_data_dir() -> Path:
    """Where the platform keeps what cannot."""
    return _xdg("XDG_DATA_HOME", "~/.local/share")


def _xdg(name: str, otherwise: str) -> Path:
    named = os.environ.get(name, "")
    base = Path(named) if Path(named).is_absolute() else expanded(Path(otherwise))  # XDG: ignore a relative path
    return base / "ragcache"


def expanded(path: Path) -> Path:
    """With the home folder for a `~`. Raises ConfigError where there is none."""
    try:
        return path.expanduser()
    except RuntimeError:
        raise ConfigError(f"{path}: there is no home folder of that name here, so write the whole path") from None


def free_bytes(folder: Path) -> int:
    """For us, on the disk of a folder or where it would be made."""
    return shutil.disk_usage(next(one for one in (folder, *folder.absolute().parents) if one.exists())).free


def check_url(value: SecretStr) -> SecretStr:
    """Whether it can be a URL at all: the catalog, which knows the databases, has the last word."""
    if "://" not in value.get_secret_value():
        raise ValueError("should be a URL: sqlite:////absolute/path or postgresql://user:password@host/database")
    return value


PromptOrder = Literal["collection", "best"]
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
    retrieval: Literal["hybrid", "vector", "keyword"] = "hybrid"
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
    ram_bytes: Bytes = 4 * 1024**3
    disk_bytes: Bytes = 32 * 1024**3
    remote: str = ""
    remote_bytes: Bytes | None = None
    codec: Name = "bf16"
    eviction: Name = "lru"
    linker: Name = "auto"
    link_when: Literal["sooner", "always"] = "sooner"
    context_chunks: int = Field(default=3, ge=0, le=128)
    system_prompt: str = (
        "You are a helpful assistant that answers questions over a collection of documents. You are given excerpts "
        "from the documents, followed by a question. Read all excerpts with care; they may come from different "
        "documents, and some of them may have nothing to do with the question. Answer the question from the excerpts "
        "alone. Be brief and exact: give names, numbers and dates as they stand in the excerpts. If the excerpts do "
        "not hold the answer, say that you do not know. Do not repeat the question, and do not mention the excerpts "
        "in your answer."
    )
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def kv_folder(self) -> Path:
        return self.cache_dir / "kv"

    @property
    def digests_file(self) -> Path:
        """Checksums of model files that were read before."""
        return self.cache_dir / "digests.json"

    @property
    def records(self) -> Records:
        """What earlier starts have found out about models."""
        return Records(self.cache_dir / FOLDER)

    @property
    def chunk_limits(self) -> dict[str, int]:
        """As a splitter takes them."""
        return {"max_tokens": self.chunk_tokens, "min_tokens": self.min_chunk_tokens}

    @field_validator("chunk_tokens")
    @classmethod
    def _room_for_the_minimum(cls, value: int, info: ValidationInfo) -> int:
        smallest = info.data.get("min_chunk_tokens", 1)
        if value < 2 * smallest:  # every text can be split within both
            raise ValueError(f"should be at least {2 * smallest}, twice {variable('min_chunk_tokens')}={smallest}")
        return value


@dataclass(frozen=True)
class Wording:
    """The strings around the texts of a prompt. No settings, since cached KV belongs to them."""

    before_passages: str = "Documents:\n\n"  # at the head of the user's turn
    before_chunk: str = ""
    after_chunk: str = "\n\n"
    before_question: str = "Question: "
    after_question: str = ""
    no_passages: str = "(No excerpt was found.)\n\n"  # in the place of the chunks


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


def load_settings(env_file: Path | None = Path(".env"), **flags: Any) -> Settings:
    """The settings of this process; a flag that is None was not given. Raises ConfigError."""
    given = {name: value for name, value in flags.items() if value is not None}
    in_file = read_env_file(env_file, PREFIX)
    _refuse_unknown(os.environ, "the environment")
    _refuse_unknown(in_file, str(env_file))
    environment = {name.upper() for name in os.environ}
    of_file = {name: in_file[variable(name)] for name in Settings.model_fields if variable(name) in in_file}
    try:
        return Settings(**{name: value for name, value in of_file.items() if variable(name) not in environment} | given)
    except ValidationError as error:
        told = [_told(detail, given, in_file, env_file) for detail in error.errors(include_url=False)]
        raise ConfigError("; ".join(told)) from error


def redirection(env_file: Path | None = Path(".env"), **flags: Any) -> str:
    """What the file decides of where data goes and which models run, for the log; "" where it is nothing of that."""
    environment = {name.upper() for name in os.environ} | {variable(name) for name, value in flags.items() if value}
    told = [variable(name) for name in REDIRECTING]
    found = [name for name in told if name in read_env_file(env_file, PREFIX) and name not in environment]
    return f"{env_file} in {Path.cwd()} sets {', '.join(found)}" if found else ""


def _refuse_unknown(names: Mapping[str, str | None], where: str) -> None:
    known = [variable(name) for name in Settings.model_fields]
    for name in names:
        if not name.upper().startswith(PREFIX):
            continue
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
        environment = {key.upper(): text for key, text in os.environ.items()}
        if upper in environment:
            value, where = environment[upper], "in the environment"
        elif upper in in_file:
            value, where = in_file[upper], f"in {env_file}"
        else:
            value, where = Settings.model_fields[name].default, "by default"
    allowed = detail["msg"].removeprefix("Value error, ").removeprefix("Input ").removeprefix("String ")
    if name == "database_url":  # it holds a password
        return f"{upper} {where} {allowed}"
    return f"{upper}={value!r} {where} {allowed}"


def read_env_file(path: Path | None, prefix: str) -> dict[str, str | None]:
    """Its variables by name in capitals. Raises ConfigError, also where others may have written those of the prefix."""
    if path is None or path.is_dir():  # a virtual environment may have the name
        return {}
    try:
        # Once, so that what is checked is what is read. Not to block: a named pipe would wait for someone to write.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), encoding="utf-8") as file:
            found, foreign = _read(file, path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    if foreign and any(name.startswith(prefix) for name in found):
        raise ConfigError(
            f"{path.absolute()} {foreign}, so that its {prefix}… settings may be somebody else's, who could send your "
            "documents elsewhere: remove them, make the file yours alone, or run this in another folder"
        )
    return found


def _read(file: TextIO, path: Path) -> tuple[dict[str, str | None], str]:
    """Variables, and why others may have written them."""
    told = os.fstat(file.fileno())
    if not stat.S_ISREG(told.st_mode):
        raise OSError("it is a pipe or device, not a file")
    foreign = _foreign(told, path.absolute().parent.stat())
    return {name.upper(): value for name, value in dotenv_values(stream=file).items()}, foreign


def _foreign(file: os.stat_result, folder: os.stat_result) -> str:
    """Why others may have written the file, or "". The superuser may write anything anyway."""
    mine = (os.geteuid(), 0)
    if file.st_uid not in mine:
        return f"belongs to another user (id {file.st_uid})"
    if file.st_mode & stat.S_IWOTH:
        return "can be written by every user"
    if folder.st_uid not in mine:
        return f"lies in a folder of another user (id {folder.st_uid})"
    if folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX:
        return "lies in a folder that every user can write to"
    return ""
