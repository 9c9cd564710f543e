from __future__ import annotations

import pytest
from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from retriever import RetrieverError
from retriever.llama.filters import TESTS, allows

METADATA = {"year": 2000, "title": "Rye and Bread", "tags": ["food", "old"], "blank": "", "none": []}


def one(key: str, operator: str, value: object) -> MetadataFilter:
    return MetadataFilter(key=key, operator=FilterOperator(operator), value=value)


@pytest.mark.parametrize(
    ("key", "operator", "value", "expected"),
    [
        ("year", "==", 2000, True),
        ("year", "==", 2001, False),
        ("year", "!=", 2001, True),
        ("year", ">", 1999, True),
        ("year", ">", 2000, False),
        ("year", ">=", 2000, True),
        ("year", "<", 2000, False),
        ("year", "<=", 2000, True),
        ("year", "in", [1, 2000], True),
        ("year", "nin", [1, 2000], False),
        ("tags", "any", ["new", "old"], True),
        ("tags", "any", ["new"], False),
        ("tags", "all", ["food", "old"], True),
        ("tags", "all", ["food", "new"], False),
        ("tags", "contains", "food", True),
        ("title", "text_match", "and", True),
        ("title", "text_match", "rye", False),
        ("title", "text_match_insensitive", "rYE", True),
        ("blank", "is_empty", None, True),
        ("none", "is_empty", None, True),
        ("missing", "is_empty", None, True),
        ("year", "is_empty", None, False),
        ("missing", "==", 1, False),
        ("missing", "!=", 1, True),
        ("missing", "nin", [1], True),
    ],
)
def test_operators(key: str, operator: str, value: object, expected: bool) -> None:
    assert allows(MetadataFilters(filters=[one(key, operator, value)]), METADATA) is expected


def test_every_operator_is_known() -> None:
    assert {*TESTS, FilterOperator.IS_EMPTY} == set(FilterOperator)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [(FilterCondition.AND, False), (FilterCondition.OR, True), (FilterCondition.NOT, False)],
)
def test_conditions(condition: FilterCondition, expected: bool) -> None:
    filters = MetadataFilters(filters=[one("year", "==", 2000), one("year", "==", 1)], condition=condition)
    assert allows(filters, METADATA) is expected


def test_conditions_within_conditions() -> None:
    wrong = MetadataFilters(filters=[one("year", "==", 1)], condition=FilterCondition.NOT)
    both = MetadataFilters(filters=[wrong, one("tags", "contains", "old")])
    assert allows(both, METADATA)
    assert not allows(MetadataFilters(filters=[both], condition=FilterCondition.NOT), METADATA)


def test_what_cannot_be_compared_is_told() -> None:
    with pytest.raises(RetrieverError, match="year > 'new' cannot be compared with 2000"):
        allows(MetadataFilters(filters=[one("year", ">", "new")]), METADATA)
