"""Addresses that processes listen on, read as the engines themselves read them."""

import pytest

from gpusupervisor.engine_http import connectable, is_local
from gpusupervisor.tenants.catalog import SHIPPED, load_catalog
from gpusupervisor.tenants.definition import Endpoint
from gpusupervisor.tenants.listening import (
    Address,
    address_in_environment,
    address_on_command_line,
    parse_listen_address,
    with_address,
)
from gpusupervisor.tenants.recognizer import Recognizer
from gpusupervisor.tenants.take_census import take_census
from tests.tenants.people import GIB, gpu, sample, who

OLLAMA = Endpoint("http://127.0.0.1:11434", host_variable="OLLAMA_HOST")
LLAMA = Endpoint(
    "http://127.0.0.1:8080", ("--port",), ("--host",), host_variable="LLAMA_ARG_HOST", port_variable="LLAMA_ARG_PORT"
)
SWAP = Endpoint("http://127.0.0.1:8080", host_flags=("--listen", "-listen"))
COMFY = Endpoint("http://127.0.0.1:8188", ("--port",), ("--listen",))


@pytest.mark.parametrize(
    ("value", "host", "port"),
    [
        ("1.2.3.4", "1.2.3.4", 11434),
        (":1234", "", 1234),
        ("1.2.3.4:1234", "1.2.3.4", 1234),
        ("example.com", "example.com", 11434),
        ("example.com:1234", "example.com", 1234),
        ("1234", "1234", 11434),
        (":66000", "", 11434),
        (":-1", "", 11434),
        (":http", "", 11434),
        ("host:", "host", 11434),
        ("[::1]", "::1", 11434),
        ("::1", "::1", 11434),
        ("[::1]:1337", "::1", 1337),
        ("[::]", "::", 11434),
        ("0.0.0.0", "", 11434),
        ("0.0.0.0:80", "", 80),
        (" 1.2.3.4 ", "1.2.3.4", 11434),
        ('"1.2.3.4"', "1.2.3.4", 11434),
        (' " 1.2.3.4 " ', "1.2.3.4", 11434),
        ("'1.2.3.4'", "1.2.3.4", 11434),
        ("http://1.2.3.4", "1.2.3.4", 80),
        ("http://1.2.3.4:4321", "1.2.3.4", 4321),
        ("https://1.2.3.4", "1.2.3.4", 443),
        ("https://1.2.3.4:4321", "1.2.3.4", 4321),
        ("https://example.com/ollama", "example.com", 443),
        ("http://[::1]:1337/base/", "::1", 1337),
        ("HTTP://1.2.3.4", "1.2.3.4", 11434),
        ("tcp://1.2.3.4", "1.2.3.4", 11434),
        ("a b:1", "", 1),
        ("ex\x1b[31mample", "", 11434),
        ("[::1", "::1", 11434),
        ("1:2:3", "", 11434),
        ("http://", "", 80),
    ],
)
def test_an_address_is_read_as_ollama_reads_ollama_host(value: str, host: str, port: int) -> None:
    assert parse_listen_address(value, 11434) == Address(host, port)


@pytest.mark.parametrize("value", ["", "  ", '""', "' '"])
def test_an_empty_variable_says_nothing(value: str) -> None:
    assert address_in_environment(OLLAMA, [("OLLAMA_HOST", value)]) == Address()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"LLAMA_ARG_PORT": "9000"}, Address("", 9000)),
        ({"LLAMA_ARG_HOST": "::1", "LLAMA_ARG_PORT": "9000"}, Address("::1", 9000)),
        ({"LLAMA_ARG_HOST": "10.0.0.1"}, Address("10.0.0.1", 8080)),
        ({"LLAMA_ARG_PORT": "x"}, Address()),
        ({"OLLAMA_HOST": ":1"}, Address()),
    ],
)
def test_host_and_port_may_have_a_variable_each(variables: dict[str, str], expected: Address) -> None:
    assert address_in_environment(LLAMA, list(variables.items())) == expected


