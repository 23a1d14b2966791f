"""A tenant definition: an application described as data.

The values here are what `schema.py` makes of a TOML or JSON file. Bytes are int; durations are microseconds
(int) or `INFINITY`; expressions are JMESPath source text that the schema has compiled once to check it.
"""

from dataclasses import dataclass
from typing import Literal

from gpusupervisor.clock import UNKNOWN as INFINITY
from gpusupervisor.engine_http import Header

WhenBusy = Literal["deferred", "refused", "destructive"]
ModelLayout = Literal["ollama", "files"]
ENGINES = (
    "ollama", "comfyui", "llama.cpp", "llama-swap", "vllm", "sglang", "localai", "lm-studio", "automatic1111",
    "invokeai", "tabbyapi", "koboldcpp", "text-generation-webui", "speaches", "whisper.cpp",
    "lemonade",
)  # fmt: skip
"""Engines whose API and configuration are known."""
NEEDS_AUTO = "auto"
"""`needs-vram = "auto"`: what the engine itself reports it wants, else the most that it held while it worked."""


@dataclass(frozen=True, slots=True)
class Match:
    """How a tenant's processes are recognised: any of; units beat containers beat executables beat command lines.

    All patterns are shell globs (fnmatch, case-sensitive).
    """

    units: tuple[str, ...] = ()
    """System units."""
    user_units: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    """Container names, where they are known, ids, or cgroup path globs, e.g. "*/docker-*.scope" (compared with the
    whole cgroup path)."""
    executables: tuple[str, ...] = ()
    """Compared with /proc/PID/exe or, where that is hidden, with argv[0]; also of every ancestor."""
    command_lines: tuple[str, ...] = ()
    """Compared with the arguments joined by single spaces; also with an interpreter's script at its full path, where
    the folder it was started in is known ("python main.py" in /opt/app is "python /opt/app/main.py")."""
    comms: tuple[str, ...] = ()
    """Kernel task names; last resort, for processes that rewrite their command line (VLLM::EngineCor)."""
    graphics_only: bool = False
    """Only processes of the graphics list count (browsers' GPU processes, compositors), and not their children:
    a compositor starts everything else on a desktop."""
    runners: tuple[str, ...] = ()
    """Command lines of the workers that a server of this tenant starts. One below its server is the tenant's,
    whatever its executable; one whose server is gone is an orphan."""
    all_below: bool = False
    """Whatever its servers (by executables or command lines) start is the tenant's: they alone can be asked for it."""
    declared: tuple[str, ...] = ()
    """Names of system units that root has declared to be this tenant's: they beat everything else. No key of a file."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a tenant's own HTTP API is."""

    url: str
    """Scheme, host, port, e.g. "http://127.0.0.1:11434"."""
    port_flags: tuple[str, ...] = ()
    """Command-line flags of its processes that name the real port, e.g. ("--port",): the last one seen wins."""
    host_flags: tuple[str, ...] = ()
    """Command-line flags that name the address it listens on: a host, or a host and a port (":9292")."""
    tls_flags: tuple[str, ...] = ()
    """Command-line flags with which it speaks TLS, e.g. ("--ssl-key-file",)."""
    prefix_flags: tuple[str, ...] = ()
    """Command-line flags that name a path which all paths of its API begin with."""
    host_variable: str = ""
    """Environment variable of its processes that names the address it listens on, e.g. "OLLAMA_HOST"; flags win."""
    port_variable: str = ""
    """Environment variable that names the port alone, e.g. "LLAMA_ARG_PORT"."""
    tls_variable: str = ""
    """Environment variable that, when it is not empty, makes it speak TLS, e.g. "LLAMA_ARG_SSL_KEY_FILE"."""
    prefix_variable: str = ""
    """Environment variable that names what all paths of its API begin with, e.g. "LLAMA_ARG_API_PREFIX"."""
    own_port: bool = False
    """Nobody else is to be expected at the shipped port, so that it is asked there even while it holds no VRAM."""
    headers: tuple[Header, ...] = ()
    """Sent with every request, keys only to the address that the file names."""
    user: str = ""
    """Account, by name or number, whose socket may speak for the tenant and be sent its keys, beside root's and those
    of its processes."""
    tls_ca: str = ""
    """Absolute path of the certificates that may have signed the engine's; empty: the system's."""
    tls_fingerprint: str = ""
    """SHA-256 of the engine's certificate, 64 lower-case hex digits; empty: not pinned."""


