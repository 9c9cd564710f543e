"""Each prompt is answered by full recompute once, and linked in each way that a case asks for, led along that answer.

All cases have the same questions; their documents are cut and captured once for each length of chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from app.models.loading import TorchModel, load_embedder, load_torch_model
from app.settings import Settings
from benchmarks.ablations import AblationsBenchOptions
from benchmarks.ablations.cases import AblationCase, Repair, cases_of
from benchmarks.ablations.positions import OldPositions
from benchmarks.caches import capture, memory_cache
from benchmarks.corpus import sized_splitter
from benchmarks.data import Dataset, read_dataset
from benchmarks.output import Row, common_settings, publish
from benchmarks.quality.metrics import divergence, estimate, paired_ratio
from benchmarks.quality.pool import Pool
from benchmarks.quality.prompts import Group, Prompt, PromptBuilder
from ragcache.cache import ChunkCache
from ragcache.engine.torch.forcing import ForcedAnswers
from ragcache.report import Report
from retriever import Vectors
from splitter.base import Embed

CONTEXT = "document"  # what chunks are captured behind
HIDDEN = ("against", "tokens", "agree")  # columns that the table for people leaves out


@dataclass(frozen=True)
class RepairedAnswer:
    """Of one prompt."""

    kl: float
    kl_first: float
    agree: float
    repaired: float  # of the chunks' tokens, those computed again; rows that focus ends count by their layers
    tokens: int  # of the prompt


Answers = dict[AblationCase, RepairedAnswer]  # of one prompt


class RepairMeter:
    """Of prompts whose chunks are cached, by one engine."""

    def __init__(self, parts: TorchModel, filled: ChunkCache, steps: int):
        # The engine's plain loader, or the one of old positions, brings all that is cached; nothing is left out.
        source = replace(filled.source, rates=None, loader=None, prefixes=None)
        old = replace(source, loader=OldPositions(parts.engine.decoder.rope))
        self._forcing = {
            old_positions: ForcedAnswers(parts.engine, one, steps, parts.template.stop)
            for old_positions, one in ((False, source), (True, old))
        }

    def of(self, prompts: Mapping[int, Prompt], cases: Sequence[AblationCase]) -> Answers:
        """`prompts`: of one question, by how many chunks they have."""
        found: dict[tuple[int, Repair], RepairedAnswer] = {}
        for top_k, prompt in prompts.items():
            ids, expected = self._forcing[False].full(prompt.segments)
            for repair in dict.fromkeys(case.repair for case in cases if case.top_k == top_k):
                forcing = self._forcing[repair.old_positions]
                made = forcing.prefilled(prompt.segments, repair.linker)
                told = divergence(expected, forcing.forced(made, ids, len(expected)))
                found[top_k, repair] = RepairedAnswer(**asdict(told), **_repaired(made.report))
        return {case: found[case.top_k, case.repair] for case in cases}


def _repaired(report: Report) -> dict[str, Any]:
    chunks = sum(chunk.tokens for chunk in report.chunks)
    assert not report.computed, "all chunks are captured before a prompt is asked"
    return {"repaired": (report.repaired + report.charged) / chunks, "tokens": report.prompt_tokens}


def main(settings: Settings, options: AblationsBenchOptions, out: Path) -> None:
    cases_of(options)  # a setting that is wrong is said before the model is loaded
    parts = load_torch_model(settings)
    run(parts, load_embedder(settings).embed, read_dataset(options.data), options, out)


def run(parts: TorchModel, embed: Embed, dataset: Dataset, options: AblationsBenchOptions, out: Path) -> list[Row]:
    cases = cases_of(options)
    measured: dict[AblationCase, dict[str, RepairedAnswer]] = {case: {} for case in cases}
    lengths = sorted({case.chunk_tokens for case in cases})
    questions = len(dataset.sample(options.limit, options.seed).questions)
    with tqdm(total=len(lengths) * questions, unit="question", desc="ablations") as bar:
        for chunk_tokens in lengths:
            asked = [case for case in cases if case.chunk_tokens == chunk_tokens]
            for name, answers in _measured(parts, embed, dataset, options, asked):
                for case, answer in answers.items():
                    measured[case][name] = answer
                bar.update()
    rows = [_row(case, measured, options.seed) for case in cases]
    told = [
        {"ablation": case.ablation, "case": case.name, "top_k": case.top_k, "chunk_tokens": case.chunk_tokens}
        | {"prompts": {name: asdict(answer) for name, answer in measured[case].items()}}
        for case in cases
    ]
    settings = common_settings(parts) | options.settings() | {"data": dataset.digest}
    settings |= {"embedder": parts.settings.embedder, "codec": parts.settings.codec}
    publish(settings, rows, out, {"answers": told}, HIDDEN)
    return rows


def _measured(
    parts: TorchModel, embed: Embed, dataset: Dataset, options: AblationsBenchOptions, cases: Sequence[AblationCase]
) -> Iterator[tuple[str, Answers]]:
    """By question. The cases have chunks of one length."""
    chosen = dataset.sample(options.limit, options.seed)
    counts = sorted({case.top_k for case in cases})
    builders = _builders(parts, embed, dataset, options, cases[0].chunk_tokens, counts)
    for groups in zip(*(builder.groups(chosen) for builder in builders), strict=True):
        meter = RepairMeter(parts, _filled(parts, groups), options.steps)
        for prompts in zip(*(group.prompts for group in groups), strict=True):
            yield prompts[0].name, meter.of(dict(zip(counts, prompts, strict=True)), cases)


def _builders(
    parts: TorchModel,
    embed: Embed,
    dataset: Dataset,
    options: AblationsBenchOptions,
    chunk_tokens: int,
    counts: Sequence[int],
) -> list[PromptBuilder]:
    """One for each number of chunks; what they retrieve from is embedded once."""
    remembered = cache(lambda texts: embed(texts))

    def embed_once(texts: Sequence[str]) -> Vectors:
        return remembered(tuple(texts))

    splitter, room = sized_splitter(parts.template, chunk_tokens), parts.engine.spec.max_tokens - options.steps
    passages = [text for question in dataset.questions for text in question.contexts]
    pool = Pool.of(passages, splitter, embed_once, first=False) if passages else None
    return [
        PromptBuilder(parts.template, embed_once, splitter, splitter, count, room, options.order, pool)
        for count in counts
    ]


def _filled(parts: TorchModel, groups: Sequence[Group]) -> ChunkCache:
    """With all chunks of the groups' prompts. The last group has the most of each prompt, so its documents, which are
    as far as they are needed, hold those of the others too.
    """
    filled, longest = memory_cache(parts, CONTEXT), groups[-1]
    needed = [chunk for group in groups for prompt in group.prompts for chunk in prompt.chunks]
    variants = capture(filled, parts.template.system(), longest.documents, needed, codec=parts.settings.codec)
    for _ in tqdm(variants, desc="KV", unit="chunk", leave=False):
        pass
    return filled


def _row(case: AblationCase, measured: Mapping[AblationCase, Mapping[str, RepairedAnswer]], seed: int) -> Row:
    answers = measured[case]
    each, other = [one.kl for one in answers.values()], _compared_with(case, measured)
    kl = estimate(each, seed)
    ratio = paired_ratio(each, [other[name].kl for name in answers], seed) if other else None
    return {
        "ablation": case.ablation,
        "case": case.name,
        "prompts": len(answers),
        "top_k": case.top_k,
        "chunk_tokens": case.chunk_tokens,
        "tokens": float(np.mean([one.tokens for one in answers.values()])),
        "kl": kl.mean,
        "kl_low": kl.low,
        "kl_high": kl.high,
        "first_kl": float(np.mean([one.kl_first for one in answers.values()])),
        "agree": float(np.mean([one.agree for one in answers.values()])),
        "repaired_share": float(np.mean([one.repaired for one in answers.values()])),
        "against": case.against or None,
        "ratio": ratio.mean if ratio else None,
        "ratio_low": ratio.low if ratio else None,
        "ratio_high": ratio.high if ratio else None,
    }


def _compared_with(
    case: AblationCase, measured: Mapping[AblationCase, Mapping[str, RepairedAnswer]]
) -> Mapping[str, RepairedAnswer] | None:
    """Of the same prompts."""
    alike = (one for one in measured if replace(case, name=one.name, repair=one.repair, against=one.against) == one)
    return next((measured[one] for one in alike if one.name == case.against), None)
