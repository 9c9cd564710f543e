"""How answers are sampled: as the settings say, and where they say nothing, as the makers of the model recommend."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, cast

from app.models.folders import BUNDLED, bundled_model, resolve_model
from app.settings import Settings, variable
from ragcache.errors import ConfigError, ModelError
from ragcache.sampling import Sampling

FILE = "generation_config.json"
SETTINGS = {"temperature": "temperature", "top_p": "top_p", "top_k": "sampling_top_k"}  # by their names in that file


def resolve_sampling(settings: Settings) -> Sampling:
    """Raises ModelError for what a model's file says wrongly, where it counts."""
    chosen = {name: getattr(settings, setting) for name, setting in SETTINGS.items()}
    if chosen["temperature"] != 0 and None in chosen.values():
        advice = Advice.of(settings)
        if chosen["temperature"] is None and not advice.is_sampled:
            chosen["temperature"] = 0.0
        else:
            lacking = [name for name, value in chosen.items() if value is None]
            chosen |= {name: advice.number(name) for name in lacking}
    return Sampling(**{name: value for name, value in chosen.items() if value is not None}, seed=settings.seed)


@dataclass(frozen=True)
class Advice:
    """What the makers of a model say, under the names that transformers gives it; null is as if it were not there."""

    source: str
    values: Mapping[str, object]

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Without a file there is none."""
        if settings.model.startswith(BUNDLED):
            return cls(settings.model, bundled_model(settings.model).generation)
        file = resolve_model(settings.model, settings.cache_dir) / FILE
        try:
            values = json.loads(file.read_bytes())
        except FileNotFoundError:
            return cls(str(file), {})
        except (OSError, ValueError, RecursionError) as error:
            raise ModelError(f"{file} cannot be read: {error!r:.200}. {_mend(SETTINGS)}") from error
        if not isinstance(values, dict):
            raise ModelError(f"{file} holds no settings by their names. {_mend(SETTINGS)}")
        return cls(str(file), values)

    @property
    def is_sampled(self) -> bool:
        """Some give a temperature and nothing else, and mean it."""
        told = self.values.get("do_sample")
        if told is not None and not isinstance(told, bool):
            raise ModelError(f"{self.source} says do_sample={told!r:.100}: true or false. {_mend(['temperature'])}")
        return self.values.get("temperature") is not None if told is None else told

    def number(self, name: str) -> float | None:
        """Of a sampled answer. None where it is as in Sampling."""
        value = self.values.get(name)
        if value is None:
            return 1.0 if name == "temperature" else None
        if isinstance(value, bool) or not isinstance(value, int if name == "top_k" else int | float):
            wanted = "a whole number" if name == "top_k" else "a number"
            raise ModelError(f"{self.source} says {name}={value!r:.100}: {wanted}. {_mend([name])}")
        # By its digits a number that is too large for a float is infinite, rather than an OverflowError.
        number: Any = value if name == "top_k" else float(str(value))
        try:
            replace(Sampling(), **{name: number})
        except ConfigError as error:
            raise ModelError(f"{self.source}: {error}. {_mend([name])}") from error
        return cast(float, number)


def _mend(names: Iterable[str]) -> str:
    return f"Mend the file, or set {' and '.join(variable(SETTINGS[name]) for name in names)}"
