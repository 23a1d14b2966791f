"""The interfaces, member by member; `dbus/*.xml` says what each member means, and a test holds the two equal."""

from gpusupervisor.bus.declare import Interface, Property, method, signal
from gpusupervisor.bus.names import BUS_NAME

MANAGER = Interface(
    f"{BUS_NAME}.Manager",
    methods=(
        method("PlanRelease", "gpu:s tenant:s size:t", "plan:a{sv}"),
        method("MakeRoom", "gpu:s tenant:s size:t", "result:a{sv}"),
        method("Reload"),
        method("SetAutomatic", "enabled:b"),
        method("CheckDefinition", "name:s text:s", "problems:as"),
        method("InspectProcess", "pid:u", "process:a{sv}"),
        method("Record", "after:t", "film:(ast)"),
    ),
    properties=(
        Property("Version", "s", "const"),
        Property("Automatic", "b"),
        Property("Status", "s"),
        Property("Driver", "s"),
        Property("DriverVersion", "s"),
        Property("Counters", "a{st}", "false"),
    ),
    signals=(
        signal("ReleasePlanned", "plan_id:s plan:a{sv}"),
        signal("ReleaseStarted", "plan_id:s plan:a{sv}"),
        signal("ReleaseStep", "plan_id:s tenant:s outcome:s freed:t details:a{sv}"),
        signal("ReleaseFinished", "plan_id:s outcome:s freed:t details:a{sv}"),
    ),
)

TENANTS = Interface(
    f"{BUS_NAME}.Tenants",
    methods=(
        method("List", outputs="tenants:as"),
        method("Get", "tenant:s", "properties:a{sv}"),
        method("Release", "tenant:s", "result:a{sv}"),
        method("Explain", "tenant:s", "definition:s"),
        method("Recognise", "processes:aa{sv}", "recognised:aa{sv}"),
    ),
)

TENANT = Interface(
    f"{BUS_NAME}.Tenant",
    methods=(method("Release", outputs="result:a{sv}"),),
    properties=(
        Property("Id", "s", "const"),
        Property("Title", "s"),
        Property("Engine", "s"),
        Property("Priority", "u"),
        Property("IdlePriority", "u"),
        Property("Protected", "b"),
        Property("Activity", "s"),
        Property("ActivityReason", "s"),
        Property("ActivityEvidence", "as", "false"),
        Property("ActivityObservedAt", "t", "false"),
        Property("ActivitySince", "t"),
        Property("Impact", "s"),
        Property("Remedy", "s"),
        Property("Holding", "t", gauge=True),
        Property("Holdings", "a{st}", gauge=True),
        Property("HoldingsIncomplete", "b"),
        Property("Need", "t", gauge=True),
        Property("NeedAtLeast", "t", gauge=True),
        Property("NeedSource", "s"),
        Property("Shortfall", "t", gauge=True),
        Property("Starved", "b"),
        Property("StarvedReason", "s"),
        Property("Floor", "t", gauge=True),
        Property("Reclaimable", "t", gauge=True),
        Property("IdleSince", "t"),
        Property("ReleaseMethod", "s"),
        Property("Processes", "aa{sv}", "invalidates", gauge=True),
    ),
)

ENGINES = Interface(
    f"{BUS_NAME}.Engines",
    methods=(
        method("List", outputs="engines:as"),
        method("Get", "engine:s", "properties:a{sv}"),
        method("Models", "engine:s", "models:aa{sv}"),
        method("LoadModel", "engine:s model:s", "job:o"),
        method("UnloadModel", "engine:s model:s", "result:a{sv}"),
        method("WarmPlan", outputs="models:aa{sv}"),
        method("WarmModel", "engine:s model:s", "job:o"),
    ),
)

ENGINE = Interface(
    f"{BUS_NAME}.Engine",
    methods=(
        method("LoadModel", "model:s options:a{sv}", "job:o"),
        method("UnloadModel", "model:s", "result:a{sv}"),
        method("WarmModel", "model:s options:a{sv}", "job:o"),
    ),
    properties=(
        Property("Id", "s", "const"),
        Property("Engine", "s"),
        Property("Endpoint", "s"),
        Property("Reachable", "b"),
        Property("Version", "s"),
        Property("Detail", "s"),
        Property("Unit", "s"),
        Property("Settings", "aa{sv}", "invalidates"),
        Property("SettingsCheckedAgainst", "s"),
        Property("SettingsProblem", "s"),
        Property("Models", "aa{sv}", "invalidates"),
        Property("ModelsProblem", "s"),
        Property("Capabilities", "as"),
        Property("Limits", "as"),
    ),
)

GPU = Interface(
    f"{BUS_NAME}.Gpu",
    methods=(method("Detach"), method("Attach")),
    properties=(
        Property("Uuid", "s", "const"),
        Property("Name", "s"),
        Property("PciBusId", "s"),
        Property("State", "s"),
        Property("StateDetail", "s"),
        Property("MemoryTotal", "t"),
        Property("MemoryUsed", "t", gauge=True),
        Property("MemoryFree", "t", gauge=True),
        Property("MemoryReserved", "t", gauge=True),
        Property("MemorySource", "s"),
        Property("MemorySampledAt", "t", "false"),
        Property("Unattributed", "t", gauge=True),
        Property("Unmanaged", "aa{sv}", "invalidates", gauge=True),
        Property("AttributionProblem", "s"),
        Property("TenantHoldings", "a{st}", gauge=True),
        Property("Reservations", "aa{sv}", "invalidates", gauge=True),
        Property("Plan", "s"),
        Property("Ceiling", "t", gauge=True),
        Property("FitSummary", "s"),
        Property("Unreclaimable", "a{st}", gauge=True),
    ),
)

