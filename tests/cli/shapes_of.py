"""Shapes as the commands have them, for screens without a service."""

from typing import Any

from gpusupervisor.cli.shapes import Shape

GIB = 1024**3
MIB = 1024**2
EVERY_SCRIPT = (
    "ollama",
    "komfyui-日本語サーバー",
    "מערכת-תמונות",
    "خادم-النماذج",
    "модель",
    "ตัวแบบ",
    "हिन्दी-मॉडल",
    "x" * 60,
)


def gpu(number: int = 1, **more: Any) -> Shape:
    base: Shape = {
        "uuid": f"GPU-{number}", "name": "NVIDIA GeForce RTX 4090", "pci_bus_id": f"0000:0{number}:00.0", "state": "ok",
        "state_detail": "", "memory_total": 24 * GIB, "memory_used": 18 * GIB, "memory_free": 5 * GIB + 512 * MIB,
        "memory_reserved": 512 * MIB, "unattributed": 100 * MIB, "tenant_holdings": {}, "unmanaged": [],
        "reservations": [], "plan": "", "attribution_problem": "", "unreclaimable": {}, "memory_source": "nvml-v2",
    }  # fmt: skip
    return {**base, **more}


def tenant(name: str = "ollama", **more: Any) -> Shape:
    base: Shape = {
        "id": name, "title": name.title(), "engine": "", "priority": 50, "idle_priority": 25, "protected": False,
        "activity": "idle", "activity_reason": "no request is running", "activity_since": 1_790_000_000_000_000,
        "activity_evidence": ["http: idle: no model is loaded"], "impact": "", "remedy": "", "holding": 12 * GIB,
        "holdings": {"GPU-1": 12 * GIB}, "holdings_incomplete": False, "need": None, "need_at_least": 0,
        "need_source": "", "shortfall": 0,
        "starved": False, "starved_reason": "it is not busy", "floor": 512 * MIB, "reclaimable": 0,
        "release_method": "http", "processes": [],
    }  # fmt: skip
    return {**base, **more}


def health(*checks: tuple[str, str, str, str], state: str = "ok", summary: str = "healthy") -> Shape:
    """checks: id, state, summary, remedy."""
    keys = ("id", "state", "summary", "remedy")
    return {
        "state": state,
        "summary": summary,
        "checks": [{"impact": "", **dict(zip(keys, c, strict=True))} for c in checks],
    }


def status(gpus: list[Shape], tenants: list[Shape], **more: Any) -> Shape:
    base: Shape = {
        "version": "0.1.0", "automatic": True, "status": "", "driver": "ok", "driver_version": "580.95.05",
        "gpus": gpus, "tenants": tenants, "health": health(), "jobs": [],
    }  # fmt: skip
    return {**base, **more}


def job(number: int = 3, **more: Any) -> Shape:
    base: Shape = {
        "id": number, "kind": "autotune", "target": "GPU-1", "state": "running", "progress": 42,
        "detail": "point 4 of 9: 280 W", "started_by": 1000, "started_at": 1_790_000_000_000_000, "ended_at": None,
        "result": {},
    }  # fmt: skip
    return {**base, **more}


STARVED = status(
    [
        gpu(
            tenant_holdings={"comfyui": 5 * GIB, "ollama": 12 * GIB},
            unmanaged=[{"pid": 4242, "name": "train.py", "gpu": "GPU-1", "used": GIB}],
            reservations=[{"tenant": "comfyui", "size": 3 * GIB, "expires_at": 1_790_000_000_000_000}],
            plan="plan-7",
        )
    ],
    [
        tenant(activity_reason="no request is running and no model was used for 12 min", reclaimable=11 * GIB),
        tenant(
            "comfyui", activity="busy", activity_reason="its queue has 2 prompts, one runs", holding=5 * GIB,
            need=14 * GIB, shortfall=4 * GIB, starved=True,
            starved_reason="it needs 14.0 GiB and 4.0 GiB are missing; train.py (pid 4242) is unmanaged",
        ),
        tenant("llama-server", activity="unknown", activity_reason="its API has not answered yet", holding=0),
        tenant("vllm", activity="absent", holding=0),
    ],
    health=health(
        ("driver", "ok", "driver 580.95.05 answers", ""),
        ("tenant-comfyui", "degraded", "comfyui does not answer at http://127.0.0.1:8188", "systemctl status comfyui"),
        ("helper", "failed", "gpusupervisor-helper does not start", "journalctl -u gpusupervisor-helper"),
        state="failed", summary="gpusupervisor-helper does not start, and one more",
    ),
    jobs=[job()],
)  # fmt: skip
NO_DRIVER = status(
    [], [tenant("ollama", activity="absent", holding=0)], automatic=False, driver="missing", driver_version="",
    health=health(
        ("driver", "failed", "libnvidia-ml.so.1 is not found", "install the NVIDIA driver"), state="failed", summary="x"
    ),
)  # fmt: skip
EIGHT = status(
    [
        gpu(n, tenant_holdings={"vllm": 2 * n * GIB} if n else {}, memory_used=2 * n * GIB, unattributed=0,
            memory_free=(24 - 2 * n) * GIB - 512 * MIB)
        if n != 5
        else gpu(n, state="lost", state_detail="fell off the bus")
        for n in range(8)
    ],
    [tenant("vllm", activity="busy", activity_reason="12 requests run", holding=46 * GIB)],
)  # fmt: skip
FORTY = status(
    [gpu(tenant_holdings={f"tenant-{n}": (n + 1) * 20 * MIB for n in range(40)}, memory_used=16 * GIB)],
    [tenant(f"tenant-{n}", holding=(n + 1) * 20 * MIB) for n in range(40)],
)
SCRIPTS = status(
    [gpu(tenant_holdings={name: (8 - n) * GIB // 2 for n, name in enumerate(EVERY_SCRIPT)})],
    [tenant(name, holding=(8 - n) * GIB // 2) for n, name in enumerate(EVERY_SCRIPT)],
)
"""Names of every script."""
