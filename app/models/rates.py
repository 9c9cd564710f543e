"""What prompts took in the last run, as the first guess of the next one: per engine, machine and tier."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic

from ragcache.keeping import Task
from ragcache.rates import Rates, Work
from ragcache.records import Records

KIND = "rates"
WRITE_S = 60.0  # a process that is killed loses what it has learnt since


class RememberedRates(Rates):
    """Written down when somebody has time for it (`later`), and at the end. Of several processes the last one counts; a
    record that is torn, foreign or nonsense is as good as none.
    """

    def __init__(
        self,
        records: Records,
        folder: Path,
        facts: Mapping[str, str],
        later: Callable[[Task], None],
        clock: Callable[[], float] = monotonic,
    ):
        """`folder`: of the model; `facts`: what else the times depend on."""
        self._records, self._folder, self._facts = records, folder, {"host": platform.node(), **facts}
        self._basis = records.basis(folder)
        self._later, self._clock, self._written = later, clock, clock()
        super().__init__(records.read(KIND, folder, **self._facts))

    def observe(self, work: Work, seconds: float) -> None:
        super().observe(work, seconds)
        if self._clock() - self._written >= WRITE_S:
            self._written = self._clock()
            self._later(self.write)

    def write(self) -> list[str]:
        """Never fails; what is wrong is no more than a bad first guess."""
        told = self.told()
        if told is not None:
            self._records.write(KIND, self._folder, told, self._basis, **self._facts)
        return []
