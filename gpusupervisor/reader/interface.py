"""The reader's interface; `dbus/org.gpusupervisor1.Reader.xml` says what each member means."""

from gpusupervisor.bus.declare import Interface, method
from gpusupervisor.bus.names import READER_NAME

READER = Interface(
    READER_NAME,
    methods=(
        method("Facts", "processes:a(ut)", "facts:aa{sv}"),
        method("Residency", "tenant:s", "models:aa{sv} about:a{sv}"),
        method("BeginWarmUp", "tenant:s model:s", "total:t"),
        method("WarmPart", "tenant:s model:s position:t most:t", "position:t stopped:s"),
    ),
    signals=(),
)
