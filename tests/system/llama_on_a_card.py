"""The real llama.cpp server with a small real model, as a unit's program; on a simulated card it holds memory.

python3 llama_on_a_card.py CARD --port PORT
"""

import os
import signal
import sys
from pathlib import Path

import xllamacpp

from gpusupervisor.simulation.engines.vram import Vram
from tests.engines.real_llama import model_file

HOLDS = 4 << 30
"""Bytes on the card; the model itself lies in system memory."""


def main() -> None:
    """Serve until SIGTERM."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    card, port = Path(sys.argv[1]), int(sys.argv[sys.argv.index("--port") + 1])
    parameters = xllamacpp.CommonParams()
    parameters.model.path = model_file()
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = port
    parameters.n_ctx = 512
    parameters.n_parallel = 1
    parameters.n_gpu_layers = 0
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.endpoint_slots = parameters.endpoint_props = True
    server = xllamacpp.Server(parameters)
    vram = Vram(card)
    vram.hold(HOLDS)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    signal.sigwait({signal.SIGTERM})
    vram.hold(0)
    os._exit(0)  # as a server that is told to end does: without waiting for idle connections


if __name__ == "__main__":
    main()