@pytest.mark.parametrize(
    ("endpoint", "line", "expected"),
    [
        (SWAP, "llama-swap --config c.yaml --listen :9292", Address("", 9292)),
        (SWAP, "llama-swap -listen 10.0.0.1:9292", Address("10.0.0.1", 9292)),
        (SWAP, "llama-swap --listen=[::1]:9292", Address("::1", 9292)),
        (LLAMA, "llama-server --host 0.0.0.0 --port 9000", Address("", 9000)),
        (LLAMA, "llama-server --host 192.168.1.5", Address("192.168.1.5")),
        (LLAMA, "llama-server --host /run/llama.sock", Address(unix="/run/llama.sock")),
        (LLAMA, "llama-server --host /run/x.sock --host 10.0.0.1", Address("10.0.0.1")),
        (LLAMA, "llama-server --host //evil/x.sock", Address()),
        (COMFY, "python main.py --listen --port 8189", Address("", 8189)),
        (COMFY, "python main.py --listen 0.0.0.0,::", Address()),
        (COMFY, "python main.py --listen 127.0.0.1", Address("127.0.0.1")),
        (COMFY, "python main.py --listen", Address()),
    ],
)
def test_flags_name_host_and_port_together_or_apart(endpoint: Endpoint, line: str, expected: Address) -> None:
    assert address_on_command_line(endpoint, line.split()) == expected


@pytest.mark.parametrize(
    ("engine", "line", "url"),
    [
        ("comfyui", "python main.py --tls-keyfile k --tls-certfile c", "https://127.0.0.1:8188"),
        ("comfyui", "python main.py --tls-keyfile=k --port 9000", "https://127.0.0.1:9000"),
        ("llama-server", "llama-server --ssl-key-file k --ssl-cert-file c", "https://127.0.0.1:8080"),
        ("llama-server", "llama-server --api-prefix /llama/ --port 9000", "http://127.0.0.1:9000/llama"),
        ("llama-server", "llama-server --api-prefix http://evil", "http://127.0.0.1:8080"),
        ("llama-server", "llama-server --host /run/llama.sock", "unix:/run/llama.sock"),
        ("automatic1111", "python launch.py --tls-keyfile k", "https://127.0.0.1:7860"),
        ("koboldcpp", "koboldcpp --ssl c k", "https://127.0.0.1:5001"),
        ("vllm", "vllm serve m --ssl-keyfile k", "https://127.0.0.1:8000"),
    ],
)
def test_tls_prefix_and_unix_socket_of_an_engine_are_in_its_address(engine: str, line: str, url: str) -> None:
    endpoint = load_catalog([SHIPPED]).definitions[engine].endpoint
    assert endpoint is not None
    found = with_address(endpoint.url, address_on_command_line(endpoint, line.split()))
    assert found == url
    assert is_local(connectable(found))


def test_an_address_makes_a_url_of_the_endpoints_scheme() -> None:
    assert with_address("https://127.0.0.1:8080", Address("::1", 9)) == "https://[::1]:9"
    assert with_address("http://127.0.0.1:8080", Address("::", None)) == "http://[::]:8080"
    assert with_address("http://127.0.0.1:8080", Address("", 0)) == "http://127.0.0.1:8080"


@pytest.mark.parametrize(
    ("command", "variables", "endpoint"),
    [
        ("", {"LLAMA_ARG_SSL_KEY_FILE": "/etc/key.pem"}, "https://127.0.0.1:8080"),
        ("", {"LLAMA_ARG_SSL_KEY_FILE": ""}, "http://127.0.0.1:8080"),
        ("", {"LLAMA_ARG_API_PREFIX": "/llama/"}, "http://127.0.0.1:8080/llama"),
        ("", {"LLAMA_ARG_API_PREFIX": "no path"}, "http://127.0.0.1:8080"),
        (" --api-prefix /flag", {"LLAMA_ARG_API_PREFIX": "/llama"}, "http://127.0.0.1:8080/flag"),
        (" --port 9", {"LLAMA_ARG_SSL_KEY_FILE": "k", "LLAMA_ARG_API_PREFIX": "/a"}, "https://127.0.0.1:9/a"),
    ],
)
def test_tls_and_prefix_come_from_variables_too(command: str, variables: dict[str, str], endpoint: str) -> None:
    catalog = load_catalog([SHIPPED])
    server = who(7, f"/opt/llama-server -m x.gguf{command}", variables=variables, ports=(8080,))
    census = take_census(sample(gpu(processes={7: GIB})), {7: server}, catalog, Recognizer())
    assert [each.endpoint for each in census.tenants.values() if each.holders] == [endpoint]
