"""LM Studio: set in its own window, or by `lms`; neither its command line nor its environment says anything.

It is closed: that much is in its documentation (https://lmstudio.ai/docs, lmstudio-ai/docs of 2026-04). What its server
is set to, its API does not tell; each loaded model's own settings are in /api/v1/models.
"""

from gpusupervisor.engines.table import EXACT, Call, Table
from gpusupervisor.engines.tables.common import CUDA_VISIBLE_DEVICES

TABLE = Table(
    engine="lm-studio",
    grammar=EXACT,
    settings=(CUDA_VISIBLE_DEVICES,),
    calls=(Call("/v1/models"),),  # the list alone loads nothing
)
