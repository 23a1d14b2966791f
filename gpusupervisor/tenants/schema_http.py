"""What may be sent to an engine, and read from its answer: paths, headers, expressions, metric names."""

import re

import jmespath

from gpusupervisor.foreign_text import harmless

_LONGEST_EXPRESSION = 1024
_PATH = re.compile(r"/(?!/)[!-~]{0,1023}|/")
"""Printable ASCII; "//host" would name another host."""
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_HEADER_VALUE = re.compile(r"[ -~]{1,1024}")
_METRIC = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]{0,255}")
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "content-type"})
"""Headers that the client writes itself."""


def path_complaint(path: str) -> str:
    """What is wrong with a path at the tenant's endpoint."""
    if _PATH.fullmatch(path) and "#" not in path and "\\" not in path:
        return ""
    return f'is "{harmless(path, 64)}"; allowed: a path at the endpoint, e.g. "/api/ps"'


def expression_complaint(expression: str) -> str:
    """What is wrong with a JMESPath expression."""
    if len(expression) > _LONGEST_EXPRESSION:
        return f"is longer than {_LONGEST_EXPRESSION} characters"
    try:
        jmespath.compile(expression)
    except RecursionError:
        return "is nested too deep"
    except ValueError as error:
        return f"is no JMESPath expression: {harmless(str(error))}"
    return ""


def metric_complaint(name: str) -> str:
    """What is wrong with a Prometheus metric name."""
    return "" if _METRIC.fullmatch(name) else "is no metric name; allowed: letters, digits, _ and :"


def header_complaint(name: str, value: str) -> str:
    """What is wrong with an HTTP header."""
    if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
        return "is no HTTP header: plain ASCII only"
    return "is written by the HTTP client itself" if name.lower() in _OURS else ""


def query_complaint(name: str, value: str) -> str:
    """What is wrong with a query parameter (it is percent-encoded when sent)."""
    return "is longer than 1024 characters" if len(name) + len(value) > 1024 else ""
