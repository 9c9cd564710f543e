"""`ragcache tune`."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.answering.target import AnswerTarget
from app.cli.flags import Json, configured
from app.cli.output import plain, print_json, table
from app.client.amounts import count
from app.compose import opened
from app.library import Library
from app.library.fidelity import Calibration
from app.library.fusion import QUESTIONS
from app.library.labels import read_questions
from app.library.tuning import FusionTrial, Tuned
from app.library.tuning import tune as tuning
from app.models import Models
from app.settings import Settings, variable
from ragcache.errors import ConfigError
from ragcache.report import FULL
from retriever.balance import FEWEST_CHUNKS
from retriever.searcher import HYBRID

if TYPE_CHECKING:
    from app.answering.targeting import Aimed


@configured("collection", ..., "engine", "model", "device", "dtype", "cache_dir", "data_dir")
def tune(
    settings: Settings,
    questions: Annotated[
        Path | None, typer.Option(help='JSON lines: a "question", and a "document" or a "text" that answers it.')
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would be kept, and change nothing.")] = False,
    answers: Annotated[
        bool, typer.Option("--answers", help="Measure too how far answers over the cache are from a full recompute.")
    ] = False,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="kl=NATS",
            help="Choose the linker that computes least of those whose answers are so near to a full recompute: in "
            "nats a token, such as kl=0.02, or by the words of the texts, f1=0.9 or rouge_l=0.9. It is measured on the "
            "questions, or on some to its own texts.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Learn how much meaning and words count in the search of a collection, from its own texts or from questions.

    An ingest learns it from the texts by itself. Shares from questions are kept only where they are better on questions
    that had no part in choosing them, and no ingest changes them.
    """
    aims = None if target is None else _parsed(target)
    with opened(settings, looking=dry_run) as (library, models):
        measured = _measured(library, models, settings.collection) if answers or aims is not None else None
        aimed = None if aims is None else _aimed(library, models, settings.collection, aims, questions)
        if measured is not None and aimed is not None:
            measured = replace(measured, linker=aimed.linker, target=aimed.target)
        tuned = tuning(library, models, settings.collection, questions, keep=not dry_run)
        if measured is not None and not dry_run:
            _keep(library, tuned.collection.name, measured)
    if as_json:
        told = {"answers": measured.as_json() if measured else None, "target": asdict(aimed) if aimed else None}
        print_json(_as_json(tuned) | told)
        return
    print(f"{plain(tuned.collection.name)}: {count(tuned.chunks, 'chunk')}, {tuned.balance.chunks:,} of them sampled\n")
    print(_learnt(tuned))
    if tuned.held_out is not None:
        print(f"\n{_trials(tuned)}")
    print(f"\n{_verdict(tuned, settings, dry_run)}")
    if measured is not None:
        print(f"\n{_told(measured)}")
    if aimed is not None:
        print(f"\n{_told_aim(aimed, dry_run)}")


def _parsed(target: str) -> AnswerTarget:
    try:
        return AnswerTarget.parse(target)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="--target") from None


def _aimed(library: Library, models: Models, collection: str, target: AnswerTarget, questions: Path | None) -> Aimed:
    from app.answering.targeting import aim  # it imports torch

    asked = None if questions is None else [one.question for one in read_questions(questions)]
    return aim(library, models, collection, target, asked)


def _told_aim(aimed: Aimed, dry_run: bool) -> str:
    measure = aimed.target.partition("=")[0]
    by_text = aimed.trials[0].alike is not None
    titles = ["linker", "KL", *([measure] if by_text else []), "computed again", ""]
    rows = [[one.linker, f"{one.kl:.4f}", *([f"{one.alike:.3f}"] if one.alike is not None else []), f"{one.part:.0%}",
             "chosen" if one.linker == aimed.linker else ""] for one in aimed.trials]  # fmt: skip
    shown = table(titles, rows, right=titles[1:-1])
    by, held, checked = count(aimed.questions, "question"), aimed.held_out, ""
    if held is not None:
        figure = f"{measure} {held.kl:.4f}" if held.alike is None else f"{measure} {held.alike:.3f}"
        checked = f", {figure} on questions that had no part in the choice"
    if aimed.linker == FULL:
        return f"{shown}\n\nnone reaches {aimed.target} by {by}{checked}: answers are computed in full"
    kept = "would answer" if dry_run else "answers"
    return f"{shown}\n\n`{aimed.linker}` {kept} the collection: {aimed.target} was asked for, by {by}{checked}"


