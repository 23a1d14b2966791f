"""What may be sent to an engine, and read from its answer: paths, headers, expressions, metric names."""

import os
import re

import jmespath

from gpusupervisor.configuration.checking import TableReader
from gpusupervisor.engine_http import Header, HeaderValue, KeyFile
from gpusupervisor.foreign_text import harmless

_LONGEST_EXPRESSION = 1024
_PATH = re.compile(r"/(?!/)[!-~]{0,1023}|/")
"""Printable ASCII; "//host" would name another host."""
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_HEADER_VALUE = re.compile(r"[ -~]{1,1024}")
_METRIC = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]{0,255}")
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "content-type"})
"""Headers that the client writes itself."""
_SECRET = re.compile(r"(proxy-)?authorization|cookie|.*(key|token|secret|password).*", re.IGNORECASE)
"""Headers whose value would be shown to everybody who looks at a definition."""
_FLAG = re.compile(r"--?[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


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


def flag_complaint(flag: str) -> str:
    """What is wrong with a command-line flag."""
    return "" if _FLAG.fullmatch(flag) else 'is no command-line flag; allowed: e.g. "--port" or "-p"'


def read_headers(reader: TableReader) -> tuple[Header, ...]:
    """The table `headers`: each value a text, or a table that names the file with the key."""
    with reader.table("headers") as headers:
        return tuple(_read_header(headers, name) for name in headers.names()) if headers is not None else ()


def _read_header(headers: TableReader, name: str) -> Header:
    if isinstance(headers.raw(name), dict):
        value: HeaderValue = _read_key(headers, name)
    else:
        value = str(headers.raw(name)) if _is_number(headers.raw(name)) else headers.text(name)
    shown = f"{value.prefix}x" if isinstance(value, KeyFile) else value or "x"
    wrong = header_complaint(name, shown)
    if not wrong and isinstance(value, str) and _SECRET.fullmatch(name):
        wrong = f"is a key that everybody could read here; write it into a file of root's: {_KEY_EXAMPLE}"
    if wrong:
        headers.complain(harmless(name, 64), wrong)
    return name, value


def _read_key(headers: TableReader, name: str) -> KeyFile:
    with headers.table(name) as key:
        assert key is not None
        if not key.has("file"):
            key.complain("file", f"is missing, e.g. {_KEY_EXAMPLE}")
        return KeyFile(key.text("file", complaint=file_complaint), key.text("prefix"))


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_KEY_EXAMPLE = '{ file = "/etc/gpusupervisor/keys/NAME", prefix = "Bearer " }'


def file_complaint(path: str) -> str:
    """What is wrong with the path of a file."""
    return "" if os.path.isabs(path) and ".." not in path.split("/") else "is no absolute path"


def query_complaint(name: str, value: str) -> str:
    """What is wrong with a query parameter (it is percent-encoded when sent)."""
    return "is longer than 1024 characters" if len(name) + len(value) > 1024 else ""
