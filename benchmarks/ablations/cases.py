"""What is measured, ablation by ablation. Cases that are the same but for their name are computed once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from benchmarks.ablations import ALPHA, COMPONENTS, COUNT, POSITIONS, SIZE, AblationsBenchOptions
from benchmarks.ablations.linkers import WithoutOverlap, WithoutRanking
from ragcache.linking.base import Linker
from ragcache.linking.baselines import Naive
from ragcache.linking.cci import ContextImpact


@dataclass(frozen=True)
class Repair:
    """How a prompt is linked."""

    linker: Linker
    old_positions: bool = False  # see OldPositions


@dataclass(frozen=True)
class AblationCase:
    ablation: str
    name: str
    repair: Repair
    top_k: int
    chunk_tokens: int
    against: str = ""  # the case of the same ablation and prompts that it is compared with, if any


def cases_of(options: AblationsBenchOptions) -> list[AblationCase]:
    return [case for ablation in options.ablations for case in _MADE[ablation](options)]


def _components(options: AblationsBenchOptions) -> Iterator[AblationCase]:
    focus, seed = options.focus, options.seed
    whole = "whole"
    linkers: Mapping[str, Linker] = {
        "naive": Naive(),
        whole: ContextImpact(focus=focus),
        "without beta": WithoutOverlap(focus=focus),
        "without CCI": WithoutRanking(focus=focus, seed=seed),
        "without focus": ContextImpact(),
        "without beta, focus": WithoutOverlap(),
        "without CCI, focus": WithoutRanking(seed=seed),
    }
    for name, linker in linkers.items():
        yield _usual(options, COMPONENTS, name, Repair(linker), "" if name == whole else whole)


def _alpha(options: AblationsBenchOptions) -> Iterator[AblationCase]:
    for focus, named in ((0, ""), (options.focus, ", focus")):
        for alpha in options.alphas:
            against = "" if alpha == options.alphas[0] else f"alpha {options.alphas[0]:g}{named}"
            linker = ContextImpact(alpha=alpha, focus=focus)
            yield _usual(options, ALPHA, f"alpha {alpha:g}{named}", Repair(linker), against)


def _count(options: AblationsBenchOptions) -> Iterator[AblationCase]:
    for count in options.counts:
        for case in _with_and_without_focus(options, COUNT):
            yield replace(case, top_k=count)


def _size(options: AblationsBenchOptions) -> Iterator[AblationCase]:
    for size in options.sizes:
        for case in _with_and_without_focus(options, SIZE):
            yield replace(case, chunk_tokens=size)


def _with_and_without_focus(options: AblationsBenchOptions, ablation: str) -> Iterator[AblationCase]:
    linker = ContextImpact(ratio=options.ratio)
    yield _usual(options, ablation, "naive", Repair(Naive()), "cci")
    yield _usual(options, ablation, "cci", Repair(linker))
    yield _usual(options, ablation, "cci, focus", Repair(replace(linker, focus=options.focus)), "cci")


def _positions(options: AblationsBenchOptions) -> Iterator[AblationCase]:
    repaired, best = ContextImpact(ratio=options.ratio), "turned, repaired"
    yield _usual(options, POSITIONS, "old, as placed", Repair(Naive(), old_positions=True), best)
    yield _usual(options, POSITIONS, "old, repaired", Repair(repaired, old_positions=True), best)
    yield _usual(options, POSITIONS, "turned, as placed", Repair(Naive()), best)
    yield _usual(options, POSITIONS, best, Repair(repaired))


def _usual(options: AblationsBenchOptions, ablation: str, name: str, repair: Repair, against: str = "") -> AblationCase:
    return AblationCase(ablation, name, repair, options.top_k, options.chunk_tokens, against)


_MADE: Mapping[str, Callable[[AblationsBenchOptions], Iterator[AblationCase]]] = {
    COMPONENTS: _components,
    ALPHA: _alpha,
    COUNT: _count,
    SIZE: _size,
    POSITIONS: _positions,
}