def _measured(library: Library, models: Models, collection: str) -> Calibration:
    """First, since nothing is changed where it cannot be measured."""
    from app.answering.calibration import calibrate  # it imports torch

    return calibrate(library, models, collection)


def _keep(library: Library, collection: str, measured: Calibration) -> None:
    from app.answering.calibration import keep  # it imports torch

    keep(library.catalog, collection, measured)


def _told(measured: Calibration) -> str:
    asked, rank = count(measured.questions, "question"), measured.rank
    ranked = "" if rank is None else f"; predictions rank as measurements do by {rank:.2f} (Spearman)"
    return (
        f"answers over the cache, by {asked} to its own texts: KL {measured.kl:.4f} nats a token from a full "
        f"recompute, with what `auto` repairs{ranked}"
    )


def _as_json(tuned: Tuned) -> dict[str, Any]:
    held = tuned.held_out
    return {
        "collection": tuned.collection.name,
        "chunks": tuned.chunks,
        "before": asdict(tuned.before),
        "texts": asdict(tuned.balance) | {"ratio": tuned.balance.ratio, "vector_share": tuned.balance.vector_share},
        "learnt": tuned.found.as_json(),
        "top_k": tuned.top_k,
        "trials": [asdict(trial) for trial in tuned.trials],
        "held_out": None if held is None else asdict(held),
        "kept": tuned.kept,
    }


def _learnt(tuned: Tuned) -> str:
    """What is in use and what the texts say. The figures are of the texts."""
    before, balance = tuned.before, tuned.balance
    ratio = "" if balance.ratio is None else f"{balance.ratio:.2f}"
    rows = [
        ["today", f"{before.vector_share:.2f}", before.fusion, f"({before.by})", "", ""],
        [
            "by its texts",
            f"{balance.vector_share:.2f}",
            "linear",
            f"{balance.meaning:.2f}",
            f"{balance.words:.2f}",
            ratio,
        ],
    ]
    titles = ["", "vector share", "fusion", "d of meaning", "d of words", "ratio"]
    return table(titles, rows, right=titles[1:2] + titles[3:])


def _trials(tuned: Tuned) -> str:
    assert tuned.held_out is not None
    recall = f"recall@{tuned.top_k}"
    titles = ["fusion", "vector share", recall, "MRR", ""]
    best = (tuned.found.vector_share, tuned.found.fusion)
    rows = [[*_figures(one), _mark(place, (one.vector_share, one.fusion) == best)]
            for place, one in enumerate(tuned.trials)]  # fmt: skip
    old, new = tuned.held_out.present, tuned.held_out.chosen
    held = f"{recall} {old.recall:.3f} today, {new.recall:.3f} chosen; MRR {old.mrr:.3f} today, {new.mrr:.3f} chosen"
    return f"{table(titles, rows, right=titles[1:4])}\n\non questions that had no part in the choice: {held}"


def _figures(trial: FusionTrial) -> list[str]:
    return [trial.fusion, f"{trial.vector_share:.2f}", f"{trial.recall:.3f}", f"{trial.mrr:.3f}"]


def _mark(place: int, is_best: bool) -> str:
    return ", ".join([*(["today"] if place == 0 else []), *(["best on all"] if is_best else [])])


def _verdict(tuned: Tuned, settings: Settings, dry_run: bool) -> str:
    share = f"vector share {tuned.found.vector_share:.2f}, {tuned.found.fusion}"
    if not tuned.worthwhile:
        return "nothing was changed: no other share is better on questions that had no part in choosing it"
    told = f"would keep: {share}" if dry_run else f"kept: {share}"
    if tuned.held_out is None and not tuned.balance.enough:
        told += (
            f", as without learning: {count(tuned.balance.chunks, 'chunk')} with sentences enough, and it takes "
            f"{FEWEST_CHUNKS} (`--questions` learns from questions)"
        )
    if tuned.before.by == QUESTIONS and tuned.found.by != QUESTIONS:
        told += " instead of what questions had told"
    if settings.retrieval != HYBRID:
        told += (
            f". {variable('retrieval')}={settings.retrieval} does not join meaning and words: no question uses it now"
        )
    fixed = [variable(name) for name in ("vector_share", "fusion") if getattr(settings, name) is not None]
    for one in fixed:
        told += f". {one} is set and wins: unset it to search by what was learnt"
    return told
