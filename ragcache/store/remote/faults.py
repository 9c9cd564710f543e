"""What a bucket's client raises: of the bucket or of one object, and how it is told."""

from __future__ import annotations

import re

# Of URLs in a text: who asks, and all queries.
_SECRETS = re.compile(r"(?<=://)[^\s/]*@|\?\S*")
# Of what obstore tells without a class of its own: one of several that may not be deleted, a file without rights;
_DENIED = re.compile(r"\bAccessDenied\b|LocalFileSystem error: [^\n]*\(os error (1|13)\)")
# and where something is read a range behind an object's end, or a bad file too.
_OF_OBJECT = re.compile(r"status code: 416\b|LocalFileSystem error: [^\n]*(range was invalid|\(os error (1|5|13)\))")


def faults() -> tuple[type[Exception], ...]:
    """What obstore raises."""
    from obstore.exceptions import BaseError

    return BaseError, OSError, ValueError, TypeError, RuntimeError


def is_of_object(error: Exception) -> bool:
    """Whether it says nothing of the others."""
    from obstore.exceptions import AlreadyExistsError, PermissionDeniedError

    # Azure's answer is a conflict where a blob is archived, that of others is forbidden.
    return isinstance(error, PermissionDeniedError | AlreadyExistsError) or bool(_OF_OBJECT.search(str(error)))


def is_denied(error: Exception) -> bool:
    """Whether an object may not be written or deleted, which says nothing of the others."""
    from obstore.exceptions import AlreadyExistsError, PermissionDeniedError

    return isinstance(error, PermissionDeniedError | AlreadyExistsError) or bool(_DENIED.search(str(error)))


def is_archived(error: Exception) -> bool:
    from obstore.exceptions import AlreadyExistsError

    return isinstance(error, AlreadyExistsError) or "InvalidObjectState" in str(error)


def reason_of(error: Exception) -> str:
    """Its first line, without what may be a secret: behind it stand the insides of a library."""
    told = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return _SECRETS.sub("", told)[:300]
