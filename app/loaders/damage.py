"""What the libraries that read formats raise at a damaged file, turned into one error for its reader."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from xml.etree.ElementTree import ParseError
from xml.parsers.expat import ExpatError

from app.errors import LoadError
from app.loaders.base import SourceFile

# They check little of what they read and fail in the middle of it, in every way there is. A bug of ours in that place
# would be told as damage too, with its type; so only calls of the libraries belong into the block.
DAMAGE: tuple[type[Exception], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    ExpatError,
    LookupError,
    OSError,
    RuntimeError,
    SyntaxError,  # of XML, in lxml and in ElementTree
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


@contextmanager
def reading(source: SourceFile, what: str, *others: type[Exception]) -> Iterator[None]:
    """Errors of the block, and those of `others`, become a LoadError; `what` names the kind of file."""
    try:
        yield
    except LoadError:
        raise
    except RecursionError as error:
        raise source.error(f"nests its content too deep to be read as {what}: flatten it") from error
    except (*DAMAGE, *others) as error:
        if _lacked_memory(error):
            raise MemoryError from error
        raise source.error(
            f"is damaged or cut short and cannot be read as {what} ({type(error).__name__}: {error}): "
            "get the file again, or open it in its program and save it anew"
        ) from error


def _lacked_memory(error: Exception) -> bool:
    """Of the codes of expat, and of libxml2, which has none at all where it could not even note it."""
    code = getattr(error, "code", None)
    if isinstance(error, ExpatError | ParseError):
        return code == 1
    return type(error).__module__ == "lxml.etree" and code in (0, 2)
