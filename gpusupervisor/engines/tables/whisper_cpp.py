"""whisper.cpp's whisper-server: flags only."""

from gpusupervisor.engines.table import LLAMA_CPP, Known, Table
from gpusupervisor.engines.tables.common import GGML

TABLE = Table(
    engine="whisper.cpp",
    grammar=LLAMA_CPP,
    settings=(
        Known("--model", "this model is held from the start until its unit is stopped", flags=("-m", "--model")),
        Known("--no-gpu", "it works on the CPU and holds no VRAM", flags=("-ng", "--no-gpu"), takes="nothing"),
        Known(
            "--flash-attn",
            "it needs less VRAM",
            flags=("-fa", "--flash-attn"),
            unset_by=("-nfa", "--no-flash-attn"),
            takes="nothing",
        ),
        Known("--processors", "the work is cut into so many parts that run at once", flags=("-p", "--processors")),
        Known("--device", "the GPU that it uses", flags=("-dev", "--device")),
        *GGML,
    ),
)
