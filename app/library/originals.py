"""The files of PDF documents that clients have sent, as they came: kept below their hash while a document is there that
was made of them, since its pages are shown from them.

A document that was sent has the name that its client gave it, and no path: `upload:/NAME`.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from app.document_names import forms
from app.job_states import WAITING
from app.library import Library
from app.library.folder_claim import claimed_by_another
from app.loaders import format_of
from ragcache.errors import StoreError
from ragcache.host import private_folder

SCHEME = "upload:/"
FOLDER = "originals"
TEMPORARY = ".tmp"
_HASH = re.compile("[0-9a-f]{64}")


def is_kept(name: str) -> bool:
    return format_of(Path(name)) == "pdf"


def sources_of(name: str) -> tuple[str, ...]:
    """What the document of a name that was sent may be called."""
    return tuple(SCHEME + one for one in forms(name))


class Originals:
    """Threads and processes may share the folder."""

    def __init__(self, library: Library):
        self._catalog, self._settings = library.catalog, library.settings
        self._folder = library.settings.data_dir / FOLDER

    def path(self, content_hash: str) -> Path:
        """Where it is, if it is there."""
        assert _HASH.fullmatch(content_hash), content_hash
        return self._folder / content_hash[:2] / content_hash

    def keep(self, file: Path, content_hash: str) -> None:
        """The same file under another name, where the system can do that. Raises StoreError."""
        path = self.path(content_hash)
        if path.exists():
            return
        fresh = path.with_name(f"{content_hash}.{uuid.uuid4().hex}{TEMPORARY}")
        try:
            private_folder(path.parent)
            try:
                os.link(file, fresh)
            except OSError:
                shutil.copy2(file, fresh)
            fresh.replace(path)
        except OSError as error:
            raise StoreError(f"cannot keep a file in {path.parent}: {error.strerror or error}") from error
        finally:
            with suppress(OSError):
                fresh.unlink(missing_ok=True)

    def check(self, hashes: Iterable[str]) -> None:
        """Before documents are deleted that these go with. Raises CatalogError where nobody can tell whose they are."""
        if self._there(hashes):
            claimed_by_another(self._settings)

    def drop(self, hashes: Iterable[str]) -> None:
        """Those that no document has any more, and none that is coming will have."""
        wanted = self._there(hashes)
        if not wanted or claimed_by_another(self._settings):
            return
        for one in self._unused(wanted):
            with suppress(OSError):
                self.path(one).unlink(missing_ok=True)

    def _there(self, hashes: Iterable[str]) -> set[str]:
        return {one for one in hashes if _HASH.fullmatch(one) and self.path(one).exists()}

    def sweep(self) -> None:
        """What killed processes have left."""
        there = {path.name for path in self._folder.glob("*/*")}
        self.drop(there)
        unfinished = list(self._folder.glob(f"*/*{TEMPORARY}"))
        coming = self._coming()  # behind the look at the files: a job that has ended since has none of these
        for path in unfinished:
            if path.name.partition(".")[0] not in coming:
                with suppress(OSError):
                    path.unlink(missing_ok=True)

    def _coming(self) -> set[str]:
        """The hashes of files whose jobs have not ended."""
        jobs = self._catalog.jobs
        return {str(job.request.get("sha256")) for state in WAITING for job in jobs.all(owner=None, state=state)}

    def _unused(self, hashes: set[str]) -> set[str]:
        coming = self._coming()  # first: a job that ends between the two has its document by then
        return hashes - coming - self._catalog.documents.held(sorted(hashes), SCHEME)
