"""What `packaging/` says of the program is true. It is not started here: that takes a systemd and a Docker."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.ingestion.queue import CLOSING_S
from app.server import generations
from app.settings import PREFIX, Settings, variable
from tests.test_frame.test_docs import what_is_wrong
from tests.test_frame.test_packaging import PROJECT, ROOT, assigned

FOLDER = ROOT / "packaging"
FILES = sorted(path for path in FOLDER.iterdir() if path.is_file())
UNIT = (FOLDER / "ragcache-serve.service").read_text()
DOCKERFILE = (FOLDER / "Dockerfile").read_text()
COMPOSE: Any = yaml.safe_load((FOLDER / "compose.yaml").read_text())


def unit(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)


def instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} (.+)$", DOCKERFILE.replace("\\\n", ""), re.MULTILINE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_setting_that_is_named_is_one(path: Path) -> None:
    known = {variable(name) for name in Settings.model_fields}
    assert set(re.findall(rf"\b{PREFIX}[A-Z_]+", path.read_text())) - known == set()


def test_the_commands_are_real() -> None:
    started = [line.removeprefix("/usr/local/bin/ragcache ") for line in unit("ExecStartPre") + unit("ExecStart")]
    told = re.findall(r"run --rm server (.+)$", (FOLDER / "compose.yaml").read_text(), re.MULTILINE)
    assert started == ["serve --check", "serve"]
    assert instructions("ENTRYPOINT") == ['["ragcache"]']
    assert instructions("CMD") == ['["serve"]']
    assert [what_is_wrong(shlex.split(line)) for line in (*started, *told)] == [None] * 3


def test_who_ends_it_waits_for_its_grace() -> None:
    takes = Settings.model_fields["serve_grace_s"].default + generations.CLOSING_S + CLOSING_S
    assert takes < int(unit("TimeoutStopSec")[0])
    assert takes < int(COMPOSE["services"]["server"]["stop_grace_period"].removesuffix("s"))
    assert unit("KillSignal") == ["SIGTERM"] == instructions("STOPSIGNAL")


def test_it_runs_as_nobody_in_particular_and_may_write_in_its_folders_alone() -> None:
    assert instructions("USER") == ["ragcache"]
    (user,) = unit("User")
    assert (FOLDER / "ragcache.sysusers").read_text().splitlines()[-1].startswith(f"u {user} ")
    assert unit("ProtectSystem") == ["strict"]
    assert {*unit("NoNewPrivileges"), *unit("PrivateTmp"), *unit("ProtectHome")} == {"yes"}
    folders = {f"/var/lib/{unit('StateDirectory')[0]}", f"/var/cache/{unit('CacheDirectory')[0]}"}
    assert {line.partition("=")[2] for line in unit("Environment") if "_DIR=" in line} == folders
    server = COMPOSE["services"]["server"]
    assert (server["read_only"], server["cap_drop"]) == (True, ["ALL"])
    assert instructions("VOLUME") == ["/var/lib/ragcache"]
    assert any(volume.endswith(":/var/lib/ragcache") for volume in server["volumes"])


def test_no_password_is_written_down_and_no_port_is_open_to_others() -> None:
    services = COMPOSE["services"]
    for value in (
        services["catalog"]["environment"]["POSTGRES_PASSWORD"],
        services["server"]["environment"]["PGPASSWORD"],
    ):
        assert re.fullmatch(r"\$\{CATALOG_PASSWORD:\?.+\}", value)
    assert services["server"]["ports"] == ["127.0.0.1:8000:8000"]
    assert "ports" not in services["catalog"]
    assert services["server"]["depends_on"]["catalog"]["condition"] == "service_healthy"


def test_the_image_has_all_packages_the_pinned_models_and_nothing_else() -> None:
    copied = [shlex.split(line) for line in instructions("COPY") if not line.startswith("--from")]
    sources = [source for line in copied for source in line[:-1]]
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    assert set(sources) == packages | {"pyproject.toml", "README.md", "packaging/healthcheck.py"}
    ignored = (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
    assert ignored[1] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == set(sources)
    installs = [shlex.split(line.partition("pip install ")[2]) for line in instructions("RUN") if "pip install" in line]
    assert installs[0] == shlex.split(assigned("TORCH")[0])
    assert installs[1] == ["--no-deps", *assigned("MODELS")]
    extras = re.findall(r"\w+", installs[2][0])
    assert set(extras) <= set(PROJECT["optional-dependencies"])
    assert "cpu" in extras
