"""The helper's interface; `dbus/org.gpusupervisor1.Helper.xml` says what each member means."""

from gpusupervisor.bus.declare import Interface, method
from gpusupervisor.bus.names import HELPER_NAME

HELPER = Interface(HELPER_NAME, methods=(method("Facts", "processes:a(ut)", "facts:aa{sv}"),))
