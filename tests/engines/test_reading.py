"""Process, unit and API made into one reading: what is in force, what waits, what is hidden."""

from dataclasses import replace

from gpusupervisor.engines.reading import server_among
from tests.engines.builders import DROP_IN, PID, api, hidden_process, process, reading, service, settings
from tests.tenants.people import who


def test_what_the_unit_says_too_has_its_file_as_source() -> None:
    found = settings("ollama", process(OLLAMA_KEEP_ALIVE="1h"), service(OLLAMA_KEEP_ALIVE="1h"))["OLLAMA_KEEP_ALIVE"]
    assert (found.value, found.source, found.pending) == ("1h", DROP_IN, "")


def test_a_change_of_the_unit_is_pending_until_a_restart() -> None:
    before = settings("ollama", process(OLLAMA_KEEP_ALIVE="1h"), service(OLLAMA_KEEP_ALIVE="-1"))["OLLAMA_KEEP_ALIVE"]
    assert (before.value, before.source, before.pending) == ("1h", "environment", "-1")
    assert "1h" in before.meaning
    after = settings("ollama", process(OLLAMA_KEEP_ALIVE="-1"), service(OLLAMA_KEEP_ALIVE="-1"))["OLLAMA_KEEP_ALIVE"]
    assert (after.value, after.pending) == ("-1", "")


def test_what_is_new_in_the_unit_is_not_in_force_and_says_what_will_follow() -> None:
    found = settings("ollama", process(), service(OLLAMA_NUM_PARALLEL="1"))["OLLAMA_NUM_PARALLEL"]
    assert (found.value, found.source, found.pending) == ("", DROP_IN, "1")
    assert found.meaning.startswith("after a restart: one request at a time")


def test_what_was_taken_out_of_the_unit_stays_in_force_until_a_restart() -> None:
    found = settings("ollama", process(OLLAMA_NUM_PARALLEL="1"), service())["OLLAMA_NUM_PARALLEL"]
    assert (found.value, found.pending) == ("1", "(not set)")


def test_a_file_that_cannot_be_read_takes_nothing_away() -> None:
    unit = replace(service(), unreadable=("/etc/secret.env",))
    whole = reading("ollama", process(OLLAMA_NUM_PARALLEL="1"), unit)
    assert whole.settings[0].pending == ""
    assert whole.hidden == (), "the process itself says what is in force"


def test_flags_of_the_unit_wait_too() -> None:
    running, unit = process("/usr/bin/engine -c 4096 --metrics"), service("/usr/bin/engine -c 8192 --no-slots")
    found = settings("llama.cpp", running, unit)
    assert (found["--ctx-size"].value, found["--ctx-size"].pending) == ("4096", "8192")
    assert (found["--metrics"].value, found["--metrics"].pending) == ("", "(not set)")
    assert (found["--no-slots"].value, found["--no-slots"].pending) == ("", "(set)")
    assert found["--no-slots"].source == "/etc/systemd/system/engine.service"


def test_variables_in_the_units_command_are_filled_in() -> None:
    unit = service("/usr/bin/engine -c ${CTX} $MORE --api-key $$x", CTX="4096", MORE="--metrics -np 2")
    found = settings("llama.cpp", process("/usr/bin/engine -c 4096 --metrics -np 2 --api-key $x"), unit)
    assert {name: setting.pending for name, setting in found.items()} == dict.fromkeys(found, "")
    assert set(found) == {"--ctx-size", "--metrics", "--parallel", "--api-key"}


def test_what_a_script_makes_of_it_is_not_called_pending() -> None:
    unit = replace(service("/usr/local/bin/start-engine", OLLAMA_KEEP_ALIVE="1h"), main_pid=PID)
    found = settings("ollama", process(OLLAMA_KEEP_ALIVE="5m"), unit)["OLLAMA_KEEP_ALIVE"]
    assert (found.value, found.pending) == ("5m", "")
    child = replace(process(OLLAMA_KEEP_ALIVE="5m"), key=who(701).key)
    assert settings("ollama", child, service(OLLAMA_KEEP_ALIVE="1h"))["OLLAMA_KEEP_ALIVE"].pending == ""


