"""Whether a folder is on another machine, where SQLite's write-ahead log cannot be relied on."""

from __future__ import annotations

import re
from pathlib import Path

MOUNTS = Path("/proc/self/mounts")  # not there on other systems than Linux: nothing is told then
NETWORK = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4"}
    | {"ocfs2", "orangefs", "smb3", "smbfs"}
)
REMOTE_FUSE = frozenset({"ceph", "glusterfs", "gcsfuse", "juicefs", "mfs", "moosefs", "rclone", "s3fs", "sshfs"})
_OCTAL = re.compile(r"\\([0-7]{3})")  # how the table writes spaces and the like


def network_file_system(folder: Path, mounts: Path = MOUNTS) -> str:
    """Its kind; empty for a local one, and where that cannot be known."""
    kind = file_system(folder, mounts)
    name = kind.removeprefix("fuse.")
    return kind if kind in NETWORK or (name != kind and name in REMOTE_FUSE) else ""


def mount_point(written: str) -> str:
    """From how a table of mounts writes it."""
    return _OCTAL.sub(lambda code: chr(int(code[1], 8)), written)


def file_system(folder: Path, mounts: Path = MOUNTS) -> str:
    """Its kind, by the longest mount point above the folder; empty where that cannot be known."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    above = {str(folder), *map(str, folder.parents)}
    found, longest = "", 0
    for line in lines:
        _, point, kind, *_ = [*line.split(" "), "", "", ""]
        point = mount_point(point)
        # Of two at one place the later one counts. What an automount mounts has a line of its own; gVisor calls the
        # root of a container 9p.
        if point in above and len(point) >= longest and kind != "autofs" and (point, kind) != ("/", "9p"):
            found, longest = kind, len(point)
    return found