@dataclass(frozen=True, slots=True)
class ProbeSpec:
    """One probe of a tenant's activity.

    kind: "ollama", "comfyui" (named probes), "http", "prometheus", "vram", "sm-utilization", "cpu".
    """

    kind: str
    get: str = ""
    """http, prometheus: path at the endpoint."""
    first: str = ""
    """http: a passive path asked first; when `asleep_when` is true of its answer, `get` is not sent."""
    asleep_when: str = ""
    """http: JMESPath over the answer of `first`; true means asleep, hence idle."""
    sleep_flag: str = ""
    """http: a process with this flag goes to sleep by itself unless it is asked `get`: then that is left out."""
    busy_when: str = ""
    """http: JMESPath; true = busy, false = idle, anything else (null too) = unknown."""
    stirring_when: str = ""
    """http: JMESPath, asked before `busy_when`; true = something happens that is no work, e.g. it stops a model."""
    event: str = ""
    """http: `get` answers a stream of server-sent events without an end; the first of this type is judged."""
    worker_port_flag: str = ""
    """http: each of its processes is asked, at the port of 127.0.0.1 that this flag of its command line names."""
    busy_metrics: tuple[str, ...] = ()
    """prometheus: metric names; busy when the sum of any is above 0, unknown when none is there."""
    idle_after: int = 0
    """vram, sm-utilization, cpu: idle only after quiet for this long (microseconds)."""
    threshold: float = 0.0
    """sm-utilization, cpu: percent at or below which it is quiet; vram: bytes of growth that are no sign of life."""
    timeout: int = 2_000_000
    """http, prometheus: deadline in microseconds."""


@dataclass(frozen=True, slots=True)
class ActivitySpec:
    """How the probes make one verdict."""

    probes: tuple[ProbeSpec, ...]
    """The first is the authority on whether it rests; any that sees life protects the tenant from being asked."""
    stuck_after: int | None = None
    """A tenant whose engine reports work that its processes do not show for this long is `stuck` (microseconds). None:
    30 s while a card of its is full, 2 min otherwise."""

    @property
    def asks_api(self) -> bool:
        """Whether a probe asks the tenant's API, so that whether that answers is seen."""
        return any(probe.kind not in ("vram", "sm-utilization", "cpu") for probe in self.probes)


@dataclass(frozen=True, slots=True)
class ForEach:
    """A list of items to release one by one."""

    get: str
    items: str
    """JMESPath to a list of strings or numbers."""


@dataclass(frozen=True, slots=True)
class VersionRequirement:
    """A release that misbehaves in older engines is not sent to them."""

    get: str
    value: str
    """JMESPath to the version string in the answer of `get`."""
    minimum: str


@dataclass(frozen=True, slots=True)
class Condition:
    """A release that would harm, or be in vain, the way the engine is set up is not sent."""

    get: str
    when: str
    """JMESPath over the answer of `get`; must be true."""


