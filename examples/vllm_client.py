"""Ask a vLLM server that links chunk caches: the chunks are found here, their KV is linked there.

    python examples/vllm_client.py URL MODEL QUESTION

The collection, the system prompt and the model's folder are those of the settings: the server runs the same folder over
the same KV (docs/vllm.md says how it is started). MODEL is its name there.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from typing import Any

from app import RagPipeline, Settings
from app.settings import load_settings
from app.wording import Wording
from ragcache.engine.vllm.requests import chat_params


def main(url: str, model: str, question: str, settings: Settings) -> None:
    with RagPipeline(settings) as pipeline:
        found = pipeline.retrieve(question)
        template = pipeline.models.template  # only a tokenizer: no model is loaded here
    segments = [template.system(), *(template.chunk(one.text) for one in found), template.question(question)]
    asked = {
        "model": model,
        "messages": messages(settings, [one.text for one in found], question),
        "max_tokens": settings.max_tokens,
        "temperature": 0,
        "kv_transfer_params": chat_params(segments, settings.linker),
    }
    answer = post(f"{url}/v1/chat/completions", asked)
    report = answer["kv_transfer_params"]["ragcache"]
    print(answer["choices"][0]["message"]["content"])
    print(f"  {report['reused']} tokens reused, {report['repaired']} repaired, {report['computed']} computed")
    print("\n".join(f"  {incident}" for incident in report["incidents"]), end="")


def messages(settings: Settings, texts: list[str], question: str) -> list[dict[str, str]]:
    """What the ids say, in words: for the server's log, and for a server that does not link."""
    words = Wording()
    passages = "".join(f"{words.before_chunk}{text.strip()}{words.after_chunk}" for text in texts)
    asked = f"{words.before_passages}{passages}{words.before_question}{question}{words.after_question}"
    return [{"role": "system", "content": settings.system_prompt}, {"role": "user", "content": asked}]


def post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as response:
        told: dict[str, Any] = json.load(response)
    return told


if __name__ == "__main__":
    main(*sys.argv[1:4], load_settings())
