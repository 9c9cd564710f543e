"""The commands of `ragcache bench`. Each imports what it measures when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.flags import CacheDir, Device, Dtype, Engine, Model, configure
from benchmarks.chunking_cli import chunking
from benchmarks.ingest_cli import ingest
from benchmarks.load_cli import load
from benchmarks.partial_cli import partial
from benchmarks.retrieval_cli import retrieval
from benchmarks.search_cli import search
from benchmarks.start_cli import start

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)
app.command()(chunking)
app.command()(ingest)
app.command()(load)
app.command()(partial)
app.command()(retrieval)
app.command()(search)
app.command()(start)

Linkers = Annotated[str, typer.Option(help="With commas between them; settings as in query:first=8,ratio=0.1.")]
Tokens = Annotated[str, typer.Option(help="Lengths to measure, with commas between them.")]
Seed = Annotated[int, typer.Option(help="Of everything that is drawn at random.")]
Rounds = Annotated[int, typer.Option(min=1, help="Rounds, each with every case once.")]


@app.callback()
def bench() -> None:
    """Run a benchmark; each writes its figures as JSON."""


@app.command()
def quality(
    data: Annotated[Path, typer.Option(help="JSON lines with contexts, or a folder of corpora with questions.")],
    linkers: Linkers = "auto",
    context: Annotated[str, typer.Option(help="What chunks are computed behind: alone, document or both.")] = (
        "alone,document"
    ),
    limit: Annotated[int | None, typer.Option(min=1, help="So many questions, at random; all when left out.")] = None,
    seed: Seed = 0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer.")] = 64,
    top_k: Annotated[int, typer.Option(min=1, help="Chunks per question, where they are retrieved.")] = 5,
    order: Annotated[str, typer.Option(help="Of retrieved chunks: document, or best first (best).")] = "document",
    chunk_tokens: Annotated[int, typer.Option(min=1, help="Longest chunk.")] = 200,
    ttft_rounds: Rounds = 5,
    ttft_prompts: Annotated[int, typer.Option(min=1, help="So many prompts are timed.")] = 3,
    json: Annotated[Path, typer.Option(help="Where the figures go.")] = Path("results/quality.json"),
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run that was interrupted.")] = False,
    compare: Annotated[
        Path | None, typer.Option(help="The --json of a run in another engine, to be compared question by question.")
    ] = None,
    engine: Engine = None,
    model: Model = None,
    device: Device = None,
    dtype: Dtype = None,
    cache_dir: CacheDir = None,
) -> None:
    """What linking costs in answers, and what it saves until the first token."""
    settings = configure(engine=engine, model=model, device=device, dtype=dtype, cache_dir=cache_dir)
    from app.loading import load_embedder
    from benchmarks.answering import open_parts
    from benchmarks.choices import parse_contexts, parse_linkers
    from benchmarks.data import read_dataset
    from benchmarks.prompts import check_order
    from benchmarks.quality import QualityBenchOptions, run
    from benchmarks.quality_compare import print_comparison, read_result

    options = QualityBenchOptions(
        linkers=parse_linkers(linkers),
        contexts=parse_contexts(context),
        limit=limit,
        seed=seed,
        max_tokens=max_tokens,
        top_k=top_k,
        order=check_order(order),
        chunk_tokens=chunk_tokens,
        ttft_rounds=ttft_rounds,
        ttft_prompts=ttft_prompts,
    )
    dataset = read_dataset(data)
    if compare is not None:
        read_result(compare)  # a wrong name is said before the long run
    with open_parts(settings) as parts:
        run(parts, load_embedder(settings).embed, dataset, options, json, resume)
    if compare is not None:
        print_comparison(json, compare)


@app.command()
def ttft(
    tokens: Tokens = "1024,2048,4096",
    linkers: Linkers = "auto,fast",
    data: Annotated[Path | None, typer.Option(help="As for quality; the sample documents when left out.")] = None,
    chunk_tokens: Annotated[int, typer.Option(min=1, help="Longest chunk.")] = 200,
    rounds: Rounds = 7,
    seed: Seed = 0,
    beside: Annotated[int, typer.Option(min=0, help="Also beside so many other processes at full load.")] = 0,
    json: Annotated[Path, typer.Option(help="Where the figures go.")] = Path("results/ttft.json"),
    engine: Engine = None,
    model: Model = None,
    device: Device = None,
    dtype: Dtype = None,
    cache_dir: CacheDir = None,
) -> None:
    """Time to the first token: recomputed, placed only, and linked from RAM and from disk."""
    settings = configure(engine=engine, model=model, device=device, dtype=dtype, cache_dir=cache_dir)
    from app.loading import load_torch_model
    from benchmarks import vllm_ttft
    from benchmarks.choices import parse_linkers, parse_numbers
    from benchmarks.corpus import read_texts
    from benchmarks.ttft import TtftBenchOptions, run

    options = TtftBenchOptions(
        parse_numbers(tokens, "tokens"), parse_linkers(linkers), chunk_tokens, rounds, seed, beside
    )
    texts = read_texts(data)
    if settings.engine == "vllm":
        vllm_ttft.run(settings, texts, options, json)
    else:
        run(load_torch_model(settings), texts, options, json)


@app.command()
def kvgen(
    tokens: Tokens = "2000,4000",
    data: Annotated[Path | None, typer.Option(help="As for quality; the sample documents when left out.")] = None,
    chunk_tokens: Annotated[int, typer.Option(min=1, help="Longest chunk.")] = 200,
    rounds: Rounds = 5,
    json: Annotated[Path, typer.Option(help="Where the figures go.")] = Path("results/kvgen.json"),
    engine: Engine = None,
    model: Model = None,
    device: Device = None,
    dtype: Dtype = None,
    cache_dir: CacheDir = None,
) -> None:
    """Capturing a document's KV against a plain prefill of it."""
    settings = configure(engine=engine, model=model, device=device, dtype=dtype, cache_dir=cache_dir)
    from app.loading import load_torch_model
    from benchmarks.choices import parse_numbers
    from benchmarks.corpus import read_texts
    from benchmarks.kvgen import KvgenBenchOptions, run

    options = KvgenBenchOptions(parse_numbers(tokens, "tokens"), chunk_tokens, rounds)
    texts = read_texts(data)
    run(load_torch_model(settings), texts, options, json)


@app.command()
def memory(
    megabytes: Annotated[float, typer.Option(min=0.001, help="Size of the document.")] = 1.0,
    chunks: Annotated[int, typer.Option(min=1, help="Chunks of the prompt that is linked.")] = 5,
    json: Annotated[Path, typer.Option(help="Where the figures go.")] = Path("results/memory.json"),
    engine: Engine = None,
    model: Model = None,
    device: Device = None,
    dtype: Dtype = None,
    cache_dir: CacheDir = None,
) -> None:
    """Peak resident memory of ingesting a document to disk, and of linking its chunks."""
    settings = configure(engine=engine, model=model, device=device, dtype=dtype, cache_dir=cache_dir)
    from benchmarks.memory import run

    run(settings, megabytes, chunks, json)
