"""Simulated engines: real processes that serve the engines' real HTTP and hold VRAM on a simulated card.

    python -m gpusupervisor.simulation.engines.ollama --card DIR --port 11434 --model smollm2=6G
    python -m gpusupervisor.simulation.engines.comfyui --card DIR --port 8188
    python -m gpusupervisor.simulation.engines.third_app --card DIR --port 9000 --hold 4G
    python -m gpusupervisor.simulation.engines.desktop --card DIR --hold 900M

Each prints "listening on 127.0.0.1:PORT" (the desktop: "holding") once it is ready; port 0 takes a free one. They
are driven over their own HTTP only, end cleanly on SIGTERM, and leave nothing but a dead PID on SIGKILL.
"""
