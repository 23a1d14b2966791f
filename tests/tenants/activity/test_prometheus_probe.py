"""The `prometheus` probe over metrics as engines write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusupervisor.engine_http import BadAnswer, EngineHttp
from gpusupervisor.tenants.activity.probes.prometheus import PrometheusProbe, _parse
from gpusupervisor.tenants.activity.verdict import Observation
from gpusupervisor.tenants.definition import ProbeSpec
from tests.http_peer import HTML, Peer, reply
from tests.tenants.activity.builders import SECOND, context, presence

RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
SPEC = ProbeSpec("prometheus", get="/metrics", busy_metrics=(RUNNING, WAITING), timeout=10 * SECOND)


async def look(peer: Peer, http: EngineHttp, text: str) -> Observation:
    peer.answers["/metrics"] = reply(text.encode(), content_type="text/plain; version=0.0.4")
    return await PrometheusProbe(SPEC).observe(context(http, presence(peer.url)))


def exposition(running: object, waiting: object) -> str:
    return (
        f"# HELP {RUNNING} Number of requests.\n# TYPE {RUNNING} gauge\n"
        f'{RUNNING}{{engine="0",model_name="a \\"b\\""}} {running}\n'
        f'{RUNNING}{{engine="1",model_name="c"}} 0.0\n'
        f"# TYPE {WAITING} gauge\n{WAITING} {waiting}\n{WAITING}_by_reason 99\nprocess_cpu_seconds_total 12.5\n"
    )


@pytest.mark.parametrize(
    ("running", "waiting", "state"), [(0.0, 0.0, "idle"), (1.0, 0.0, "busy"), (0.0, 3.0, "busy"), (0, "1e0", "busy")]
)
async def test_any_work_is_busy_and_none_is_idle(
    peer: Peer, http: EngineHttp, running: object, waiting: object, state: str
) -> None:
    assert (await look(peer, http, exposition(running, waiting))).state == state


@pytest.mark.parametrize("text", ["", HTML.decode(), "process_cpu_seconds_total 12.5\n", f"# TYPE {RUNNING} gauge\n"])
async def test_metrics_without_the_wanted_ones_are_unknown(peer: Peer, http: EngineHttp, text: str) -> None:
    seen = await look(peer, http, text)
    assert (seen.state, seen.reason) == ("unknown", "its metrics do not tell whether it is working")


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "many", "", '{a="b'])
async def test_a_value_that_counts_nothing_is_unknown(peer: Peer, http: EngineHttp, value: str) -> None:
    assert (await look(peer, http, f"{RUNNING} {value}\n")).state == "unknown"


async def test_more_lines_than_can_be_believed_are_unknown(peer: Peer, http: EngineHttp) -> None:
    assert (await look(peer, http, f'{RUNNING}{{a="b"}} 0\n' * 5000)).state == "unknown"


async def test_an_error_is_unknown(peer: Peer, http: EngineHttp) -> None:
    peer.says("/metrics", {"error": "use --metrics"}, 501)
    seen = await PrometheusProbe(SPEC).observe(context(http, presence(peer.url)))
    assert (seen.state, seen.reason) == ("unknown", "its API answered /metrics with status 501")


@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_no_text_at_all_is_more_than_a_bad_answer(text: str) -> None:
    for exposition_text in (text, f"{RUNNING} {text}", f"{RUNNING}{{{text}"):
        try:
            values = _parse(exposition_text + "\n")
        except BadAnswer:
            continue
        assert all(value >= 0 for value in values)
