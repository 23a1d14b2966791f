"""JMESPath over what an engine answered: any answer at all, so any failure is an answer that does not fit."""

from functools import lru_cache

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.parser import ParsedResult

from gpusupervisor.engine_http import BadAnswer

_compiled = lru_cache(maxsize=256)(jmespath.compile)


def query(expression: str, data: object) -> object:
    """The value of a JMESPath expression over JSON; None where it finds nothing.

    Raises BadAnswer when the answer is of a shape for which the expression has no value (a function given
    the wrong type, nesting without end).
    """
    compiled: ParsedResult = _compiled(expression)
    try:
        value: object = compiled.search(data)
    except (JMESPathError, RecursionError, TypeError, ValueError):
        raise BadAnswer("answered in a shape that the definition's expression does not fit") from None
    return value
