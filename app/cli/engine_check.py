"""What the doctor looks at with torch: the names of strategies, and whether an engine works on the model, device and
number format of the settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.cli.doctor import Finding
from app.models import resolve_model
from app.models.loading import check_vllm, load_model, resolve_device, resolve_dtype
from app.settings import Settings, variable
from ragcache.engine.selfcheck import self_check
from ragcache.engine.torch.engine import TorchEngine
from ragcache.errors import ConfigError
from ragcache.linking import make_linker
from ragcache.store import open_store
from ragcache.store.codec import open_codec
from ragcache.store.eviction import open_order

PASSAGE, ASKED = "The lighthouse of Port Ferris was designed by Ada Brandt.", "Who designed the lighthouse?"

STRATEGIES: Mapping[str, Callable[[str], object]] = {  # what makes them, by their settings
    "linker": make_linker,
    "codec": open_codec,
    "eviction": open_order,
}


def check_names(settings: Settings) -> list[Finding]:
    """Each by itself: one that is wrong hides no other."""
    return [_check_name(setting, getattr(settings, setting)) for setting in STRATEGIES]


def _check_name(setting: str, given: str) -> Finding:
    try:
        STRATEGIES[setting](given)
    except ConfigError as error:
        return Finding(setting, False, f"{error}; set {variable(setting)}")
    return Finding(setting, True, given)


def check_vllm_engine(settings: Settings) -> list[Finding]:
    """Whether it starts, captures, and answers from what it captured as it answers without."""
    found = [Finding("vllm", True, check_vllm(settings))]
    model = load_model(settings.model_copy(update={"link_when": "always"}))  # whether it is sooner is not the question
    try:
        cache = model.cache(open_store(None, None, None, "raw"), "naive", keep_missed=False)
        system, chunk, question = model.template.system(), model.template.chunk(PASSAGE), model.template.question(ASKED)
        list(cache.ingest(system, [chunk]))
        segments = (system, chunk, question)
        without, linked = (cache.generate(segments, max_tokens=1, linker=linker) for linker in ("full", "naive"))
        same = list(without) == list(linked) and linked.report.reused == len(chunk)
        spec = model.engine.spec
        where = f"{spec.dtype} on {spec.device}, context of {spec.max_tokens:,} tokens".removeprefix("torch.")
        return [*found, Finding("engine: linked as computed", same, where)]
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
