"""When a sweep must stop. Pure."""

from gpusupervisor.autotune.curve import Look

THROTTLES = ("hw-slowdown", "hw-thermal-slowdown", "sw-thermal-slowdown", "hw-power-brake")
"""Clocks are held down by heat or by the board. "sw-power-cap" is none of them: it is what a lower limit does."""


def reason_to_stop(look: Look, hottest: int) -> str:
    """Why not to go on; empty when nothing speaks against it. hottest: degrees at which to stop."""
    if look.xids:
        return f"the GPU reported Xid {look.xids[0]}"
    if look.temperature is None:
        return "the GPU does not (or no longer) report its temperature"
    if look.temperature >= hottest:
        return f"the GPU became as hot as {hottest} °C"
    throttles = [reason for reason in THROTTLES if reason in look.reasons]
    return f"the GPU slowed itself down ({', '.join(throttles)})" if throttles else ""
