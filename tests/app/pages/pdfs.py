"""PDF documents that are made by hand: hostile ones, which no library would write."""

from __future__ import annotations

from pathlib import Path

TEXT = b"BT /F1 24 Tf 72 500 Td (A lighthouse stands on the cape.) Tj ET\n"


def write_page(
    path: Path, *, size: str = "612 792", content: bytes = b"", resources: str = "", more: bytes = b""
) -> Path:
    """One page with a line of text, and what `content` draws. `more`: the object 6."""
    font = "/Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>"
    page = f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 {size}]/Contents 4 0 R/Resources<<{font}{resources}>>>>"
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        page.encode(),
        stream(TEXT + content),
        b"null",
        more or b"null",
    ]
    data, offsets = b"%PDF-1.7\n", []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    tail = b"trailer<</Size 7/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % len(data)
    path.write_bytes(data + b"xref\n0 7\n0000000000 65535 f \n" + table + tail)
    return path


def stream(data: bytes, told: bytes = b"") -> bytes:
    return b"<<%s/Length %d>>stream\n%s\nendstream" % (told, len(data), data)


def write_endless(path: Path) -> Path:
    """Its text is read at once; its shading is computed for hours."""
    function = stream(
        b"{ " + b"dup 57 mul sin exch cos add " * 3000 + b" }", b"/FunctionType 4/Domain[0 1 0 1]/Range[0 1]"
    )
    shading = "/Shading<</S1<</ShadingType 1/ColorSpace/DeviceGray/Matrix[612 0 0 792 0 0]/Function 6 0 R>>>>"
    return write_page(path, content=b"/S1 sh\n" * 50, resources=shading, more=function)


def write_huge(path: Path) -> Path:
    return write_page(path, size="9000000 4000000")


def write_ribbon(path: Path) -> Path:
    return write_page(path, size="100 9000000")
