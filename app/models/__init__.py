"""The models of the settings: what is loaded from the folders that hold them (app/models/folders.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Self

from app.models.folders import resolve_embedder
from app.settings import Settings
from ragcache.store.findings import DISK
from retriever.fingerprint import fingerprint
from retriever.shared_property import shared_property
from splitter import make_splitter

if TYPE_CHECKING:
    from app.models.loading import LoadedModel
    from app.models.sentences import SentenceEmbedder
    from app.prompt import PromptTemplate
    from ragcache.cache import ChunkCache
    from ragcache.sampling import Sampling
    from ragcache.store import KVStore
    from retriever.embedder import Embedder
    from retriever.sentence_model import Reranker
    from splitter.base import Splitter


class Models:
    """The language model, the embedders and the store of KV. Close it, or use it in a `with`.

    Each is loaded at its first use, under a lock of its own, so a command that finds nothing to do loads none of them.
    """

    def __init__(self, settings: Settings, language: LoadedModel | None = None):
        self.settings = settings
        if language is not None:
            self.language = language

    @shared_property
    def language(self) -> LoadedModel:
        """With its tokenizer."""
        from app.models.loading import load_model

        return load_model(self.settings)

    @property
    def loaded(self) -> LoadedModel | None:
        """The language model where it is loaded already; nobody waits for it."""
        return Models.language.peek(self)

    @property
    def links_elsewhere(self) -> bool:
        """A vLLM server of its own links prompts, in memory and by budgets that are not ours."""
        return self.settings.engine == "vllm-server"

    @shared_property
    def template(self) -> PromptTemplate:
        """Only the tokenizer, where the model is not loaded anyway."""
        if self.loaded:
            return self.loaded.template
        from app.prompt import open_template

        return open_template(self.settings)

    @shared_property
    def sampling(self) -> Sampling:
        """Of answers, where a question asks for no other. Raises ModelError."""
        from app.models.sampling import resolve_sampling

        return resolve_sampling(self.settings)

    @shared_property
    def embedder(self) -> Embedder:
        from app.models.loading import load_embedder

        return load_embedder(self.settings)

    @shared_property
    def sentences(self) -> SentenceEmbedder:
        """What the splitters compare sentences by, and questions are compared with."""
        from app.models.sentences import SentenceEmbedder

        return SentenceEmbedder(self.embedder)

    @shared_property
    def reranker(self) -> Reranker | None:
        from app.models.loading import load_reranker

        return load_reranker(self.settings)

    @shared_property
    def store(self) -> KVStore:
        from app.models.loading import load_store

        return load_store(self.settings)

    @property
    def disk_bytes(self) -> int:
        """The budget of KV on the disk: that of the settings, until whoever runs a server gives the store another."""
        store = Models.store.peek(self)
        known = {tier.name: tier.budget for tier in store.tiers()} if store else {}
        return known.get(DISK) or self.settings.disk_bytes

    @shared_property
    def cache(self) -> ChunkCache:
        """Of answers. Without KV it computes every prompt in full, and finds and keeps none of any chunk."""
        if self.settings.kv == "off":
            return self.language.bare_cache()
        return self.language.cache(self.store)

    @shared_property
    def embedder_fingerprint(self) -> str:
        """Without loading the model, or even its library."""
        return fingerprint(resolve_embedder(self.settings.embedder))

    def splitter(self, name: str, limits: Mapping[str, int], check: Callable[[], None] | None = None) -> Splitter:
        """Raises SplitterError. `check` ends a split by what it raises."""
        return make_splitter(name, self.template.tokens, self.sentences.embed, limits, check)

    def answering(self) -> AbstractContextManager[None]:
        """While somebody waits for what is done inside: captures that can wait hold on."""
        return self.loaded.keeper.answering() if self.loaded else nullcontext()

    def settle(self) -> None:
        """Wait until such captures are done."""
        if self.loaded:
            self.loaded.keeper.settle()

    def close(self) -> None:
        """What is asked of the language model afterwards fails. The store goes last: the model may still keep some."""
        try:
            if self.loaded:
                self.loaded.close()
        finally:
            if store := Models.store.peek(self):
                store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
