"""Charts of presentations: the numbers that a file keeps of them, however many it says there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from app.errors import LoadError
from app.loaders import load
from app.loaders.base import ParseLimits
from tests.app.loaders.files import parts_of, write_chart
from tests.app.loaders.test_bombs import replaced

CHART = "ppt/charts/chart1.xml"
TWO = '<c:pt idx="0"><c:v>1</c:v></c:pt><c:pt idx="1"><c:v>2</c:v></c:pt>'


def categories(*names: Any, **series: Any) -> Any:
    from pptx.chart.data import CategoryChartData

    data: Any = CategoryChartData()  # type: ignore[no-untyped-call]  # python-pptx leaves it unannotated
    data.categories = names
    for name, values in series.items():
        data.add_series(name, values)
    return data


def points(data: Any, **series: Any) -> Any:
    for name, found in series.items():
        one = data.add_series(name)
        for point in found:
            one.add_data_point(*point)
    return data


def test_gaps_and_errors_of_a_series_stay_in_their_rows(tmp_path: Path) -> None:
    path = write_chart(tmp_path / "a.pptx", "LINE", categories("a", "b", "c", one=(0.1, None, 3), two=(4, 5, 6)))
    replaced(path, CHART, ("<c:v>0.1</c:v>", "<c:v>0.30000000000000004</c:v>"), ("<c:v>5</c:v>", "<c:v>#N/A</c:v>"))
    assert load(path).text == "|  | one | two |\n| --- | --- | --- |\n| a | 0.3 | 4 |\n| b |  | #N/A |\n| c | 3 | 6 |"


def test_names_that_were_typed_and_numbers_of_many_digits(tmp_path: Path) -> None:
    path = write_chart(
        tmp_path / "a.pptx", "LINE", categories("a", "b", one=(1234567890123, 2), two=(3, 4), three=(5, 6))
    )
    one, two, three = re.findall("<c:tx>.*?</c:tx>", str(parts_of(path)[CHART], "utf-8"), re.DOTALL)  # type: ignore[arg-type]
    replaced(path, CHART, (one, "<c:tx><c:v>Sales</c:v></c:tx>"), (two, ""), (three, "<c:tx><c:v> </c:v></c:tx>"))
    header = "|  | Sales | series 2 | series 3 |\n| --- | --- | --- | --- |\n"
    assert load(path).text == f"{header}| a | 1234567890123 | 3 | 5 |\n| b | 2 | 4 | 6 |"


def test_categories_of_several_levels_are_told_together(tmp_path: Path) -> None:
    data = categories(s=(1, 2))
    outer = data.add_category("north")
    outer.add_sub_category("pier")
    outer.add_sub_category("quay")
    assert "| north pier | 1 |\n| quay | 2 |" in load(write_chart(tmp_path / "a.pptx", "LINE", data)).text


def test_points_of_scatter_and_bubble_charts_have_their_x(tmp_path: Path) -> None:
    from pptx.chart.data import BubbleChartData, XyChartData

    same = points(XyChartData(), one=[(1, 10), (2, 20)], two=[(1, 30), (2, 40)])  # type: ignore[no-untyped-call]
    assert "|  | one | two |\n| --- | --- | --- |\n| 1 | 10 | 30 |\n| 2 | 20 | 40 |" in (
        load(write_chart(tmp_path / "same.pptx", "XY_SCATTER", same)).text
    )
    other = points(XyChartData(), one=[(1, 10)], two=[(2, 20)])  # type: ignore[no-untyped-call]
    assert "| 1 | 10 | 2 | 20 |" in load(write_chart(tmp_path / "other.pptx", "XY_SCATTER", other)).text
    bubbles = points(BubbleChartData(), one=[(1, 10, 5)])  # type: ignore[no-untyped-call]
    assert "| 1 | 10 | 5 |" in load(write_chart(tmp_path / "bubbles.pptx", "BUBBLE", bubbles)).text


def test_a_chart_costs_what_it_holds_and_not_what_it_says(tmp_path: Path) -> None:
    """python-pptx makes as many values as are told, and looks through all of them for each: 60,000 take minutes."""
    path = write_chart(tmp_path / "a.pptx", "LINE", categories("a", "b", s=(1, 2)))
    many = "".join(f'<c:pt idx="{index}"><c:v>{index}</c:v></c:pt>' for index in range(60_000))
    replaced(path, CHART, ('<c:ptCount val="2"/>', '<c:ptCount val="1000000000"/>'), (TWO, many + TWO))
    assert "| 59999 |" in load(path).text


def test_a_chart_that_is_all_gaps(tmp_path: Path) -> None:
    path = write_chart(tmp_path / "a.pptx", "LINE", categories("a", "b", s=(1, 2)))
    series = "".join(
        f'<c:ser><c:val><c:numLit><c:pt idx="{index}"><c:v>1</c:v></c:pt></c:numLit></c:val></c:ser>'
        for index in range(300)
    )
    replaced(path, CHART, ("</c:lineChart>", f"{series}</c:lineChart>"))
    with pytest.raises(LoadError, match="has a chart of more than 50,000 values: remove it"):
        load(path, ParseLimits(max_cells=50_000))
