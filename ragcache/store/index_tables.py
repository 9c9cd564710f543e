"""The tables of a cache folder's index, and how its rows are written."""

from __future__ import annotations

VERSION = 2  # an index of another version is made again
_COLUMNS = (
    *("digest", "engine", "family", "fingerprint", "system", "context", "history", "chunk", "border"),
    *("codec", "lost", "nbytes", "inode", "file", "used", "coming"),
)
SCHEMA = f"""
BEGIN;
CREATE TABLE folder (
    revision INTEGER NOT NULL,  -- the last change: a number that no other one has
    entries INTEGER NOT NULL,
    nbytes INTEGER NOT NULL
);
INSERT INTO folder VALUES (1, 0, 0);
CREATE TABLE entries (
    digest TEXT NOT NULL UNIQUE,
    engine TEXT NOT NULL,
    family TEXT NOT NULL,
    -- NULL where a header cannot be read:
    fingerprint TEXT, system TEXT, context TEXT, history TEXT, chunk TEXT, border TEXT, codec TEXT,
    lost TEXT,  -- NULL where its file does not tell: its codec does
    nbytes INTEGER NOT NULL,
    inode INTEGER,
    file INTEGER NOT NULL,  -- a number that no other one had at this address; 0 while there is none
    used INTEGER NOT NULL,
    uses INTEGER NOT NULL,
    coming TEXT  -- the temporary file that will take this place
);
CREATE INDEX by_family ON entries (family, engine, digest, file);
CREATE INDEX by_use ON entries (used);
CREATE INDEX by_coming ON entries (coming) WHERE coming IS NOT NULL;
CREATE TABLE pins (
    digest TEXT NOT NULL, owner TEXT NOT NULL, expires INTEGER, PRIMARY KEY (digest, owner)
) WITHOUT ROWID;
CREATE TRIGGER added AFTER INSERT ON entries BEGIN
    UPDATE folder SET entries = entries + 1, nbytes = nbytes + new.nbytes;
END;
CREATE TRIGGER resized AFTER UPDATE OF nbytes ON entries BEGIN
    UPDATE folder SET nbytes = nbytes + new.nbytes - old.nbytes;
END;
CREATE TRIGGER removed AFTER DELETE ON entries BEGIN
    UPDATE folder SET entries = entries - 1, nbytes = nbytes - old.nbytes;
END;
PRAGMA user_version = {VERSION};
COMMIT;
"""
# Of an entry that is known its uses and its file stay, until another file has come.
ENTRY = f"""
INSERT INTO entries ({", ".join(_COLUMNS)}, uses) VALUES ({", ".join(f":{name}" for name in _COLUMNS)}, 0)
ON CONFLICT (digest) DO UPDATE SET file = CASE :file WHEN 0 THEN file ELSE :file END, used = max(used, :used),
    {", ".join(f"{name} = :{name}" for name in _COLUMNS if name not in ("digest", "file", "used"))}
"""


def evictable(now_ns: int) -> str:
    """What makes an `Evictable` of each entry: its place, its bytes, its last use, whether it is pinned then."""
    pins = f"SELECT 1 FROM pins WHERE pins.digest = entries.digest AND coalesce(expires > {now_ns}, 1)"
    return f"SELECT engine, family, digest, nbytes, used, EXISTS ({pins}) FROM entries"
