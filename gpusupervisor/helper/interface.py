"""The helper's interface; `dbus/org.gpusupervisor1.Helper.xml` says what each member means."""

from gpusupervisor.bus.declare import Interface, method, signal
from gpusupervisor.bus.names import HELPER_NAME

HELPER = Interface(
    HELPER_NAME,
    methods=(
        method("State", outputs="gpus:a{sa{sv}}"),
        method("ReadSensors", "gpu:s", "sensors:a{sv}"),
        method("SetFan", "gpu:s fan:u mode:s percent:u points:a(uu) options:a{sv}"),
        method("TryProfile", "gpu:s profile:s confirm_usec:t", "results:aa{sv}"),
        method("TryPoint", "gpu:s profile:s within_usec:t", "results:aa{sv}"),
        method("Confirm", "gpu:s"),
        method("Revert", "gpu:s", "results:aa{sv}"),
        method("ApplyProfile", "gpu:s profile:s", "results:aa{sv}"),
        method("ResetProfile", "gpu:s", "results:aa{sv}"),
        method("CheckDrift", "gpu:s", "verdicts:aa{sv}"),
        method("Detach", "gpu:s"),
        method("Attach", "gpu:s"),
        method("ReleaseUnit", "tenant:s", "unit:s action:s"),
    ),
    signals=(
        signal("Changed", "gpu:s"),
        signal("DriftDetected", "gpu:s item:s details:a{sv}"),
        signal("DriftRepaired", "gpu:s item:s details:a{sv}"),
        signal("DriftContested", "gpu:s item:s details:a{sv}"),
        signal("DriftEnded", "gpu:s item:s details:a{sv}"),
        signal("TrialEnded", "gpu:s end:s reason:s results:aa{sv}"),
        signal("FanAlert", "gpu:s cause:s text:s"),
    ),
)
