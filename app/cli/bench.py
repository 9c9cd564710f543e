"""`ragcache bench …`: the commands of the benchmarks package, which is imported when they are asked for."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup


class LazyBenchmarks(TyperGroup):
    """A group whose commands are those of `benchmarks.cli`."""

    def _benchmarks(self) -> TyperGroup:
        from benchmarks.cli import app

        return typer.main.get_group(app)

    def list_commands(self, ctx: Any) -> list[str]:
        return self._benchmarks().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return self._benchmarks().get_command(ctx, cmd_name)


bench = typer.Typer(cls=LazyBenchmarks, no_args_is_help=True, rich_markup_mode=None)


@bench.callback()
def benchmarks() -> None:
    """Run a benchmark; each writes its figures as JSON."""
