"""Requests to the server, made of its own description, by keys of every scope: each has an answer that is described.

    python -m tests.fuzz.calls --seed 1 --count 20000

A status of 500 and more, one that is not in the description, or what is not of its type and schema, is a find: printed,
with a request that makes it. Names and ids are often those of what is there, so that requests come further than to 404.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import requests
from hypothesis import HealthCheck, Phase, given, seed, settings, strategies
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode, openapi
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi import checks

from app import Settings
from app.compose import opened
from app.library.catalog.serving_records import SCOPES
from app.models.folders import resolve_model
from app.server.service import model_name
from tests.app.server.serving import served
from tests.tiny_folder import write_tiny_folder
from tests.waiting import wait_until

NOBODY = "none"  # without a key
PATIENCE_S = 120.0
LONGEST = 4  # tokens of an answer, but for those that no model has room for
LEAST = 64 << 20  # bytes of a budget, or nothing that is sent after it can be kept
KNOWN = 7  # of ten names and ids in a request, those of what is there
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]


@dataclass
class Ground:
    """What is there for a caller to ask about, made again where it is gone."""

    client: httpx2.Client
    model: str
    ids: dict[str, str] = field(default_factory=dict)

    def renew(self, admin: httpx2.Client) -> None:
        admin.post("/v1/collections", json={"name": "shelf"})
        self.ids = {"name": "shelf", "file": "note.md", "collection": "shelf"}
        sent = self.client.put("/v1/collections/shelf/documents/note.md", content=b"# Note\n\nThe bakery opens at six.")
        if sent.status_code == 202:
            self.ids["job_id"] = sent.json()["id"]
            wait_until(lambda: not self._waits(admin), PATIENCE_S)
        listed = admin.get("/v1/collections/shelf/documents").json()["data"]
        if listed:
            self.ids["document_id"] = str(listed[0]["id"])
        for kind, path, body in (
            ("conversation_id", "conversations", {"collection": "shelf"}),
            ("cache_id", "context_caches", {"texts": ["The lighthouse is closed."], "ttl": 60}),
        ):
            made = self.client.post(f"/v1/{path}", json=body)
            if made.status_code == 201:
                self.ids[kind] = made.json()["id"]

    def _waits(self, admin: httpx2.Client) -> bool:
        return admin.get(f"/v1/jobs/{self.ids['job_id']}").json()["state"] in ("queued", "running")

    def put_into(self, case: Any, random: Random) -> None:
        """Instead of what was made up, often; answers are short, and budgets have room for what is sent."""
        parameters = case.path_parameters or {}
        for name in parameters:
            if name in self.ids and random.randrange(10) < KNOWN:
                parameters[name] = self.ids[name] if "/models/" not in case.path else self.model
        body = case.body
        if not isinstance(body, dict):
            return
        known = {"model": [self.model, f"{self.model}@shelf", "minilm"], "collection": ["shelf"]}
        for name, values in known.items():
            if name in body and random.randrange(10) < KNOWN:
                body[name] = random.choice(values)
        for name in ("ram_bytes", "disk_bytes"):
            if type(body.get(name)) is int and 0 < body[name] < LEAST:
                body[name] = LEAST
        if case.method == "POST" and not isinstance(body.get("max_tokens"), str | list | dict):
            most = body.get("max_tokens")
            if most is None or LONGEST < most < 100_000:
                body["max_tokens"] = 1 + random.randrange(LONGEST)


@dataclass
class Calls:
    """What came of a campaign."""

    outcomes: Counter[int] = field(default_factory=Counter)
    finds: dict[str, str] = field(default_factory=dict)  # the first of a kind
    found: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Campaign:
    """A server, and keys of every scope. It may be run several times."""

    client: httpx2.Client
    keys: Mapping[str, str]
    grounds: Mapping[str, Ground]

    def description(self) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get("/openapi.json", headers=_headers(self.keys["admin"])).json()
        return found

    def run(self, count: int, from_seed: int, description: Mapping[str, Any] | None = None) -> Calls:
        """About as many requests, as many of each operation."""
        calls = Calls()
        schema = openapi.from_dict(dict(description or self.description()))
        operations = [found.ok() for found in schema.get_all_operations()]
        with requests.Session() as session:
            for operation in operations:
                self._ask(operation, calls, session, max(1, count // len(operations)), from_seed)
        return calls

    def _ask(self, operation: Any, calls: Calls, session: requests.Session, count: int, from_seed: int) -> None:
        given_values = operation.path_parameters or operation.query or operation.headers or operation.body
        modes = list(GenerationMode) if given_values else [GenerationMode.POSITIVE]
        cases = strategies.one_of([operation.as_strategy(generation_mode=mode) for mode in modes])

        @seed(from_seed)
        @settings(
            max_examples=count,
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(cases, strategies.sampled_from(sorted(self.keys)), strategies.integers(0, 2**32))
        def ask(case: Any, scope: str, number: int) -> None:
            self._call(case, scope, Random(number), calls, session)

        with suppress(Unsatisfiable):
            ask()

    def _call(self, case: Any, scope: str, random: Random, calls: Calls, session: requests.Session) -> None:
        ground = self.grounds.get(scope)
        if ground is not None:
            ground.put_into(case, random)
        base, headers = str(self.client.base_url), _headers(self.keys[scope])
        response = case.call(base_url=base, session=session, headers=headers, timeout=PATIENCE_S)
        calls.outcomes[response.status_code] += 1
        try:
            case.validate_response(response, checks=CHECKS)
        except FailureGroup as group:
            for failure in group.exceptions:
                name = f"{case.method} {case.path}: {response.status_code}, {failure.title}"
                calls.found[name] += 1
                told = f"{failure.message}\n{response.text[:1000]}\n{case.as_curl_command(headers=headers)[:2000]}"
                calls.finds.setdefault(name, told)
        if ground is not None and case.method in ("DELETE", "PATCH") and response.status_code == 200:
            for one in self.grounds.values():
                one.renew(self.grounds["admin"].client)


def _headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


@contextmanager
def campaign(configured: Settings) -> Iterator[Campaign]:
    """Over a server with these settings."""
    with opened(configured) as (library, _):
        made = {scope: library.catalog.keys.create(scope, [scope])[1] for scope in SCOPES}
    with served(configured, _headers(made["admin"])) as client:
        model, clients = model_name(configured.model), {}
        for scope, key in made.items():
            clients[scope] = httpx2.Client(base_url=client.base_url, headers=_headers(key), timeout=PATIENCE_S)
        try:
            grounds = {scope: Ground(one, model) for scope, one in clients.items()}
            for one in grounds.values():
                one.renew(clients["admin"])
            yield Campaign(client, {NOBODY: "", **made}, grounds)
        finally:
            for one in clients.values():
                one.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bundled = resolve_model("bundled:smollm2", folder / "cache")
        model = write_tiny_folder(folder / "tiny", bundled)
        configured = Settings(
            model=str(model), data_dir=folder / "data", cache_dir=folder / "cache", max_tokens=LONGEST
        )
        with campaign(configured) as running:
            calls = running.run(chosen.count, chosen.seed)
    print(f"{calls.outcomes.total()} requests: {dict(sorted(calls.outcomes.items()))}; {calls.found.total()} finds")
    for found, told in calls.finds.items():
        print(f"\n{calls.found[found]} times {found}\n{told}")
    return 1 if calls.finds else 0


if __name__ == "__main__":
    sys.exit(main())
