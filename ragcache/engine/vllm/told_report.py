"""What vLLM tells of a prompt that it linked: JSON, perhaps another version's. None of it is believed."""

from __future__ import annotations

from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from ragcache.report import Report

OURS = {"ttft_s", "decode_s", "answer_tokens"}  # timed where the answer is read
ODD = "no report: what vLLM tells of it is not understood"
_FIELDS: dict[str, TypeAdapter[Any]] = {
    name: TypeAdapter(kind) for name, kind in get_type_hints(Report).items() if name not in OURS
}


def fill(report: Report, told: object) -> None:
    """Beside what is there already. What a newer version tells in addition is passed over."""
    if not isinstance(told, dict):
        report.incidents.append(ODD)
        return
    found = {name: told[name] for name in _FIELDS if name in told}
    for name, value in found.items():
        try:
            known = _FIELDS[name].validate_python(value)
        except ValidationError:
            report.incidents.append(f"{ODD} ({name})")
            continue
        if name == "seconds":
            report.seconds |= known
        elif name == "incidents":
            report.incidents += known
        else:
            setattr(report, name, known)
