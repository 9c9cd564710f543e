"""What the doctor looks at with torch: the names of strategies, and whether an engine works on the model, device and
number format of the settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from app.cli.findings import Finding
from app.models.devices import resolve_device, resolve_dtype
from app.models.folders import resolve_model
from app.models.loading import ENGINES, load_model, load_reranker, load_store
from app.models.vllm import check_served, check_vllm
from app.settings import Settings, variable
from ragcache.engine.selfcheck import self_check
from ragcache.engine.torch.engine import TorchEngine
from ragcache.errors import ConfigError, RagcacheError
from ragcache.linking import make_linker
from ragcache.report import FULL
from ragcache.store import KVStore, open_store
from ragcache.store.codec import open_codec
from ragcache.store.eviction import open_orders
from splitter import make_splitter
from splitter.base import Offsets

PASSAGE, ASKED = "The lighthouse of Port Ferris was designed by Ada Brandt.", "Who designed the lighthouse?"

NONE = "none"


def _engine(settings: Settings) -> None:
    if settings.engine not in ENGINES:
        raise ConfigError(f"unknown engine {settings.engine!r}: choose from {', '.join(ENGINES)}")


def _splitter(settings: Settings) -> None:
    """Made as an ingest makes it, but for the models that it cuts with."""
    make_splitter(
        settings.splitter, CharacterTokens(), lambda texts: np.ones((len(texts), 1), np.float32), settings.chunk_limits
    )


def _reranker(settings: Settings) -> None:
    if (reranker := load_reranker(settings)) is not None:
        reranker.load()


class CharacterTokens:
    """Where only the name of a splitter is looked at."""

    def count(self, text: str) -> int:
        return len(text)

    def offsets(self, text: str) -> Sequence[Offsets]:
        return [(place, place + 1) for place in range(len(text))]


# Every setting that names a strategy, and what makes it of the settings.
STRATEGIES: Mapping[str, Callable[[Settings], object]] = {
    "engine": _engine,
    "splitter": _splitter,
    "reranker": _reranker,
    "linker": lambda settings: make_linker(settings.linker),
    "codec": lambda settings: open_codec(settings.codec),
    "eviction": lambda settings: open_orders(settings.eviction),
}


def check_names(settings: Settings) -> list[Finding]:
    """Each by itself: one that is wrong hides no other."""
    return [_check_name(setting, settings) for setting in STRATEGIES]


def _check_name(setting: str, settings: Settings) -> Finding:
    try:
        STRATEGIES[setting](settings)
    except RagcacheError as error:
        return Finding(setting, False, f"{error}; set {variable(setting)}")
    return Finding(setting, True, getattr(settings, setting) or NONE)


def check_vllm_engine(settings: Settings) -> list[Finding]:
    """Whether it starts, captures, and answers from what it captured as it answers without."""
    found = [Finding("vllm", True, check_vllm(settings))]
    always = settings.model_copy(update={"link_when": "always"})  # whether it is sooner is not the question
    same, reused, where = _answers(always, open_store(codec="raw"))
    return [*found, Finding("engine: linked as computed", same and reused, where)]


def check_vllm_server(settings: Settings) -> list[Finding]:
    """The same of a server, through the folder that both have. Whether it links or computes is its own to judge."""
    found = [Finding("vllm server", True, check_served(settings))]
    same, _, where = _answers(settings, load_store(settings))
    return [*found, Finding("engine: captured into our folder, answered as computed", same, where)]


def _answers(settings: Settings, store: KVStore) -> tuple[bool, bool, str]:
    """Whether a linked answer is the computed one, and all of the passage was reused for it; by which engine."""
    model = load_model(settings)
    try:
        cache = model.cache(store, "naive", keep_missed=False)
        system, chunk, question = model.template.system(), model.template.chunk(PASSAGE), model.template.question(ASKED)
        list(cache.ingest(system, [chunk]))
        segments = (system, chunk, question)
        without, linked = (cache.generate(segments, max_tokens=1, linker=linker) for linker in (FULL, "naive"))
        same, spec = list(without) == list(linked), model.engine.spec
        where = f"{spec.dtype} on {spec.device}, context of {spec.max_tokens:,} tokens".removeprefix("torch.")
        return same, linked.report.reused == len(chunk), where
    finally:
        model.close()


def check_torch(settings: Settings) -> list[Finding]:
    """Against stock transformers."""
    device = resolve_device(settings)
    dtype = resolve_dtype(settings, device)
    engine = TorchEngine.from_folder(resolve_model(settings.model, settings.cache_dir), dtype, device)
    where = f"{dtype} on {device}".removeprefix("torch.")
    return [
        Finding(f"engine: {check.name}", check.ok, f"error {check.error:.2g} (at most {check.tolerance:.2g}), {where}")
        for check in self_check(engine)
    ]


ENGINE_CHECKS = {"vllm": check_vllm_engine, "vllm-server": check_vllm_server}
