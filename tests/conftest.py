"""What tests of several packages need."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from app.models.folders import resolve_model
from tests import postgres
from tests.tiny import Tiny, make_tiny

ROOT = Path(__file__).parent.parent
# A deadline would make the tests fail by the clock, on a machine with other work to do.
settings.register_profile("ragcache", deadline=None)
settings.load_profile("ragcache")
KINDS = [
    ("llama", "default", "untied"),
    ("llama", "llama3", "tied"),
    ("llama", "yarn", "untied"),
    ("qwen2", "default", "tied"),
    ("qwen2", "yarn", "untied"),
    ("qwen3", "default", "untied"),
    ("qwen3", "llama3", "tied"),
    ("qwen3", "yarn", "tied"),
    ("mistral", "default", "tied"),
    ("mistral", "llama3", "untied"),
]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The marks that follow from what a test is, so that nobody forgets them. Who asks for PostgreSQL by a parameter
    marks that parameter.
    """
    for item in items:
        if item.path.name.startswith("vllm_"):
            item.add_marker("vllm")
        if "postgres_server" in getattr(item, "fixturenames", ()):
            item.add_marker("postgres")


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of whoever runs the tests are not part of them."""
    _set_apart(monkeypatch)


@pytest.fixture(scope="session", autouse=True)
def _no_settings_from_outside_for_what_tests_share() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        _set_apart(patch)
        yield


def _set_apart(patch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("RAGCACHE_")]:
        patch.delenv(name)
    # On a model of three layers everything is as quick: whether a link pays would be a matter of luck.
    patch.setenv("RAGCACHE_LINK_WHEN", "always")
    # Its answers over caches are far off, which tests of linking are about.
    patch.setenv("RAGCACHE_GATE", "0")
    # Answers are compared: with others, with another engine's, with what a model must say.
    patch.setenv("RAGCACHE_TEMPERATURE", "0")


@pytest.fixture(scope="session", autouse=True)
def _interrupts_arrive() -> None:
    """A shell starts jobs in the background with SIGINT ignored, and their children inherit it: no test of Ctrl-C could
    pass there.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """How the rows of a product are dealt out among threads decides how they are summed, and how many compute follows
    what else the machine does: who compares bits asks for this.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Corpora and traces that lie beside the checkout."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the benchmark data is not in {folder}")
    return folder


@pytest.fixture(scope="session")
def smollm2(pytestconfig: pytest.Config) -> Path:
    """The bundled model, converted once per checkout: pytest's own cache folder keeps it between runs."""
    assert pytestconfig.cache is not None
    return resolve_model("bundled:smollm2", pytestconfig.cache.mkdir("ragcache"))


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> Iterator[postgres.Server]:
    """A PostgreSQL server of our own."""
    assert not re.search(r"not (\([^)]*)?postgres", pytestconfig.option.markexpr), (
        "a test that is not marked so needs PostgreSQL: mark the parameter that asks for it"
    )
    with postgres.running() as server:
        yield server


@pytest.fixture(scope="session")
def tiny() -> Tiny:
    """A small random Llama."""
    return make_tiny()


@pytest.fixture(scope="session", params=KINDS, ids="-".join)
def every_tiny(request: pytest.FixtureRequest) -> Tiny:
    """Each family and each RoPE that the torch engine runs, with tied and untied embeddings."""
    family, rope, embeddings = request.param
    return make_tiny(family, rope, tie_word_embeddings=embeddings == "tied")
