import pytest
from dbus_fast import Message, MessageType
from hypothesis import given
from hypothesis import strategies as st

from gpusupervisor.bus.wire import TEXT_LIMIT, details, document, sentence, size, text, variant
from gpusupervisor.clock import UNKNOWN


def marshals(signature: str, value: object) -> bool:
    message = Message(
        path="/a", interface="a.b", member="C", message_type=MessageType.SIGNAL,
        signature="v", body=[variant(signature, value)], serial=1,
    )  # fmt: skip
    return bool(message._marshall(False))


def test_text_of_other_programs_cannot_reach_a_terminal() -> None:
    assert text("evil\x1b[?1047h\nname\x00") == "evil [?1047h name"
    assert text("\udcff") == ""


def test_a_sentence_ends_with_a_full_stop() -> None:
    assert sentence("stop it, or describe it") == sentence("stop it, or describe it.") == "stop it, or describe it."
    assert sentence("correct it (gpusupervisorctl lint shows every problem)").endswith(").")
    assert sentence("run systemctl restart ollama.service to bring it into force").endswith("force.")
    assert sentence("") == ""


@pytest.mark.parametrize(
    "ending",
    ["systemctl restart x.service", "systemctl --user restart comfyui.service", "journalctl -u gpusupervisor-helper",
     "and systemctl reload dbus", "gpusupervisorctl health", "it is in /etc/gpusupervisor/gpusupervisor.toml",
     "stop ollama.service"],
)  # fmt: skip
def test_no_full_stop_sticks_to_what_is_to_be_copied(ending: str) -> None:
    assert sentence(ending) == ending


def test_long_text_is_cut() -> None:
    cut = text("x" * 5000)
    assert len(cut) == TEXT_LIMIT
    assert cut.endswith("…")


def test_a_document_keeps_its_lines() -> None:
    assert document("a = 1\n\tb\x1b") == "a = 1\n\tb "


def test_unknown_sizes_are_all_ones_and_impossible_ones_are_clamped() -> None:
    assert [size(None), size(-5), size(2**70), size(7)] == [UNKNOWN, 0, UNKNOWN, 7]


@given(st.text())
def test_any_text_marshals(value: str) -> None:
    assert marshals("s", value)
    assert marshals("as", (value,))
    assert marshals("a{st}", {value: -1})


@given(st.one_of(st.none(), st.integers()))
def test_any_size_marshals(value: int | None) -> None:
    assert marshals("t", value)
    assert marshals("aa{sv}", [details(used=("t", value))])
