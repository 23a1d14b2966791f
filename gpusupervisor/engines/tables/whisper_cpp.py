"""whisper.cpp's whisper-server: flags and one variable (examples/server/server.cpp of v1.9.3), told by no API."""

from gpusupervisor.engines.table import Call, Grammar, Known, Table
from gpusupervisor.engines.tables.common import GGML

TABLE = Table(
    engine="whisper.cpp",
    checked_against="v1.9.3",
    grammar=Grammar(equals=False),
    settings=(
        Known("--model", "this model is held in VRAM until its unit is stopped", flags=("-m", "--model")),
        Known("--no-gpu", "it works on the CPU and holds no VRAM", flags=("-ng", "--no-gpu"), takes="nothing"),
        Known(  # flash attention is the default since v1.8
            "--no-flash-attn",
            "it needs more VRAM while it works",
            flags=("-nfa", "--no-flash-attn"),
            unset_by=("-fa", "--flash-attn"),
            takes="nothing",
        ),
        Known(
            "--processors",
            "a recording is cut into this many parts that run at once: each needs VRAM of its own",
            flags=("-p", "--processors"),
        ),
        Known("--device", "the GPU that it uses", flags=("-dev", "--device"), variables=("WHISPER_ARG_DEVICE",)),
        *GGML,
    ),
    calls=(Call("/health"),),  # since v1.7.5; only whether it is there
)
