"""Kinds and states of jobs, as the catalog keeps them, a server tells them and its clients read them."""

from __future__ import annotations

from typing import Literal

JobKind = Literal["ingest", "warm"]
JobState = Literal["queued", "running", "done", "failed", "cancelled"]
WAITING: tuple[JobState, ...] = ("queued", "running")
ENDED: tuple[JobState, ...] = ("done", "failed", "cancelled")
GAVE_WAY = "gave_way"  # of a job's progress: its document comes, or came, before all of its KV
LAST, MODEL = "last", "model"  # of a warming's, which nobody is told: the document that it is behind, by which model
