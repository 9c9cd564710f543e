"""Which nodes llama-index's metadata filters allow, nested ones too."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from retriever import RetrieverError

Test = Callable[[Any, Any], bool]  # of a node's value and the filter's

TESTS: Mapping[FilterOperator, Test] = {
    FilterOperator.EQ: operator.eq,
    FilterOperator.NE: operator.ne,
    FilterOperator.GT: operator.gt,
    FilterOperator.GTE: operator.ge,
    FilterOperator.LT: operator.lt,
    FilterOperator.LTE: operator.le,
    FilterOperator.IN: lambda own, given: own in given,
    FilterOperator.NIN: lambda own, given: own not in given,
    FilterOperator.ANY: lambda own, given: any(value in own for value in given),
    FilterOperator.ALL: lambda own, given: all(value in own for value in given),
    FilterOperator.CONTAINS: lambda own, given: given in own,
    FilterOperator.TEXT_MATCH: lambda own, given: given in own,
    FilterOperator.TEXT_MATCH_INSENSITIVE: lambda own, given: given.casefold() in own.casefold(),
}
WITHOUT_VALUE = (FilterOperator.NE, FilterOperator.NIN)  # that a node without the key passes


def allows(filters: MetadataFilters, metadata: Mapping[str, Any]) -> bool:
    """Raises RetrieverError for values that the filter's operator cannot compare."""
    results = [
        allows(one, metadata) if isinstance(one, MetadataFilters) else _passes(one, metadata) for one in filters.filters
    ]
    if filters.condition == FilterCondition.NOT:
        return not any(results)
    return any(results) if filters.condition == FilterCondition.OR else all(results)


def hollow(filters: MetadataFilters) -> bool:
    """Whether some part of it names nothing: an empty list allows every node in one place and none in another."""
    return not filters.filters or any(
        hollow(one) if isinstance(one, MetadataFilters) else isinstance(one.value, list) and not one.value
        for one in filters.filters
    )


def _passes(one: MetadataFilter, metadata: Mapping[str, Any]) -> bool:
    own = metadata.get(one.key)
    if one.operator == FilterOperator.IS_EMPTY:
        return own is None or own == "" or own == []
    if own is None:
        return one.operator in WITHOUT_VALUE
    try:
        return bool(TESTS[one.operator](own, one.value))
    except (TypeError, AttributeError) as error:
        raise RetrieverError(
            f"the filter {one.key} {one.operator.value} {one.value!r} cannot be compared with {own!r}"
        ) from error
