"""Notebooks: texts, programs and what they printed, in both versions of the format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.errors import LoadError
from app.loaders import load, parse
from app.loaders.base import ParseLimits
from app.loaders.notebook import MOST_PRINTED
from splitter.outline import markdown_regions
from tests.app.loaders.files import write_notebook

PIXELS = "iVBORw0KGgo" * 20


def code(source: str | list[str], *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "outputs": outputs, "execution_count": 1, "metadata": {}}


def said(source: str | list[str]) -> dict[str, Any]:
    return {"cell_type": "markdown", "source": source, "metadata": {}}


def stream(text: str | list[str]) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text}


def shown(**data: Any) -> dict[str, Any]:
    return {"output_type": "display_data", "data": {key.replace("_", "/"): value for key, value in data.items()}}


def text_of(tmp_path: Path, *cells: dict[str, Any]) -> str:
    parsed = load(write_notebook(tmp_path / "a.ipynb", cells))
    parsed.check_integrity()
    return parsed.text


def test_cells_in_their_order(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cells = [
        code("# imports\nimport math\n"),
        said(["# Tides\n", "\n", "High *water* at noon."]),
        code(["print(2)\n", "2 + 2"], stream(["2\n"]), {"output_type": "execute_result", "data": {"text/plain": "4"}}),
        {"cell_type": "raw", "source": "As it is."},
        code("", stream("")),
    ]
    path = write_notebook(tmp_path / "a.ipynb", cells)
    parsed = load(path)
    assert (parsed.kind, parsed.title) == ("markdown", "Tides")
    assert parsed.text == (
        "```python\n# imports\nimport math\n```\n\n# Tides\n\nHigh *water* at noon.\n\n"
        "```python\nprint(2)\n2 + 2\n```\n\nOutput:\n\n```\n2\n4\n```\n\nAs it is."
    )
    assert [region.title for region in markdown_regions(parsed.text) if region.title] == ["Tides"]
    assert not caplog.records


def test_version_3_has_sheets_and_headings() -> None:
    old = {
        "nbformat": 3,
        "metadata": {"name": "old"},
        "worksheets": [
            {
                "cells": [
                    {"cell_type": "heading", "level": 2, "source": "Low\nwater"},
                    {"cell_type": "heading", "level": 12, "source": "Odd"},
                    {
                        "cell_type": "code",
                        "language": "python",
                        "input": ["x = 1\n", "x"],
                        "outputs": [
                            {"output_type": "pyout", "text": ["1"], "png": PIXELS},
                            {
                                "output_type": "pyerr",
                                "ename": "KeyError",
                                "evalue": "'x'",
                                "traceback": ["\x1b[0;31m…"],
                            },
                        ],
                    },
                ]
            }
        ],
    }
    parsed = parse(Path("a.ipynb"), json.dumps(old).encode())
    assert parsed.title == "Low water"
    assert parsed.text == ("## Low water\n\n# Odd\n\n```python\nx = 1\nx\n```\n\nOutput:\n\n```\n1\nKeyError: 'x'\n```")


def test_images_are_left_out_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = text_of(
        tmp_path,
        said(f"A map: ![the bay](data:image/png;base64,{PIXELS}) of 1884."),
        code("plot()", shown(text_plain="<Figure size 640x480 with 1 Axes>", image_png=PIXELS)),
        code("table()", shown(text_plain="<IPython.core.display.HTML object>", text_html="<b>9</b><script>x</script>")),
        code("note()", shown(text_plain="<Markdown object>", text_markdown="*ten*")),
        {"cell_type": "markdown", "source": "![a](attachment:a.png)", "attachments": {"a.png": {"image/png": PIXELS}}},
    )
    assert "iVBOR" not in text and "Figure" not in text and "IPython" not in text
    assert "A map: ![the bay]() of 1884." in text
    assert "```\n9\n```" in text and "```\n*ten*\n```" in text
    assert "a.ipynb: left out are 2 images" in caplog.text


@pytest.mark.parametrize(
    ("forms", "text"),
    [
        ({"text_plain": "<Response [404]>"}, "<Response [404]>"),
        ({"text_plain": "<Latex object>", "text_latex": "$x^2$", "text_html": "<i>x</i>"}, "$x^2$"),
        ({"text_plain": "<Latex object>", "text_html": "<i>x</i>"}, "x"),
    ],
)
def test_the_form_that_says_most(forms: dict[str, str], text: str, tmp_path: Path) -> None:
    assert text_of(tmp_path, code("x", shown(**forms))).endswith(f"Output:\n\n```\n{text}\n```")


def test_images_with_parameters_are_left_out(tmp_path: Path) -> None:
    image = f"![a](data:image/svg+xml;charset=utf-8;name=a.svg;base64,{PIXELS})"
    assert text_of(tmp_path, said(f"A {image} map.")) == "A ![a]() map."


def test_what_programs_print_is_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    loop = code("loop()", stream("x" * 1_000_000), stream("behind"))
    text = text_of(tmp_path, loop, code("again()", stream("short")))
    assert len(text) < MOST_PRINTED + 200
    assert "x…" in text and "behind" not in text and "short" in text
    assert "1 ends of outputs above 4,000 characters, 1 outputs behind long ones" in caplog.text


def test_terminals_show_lines_that_are_written_anew_once(tmp_path: Path) -> None:
    progress = stream("  1%\r 50%\r100%\r\n\x1b[31mred\x1b[0m\r\n")
    assert text_of(tmp_path, code("run()", progress)).endswith("Output:\n\n```\n100%\nred\n```")


def test_code_with_fences_is_one_block(tmp_path: Path) -> None:
    text = text_of(tmp_path, code('s = """\n```\n# no heading\n```\n"""'), said("# Heading"))
    assert [region.title for region in markdown_regions(text) if region.title] == ["Heading"]


@pytest.mark.parametrize(
    ("notebook", "told"),
    [
        ("{", "is not valid JSON at line 1"),
        ("[]", "is no Jupyter notebook: it has no list of cells"),
        ('{"cells": 3}', "is no Jupyter notebook"),
        ('{"worksheets": [3, {}]}', "is no Jupyter notebook"),
        ('{"cells": []}', "holds no text"),
        ('{"cells": [{"cell_type": "code", "source": "", "outputs": [3, {}]}]}', "holds no text"),
    ],
)
def test_what_is_no_notebook(notebook: str, told: str) -> None:
    with pytest.raises(LoadError, match=told):
        parse(Path("a.ipynb"), notebook.encode())


def test_odd_cells_cost_themselves(caplog: pytest.LogCaptureFixture) -> None:
    cells = (
        '[3, {}, {"cell_type": "code", "source": {}, "outputs": {}}, {"cell_type": "markdown", "source": ["a", null]}]'
    )
    metadata = '{"language_info": [], "kernelspec": {"language": "a b"}}'
    parsed = parse(Path("a.ipynb"), f'{{"cells": {cells}, "metadata": {metadata}}}'.encode())
    assert parsed.text == "a"
    assert "1 cells that are none" in caplog.text


def test_many_characters_are_refused(tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "a.ipynb", [code("words " * 1_000)] * 30)
    with pytest.raises(LoadError, match="million characters of text"):
        load(path, ParseLimits(max_characters=100_000))
