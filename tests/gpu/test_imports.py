import subprocess
import sys

PROGRAM = """
import sys
import gpusupervisor.gpu.monitor
loaded = sorted(sys.modules)
print([name for name in loaded if name in ("pynvml", "psutil") or name.startswith("gpusupervisor.simulation")])
"""


def test_the_room_loads_neither_pynvml_nor_the_simulation_before_the_driver_is_asked() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