FANS = Interface(
    f"{BUS_NAME}.Fans",
    methods=(
        method("SetAutomatic", "fan:u"),
        method("SetFixed", "fan:u percent:u"),
        method("SetCurve", "fan:u points:a(uu) options:a{sv}"),
    ),
    properties=(
        Property("Support", "s"),
        Property("SupportReason", "s"),
        Property("Minimum", "t"),
        Property("Maximum", "t"),
        Property("Control", "s"),
        Property("ControlReason", "s"),
        Property("Fans", "aa{sv}", "invalidates"),
        Property("ReadAt", "t", "false"),
    ),
    signals=(signal("Alert", "cause:s text:s"),),
)

PROFILE = Interface(
    f"{BUS_NAME}.Profile",
    methods=(
        method("Try", "profile:s confirm_usec:t", "results:aa{sv}"),
        method("Confirm"),
        method("Revert", outputs="results:aa{sv}"),
        method("Apply", "profile:s", "results:aa{sv}"),
        method("Reset", outputs="results:aa{sv}"),
        method("CheckDrift", outputs="verdicts:aa{sv}"),
        method("Autotune", "engine:s options:a{sv}", "job:o"),
    ),
    properties=(
        Property("Support", "s"),
        Property("SupportReason", "s"),
        Property("Capabilities", "aa{sv}", "invalidates"),
        Property("Profile", "s"),
        Property("Accepted", "s"),
        Property("Results", "aa{sv}", "invalidates"),
        Property("AppliedAt", "t"),
        Property("Phase", "s"),
        Property("Distrust", "s"),
        Property("Problem", "s"),
        Property("DriftState", "s"),
        Property("Drift", "aa{sv}", "invalidates"),
        Property("Trial", "s"),
        Property("TrialDeadline", "t"),
        Property("LastTrial", "s"),
        Property("LastTrialReason", "s"),
    ),
    signals=(
        signal("DriftDetected", "item:s details:a{sv}"),
        signal("DriftRepaired", "item:s details:a{sv}"),
        signal("DriftContested", "item:s details:a{sv}"),
        signal("DriftEnded", "item:s details:a{sv}"),
        signal("TrialEnded", "end:s reason:s results:aa{sv}"),
    ),
)

HEALTH = Interface(
    f"{BUS_NAME}.Health",
    properties=(
        Property("State", "s"),
        Property("Summary", "s"),
        Property("Checks", "aa{sv}", "invalidates"),
    ),
    methods=(method("Check", outputs="checks:aa{sv}"),),
    signals=(signal("Changed", "id:s old:s new:s check:a{sv}"),),
)

TELEMETRY = Interface(
    f"{BUS_NAME}.Telemetry",
    methods=(
        method("Query", "series:s gpu:s tenant:s from:t to:t count:u", "points:a(tttt)"),
        method("Series", outputs="series:a(ssstt)"),
        method("Events", "from:t to:t kind:s limit:u", "events:aa{sv}"),
        method("Learned", outputs="facts:aa{sv}"),
        method("Forget", "tenant:s kind:s", "forgotten:u"),
    ),
)

LOG_CONTROL = Interface(
    "org.freedesktop.LogControl1",
    properties=(
        Property("LogLevel", "s", "false", writable=True),
        Property("LogTarget", "s", "false"),
        Property("SyslogIdentifier", "s", "false"),
    ),
)
"""systemd's, see org.freedesktop.LogControl1(5)."""

JOBS = Interface(
    f"{BUS_NAME}.Jobs",
    methods=(
        method("List", outputs="jobs:au"),
        method("Get", "job:u", "properties:a{sv}"),
        method("Cancel", "job:u"),
    ),
)

JOB = Interface(
    f"{BUS_NAME}.Job",
    methods=(method("Cancel"),),
    properties=(
        Property("Id", "u", "const"),
        Property("Kind", "s", "const"),
        Property("Target", "s", "const"),
        Property("StartedBy", "u", "const"),
        Property("StartedAt", "t"),
        Property("State", "s"),
        Property("Progress", "u"),
        Property("Detail", "s"),
        Property("Result", "a{sv}", "invalidates"),
        Property("EndedAt", "t"),
    ),
    signals=(signal("Finished", "state:s detail:s result:a{sv}"),),
)

INTROSPECTABLE = Interface("org.freedesktop.DBus.Introspectable", methods=(method("Introspect", outputs="xml_data:s"),))
PEER = Interface(
    "org.freedesktop.DBus.Peer", methods=(method("Ping"), method("GetMachineId", outputs="machine_uuid:s"))
)
PROPERTIES = Interface(
    "org.freedesktop.DBus.Properties",
    methods=(
        method("Get", "interface_name:s property_name:s", "value:v"),
        method("GetAll", "interface_name:s", "properties:a{sv}"),
        method("Set", "interface_name:s property_name:s value:v"),
    ),
    signals=(signal("PropertiesChanged", "interface_name:s changed_properties:a{sv} invalidated_properties:as"),),
)
OBJECT_MANAGER = Interface(
    "org.freedesktop.DBus.ObjectManager",
    methods=(method("GetManagedObjects", outputs="objects:a{oa{sa{sv}}}"),),
    signals=(
        signal("InterfacesAdded", "object:o interfaces:a{sa{sv}}"),
        signal("InterfacesRemoved", "object:o interfaces:as"),
    ),
)