@dataclass(frozen=True, slots=True)
class ReleaseMethod:
    """One rung of the ladder by which a tenant is asked for its VRAM."""

    method: Literal["http", "unit"]
    verb: str = ""
    """http: "GET", "POST", "DELETE", "PUT"."""
    path: str = ""
    """May contain {item}, percent-encoded when filled in."""
    query: tuple[tuple[str, str], ...] = ()
    json: object = None
    """Body; every string in it that contains {item} has it filled in."""
    headers: tuple[Header, ...] = ()
    for_each: ForEach | None = None
    success_when: str = ""
    """JMESPath over the JSON answer; must be true. Empty: any 2xx answer counts as accepted."""
    when_busy: WhenBusy = "destructive"
    """What the engine does with it while it works: `deferred` until done, `refused`, or `destructive`."""
    version: VersionRequirement | None = None
    only_if: Condition | None = None
    settle: int = 10_000_000
    """How long the memory may take to come back (microseconds)."""
    timeout: int = 10_000_000
    """Deadline of one request (microseconds)."""
    unit: str = ""
    """unit: the system service that is stopped or restarted, by the helper, which reads it from root's file itself."""
    user_unit: str = ""
    """unit: or a service of a user's service manager."""
    user: str = ""
    """unit: that user, by name or number."""
    action: Literal["stop", "restart"] = "stop"


@dataclass(frozen=True, slots=True)
class ModelFolders:
    """Where an engine's model files are."""

    directories: tuple[str, ...]
    """Absolute paths; those that are not there have no models."""
    layout: ModelLayout = "files"
    """`ollama`: manifests that name blobs; `files`: weights by the names of their files."""
    warm_by_itself: bool = False
    """Models that are used daily are read into RAM without being asked to."""


@dataclass(frozen=True, slots=True)
class TenantDefinition:
    """An application as data."""

    id: str
    """File name without suffix; [A-Za-z0-9._:@-]{1,64}."""
    title: str
    match: Match
    engine: str = ""
    """Name of the engine whose API and configuration we can read; empty for plain tenants."""
    priority: int = 50
    """0 to 100: how much its work matters. A tenant is only asked on behalf of one of higher priority."""
    idle_priority: int | None = None
    """What its memory counts while it is idle; None = half of `priority`, so that equals yield to each other."""
    protected: bool = False
    """Never in a plan."""
    per_instance: bool = False
    """Each unit, container or port that matches is a tenant of its own."""
    endpoint: Endpoint | None = None
    endpoint_is_usual: bool = False
    """The endpoint's URL is the shipped one, which nobody has chosen for this machine: a process that listens
    elsewhere is asked there."""
    is_implied: bool = False
    """An instance without a file of its own: its address is one that a process has named."""
    activity: ActivitySpec | None = None
    """None: activity is always unknown, so never released."""
    release: tuple[ReleaseMethod, ...] = ()
    models: ModelFolders | None = None
    """None: nobody says where they are, so nothing is known of them in RAM."""
    needs_vram: int | None = None
    """Bytes a busy tenant needs in total; None = "auto", what the engine reports or was learned."""
    needs_at_most: int | None = None
    """Bytes that a user's unit asks for: room is never made for more, whatever is measured. No key of a file."""
    floor: int = 0
    """Bytes it keeps after a release, until a release has shown the real figure."""
    spreads: bool = False
    """Its engine divides one model among several cards, so that room on any of them helps it."""
    less_helps: bool = False
    """As beneficiary: a plan that cannot reach its need is still worth executing."""
    reload_spilled: bool = False
    """Unload a model that spilled into system memory, once it is idle and would fit whole: its next request loads it
    anew."""
    release_pinned: bool = False
    """Release also what the user pinned (Ollama keep_alive = -1)."""
    idle_release_after: int = INFINITY
    """Release after this long idle, without any beneficiary (microseconds)."""
    min_residency: int = 60_000_000
    """Never asked sooner after its memory came (microseconds)."""
    cooldown: int = 30_000_000
    """Not asked again sooner after a release was tried (microseconds)."""
    release_budget: int = 12
    """Releases within an hour at most."""

    @property
    def priority_when_idle(self) -> int:
        """The priority that counts while it is idle."""
        return self.priority // 2 if self.idle_priority is None else self.idle_priority