def test_a_script_run_by_an_interpreter_is_what_the_unit_names() -> None:
    running = process("/opt/venv/bin/python /opt/venv/bin/vllm serve m", VLLM_SERVER_DEV_MODE="0")
    found = settings("vllm", running, service("/opt/venv/bin/vllm serve m --enable-sleep-mode"))
    assert found["--enable-sleep-mode"].pending == "(set)"


def test_of_a_hidden_process_the_units_word_is_taken_and_what_is_missing_is_named() -> None:
    unit = replace(service(OLLAMA_KEEP_ALIVE="1h"), unreadable=("/etc/secret.env",))
    whole = reading("ollama", hidden_process(), unit, api("0.33.0"))
    (found,) = whole.settings
    assert (found.name, found.value, found.source, found.pending) == ("OLLAMA_KEEP_ALIVE", "1h", DROP_IN, "")
    assert whole.hidden == ("the environment of its process", "/etc/secret.env")
    assert whole.problem == "the environment of its process, /etc/secret.env could not be read"


def test_of_an_engine_whose_process_nobody_knows_that_is_said() -> None:
    assert "its process was not found" in reading("ollama", None, None, api("0.33.0")).problem
    assert reading("ollama", process(), None, api("0.33.0")).problem == ""


def test_a_stopped_unit_says_what_its_next_start_will_have() -> None:
    whole = reading("ollama", None, replace(service(OLLAMA_KEEP_ALIVE="0"), active=False, needs_reload=True))
    (found,) = whole.settings
    assert (found.value, found.source, found.pending) == ("0", DROP_IN, "")
    assert (whole.unit, whole.needs_reload) == ("engine.service", True)


def test_secrets_are_only_said_to_be_set() -> None:
    for running in (process("engine --api-key hunter2"), process(LLAMA_API_KEY="hunter2")):
        found = settings("llama.cpp", running)["--api-key"]
        assert found.value == "(set)"
    found = settings("llama.cpp", process("/usr/bin/engine serve"), service("/usr/bin/engine --api-key hunter2"))[
        "--api-key"
    ]
    assert "hunter2" not in repr(found)
    assert found.pending == "(set)"


def test_the_command_line_beats_the_environment_and_the_api_fills_in_the_rest() -> None:
    running = process("engine -c 4096", LLAMA_ARG_CTX_SIZE="1024", LLAMA_ARG_N_PARALLEL="2")
    found = settings(
        "llama.cpp", running, None, api("b9000-abc", {"slots": "4", "sleeping": "false", "role": "router"})
    )
    assert (found["--ctx-size"].value, found["--ctx-size"].source) == ("4096", "command line")
    assert (found["--parallel"].value, found["--parallel"].source) == ("2", "environment")
    assert (found["slots"].value, found["slots"].source) == ("4", "/info")
    assert (found["--sleep-idle-seconds"].value, found["--sleep-idle-seconds"].source) == ("-1", "default")
    assert "sleeping" not in found, "not worth a line while it is awake"


def test_a_command_line_that_was_cut_short_says_nothing_of_what_is_not_on_it() -> None:
    running = process("engine " + " ".join(f"--x{number}" for number in range(63)))
    assert settings("vllm", running, None, api("0.11.0")) == {}


def test_values_are_made_harmless() -> None:
    running = replace(process(), environment=(("OLLAMA_MODELS", "/a\x1b[2J\u202e" + "b" * 500),))
    found = settings("ollama", running)["OLLAMA_MODELS"]
    assert found.value.isprintable()
    assert len(found.value) <= 256


def test_the_engine_of_a_unit_is_its_outermost_process_that_is_no_launcher() -> None:
    shell = who(1, "/bin/bash /opt/start.sh", executable="/usr/bin/bash")
    engine = who(2, "python main.py", executable="/usr/bin/python3.13", parents=[shell])
    worker = who(3, "python worker.py", executable="/usr/bin/python3.13", parents=[engine, shell])
    people = {each.key.pid: each for each in (worker, engine, shell)}
    assert server_among((1, 2, 3), people) == engine
    assert server_among((1,), people) is None
    assert server_among((9,), people) is None
