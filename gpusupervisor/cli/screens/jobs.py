"""Long work."""

import json
import pwd

from rich.console import RenderableType
from rich.text import Text

from gpusupervisor.cli.screens import autotune, models, warm
from gpusupervisor.cli.screens.common import QUIET, STRONG, Grid, moment, table, text, word
from gpusupervisor.cli.shapes import Shape
from gpusupervisor.cli.text import brief, safe_lines


def all_jobs(jobs: list[Shape]) -> Grid | Text:
    """One line a job."""
    if not jobs:
        return Text("No job runs, and none has ended lately.")
    rows = [
        (
            str(j["id"]),
            text(j["kind"], STRONG),
            word(j["state"]),
            f"{j['progress']} %",
            moment(j["started_at"]),
            what(j),
        )
        for j in jobs
    ]
    return table(("JOB", "KIND", "STATE", "DONE", "BEGAN", "WHAT"), rows, right=(0, 3))


def what(job: Shape) -> Text:
    """What it works on, and how far it is."""
    return text(brief(": ".join(part for part in (job["target"], job["detail"]) if part)))


def details(job: Shape) -> list[RenderableType]:
    """One job with its result."""
    facts = [
        ("state", Text.assemble(word(job["state"]), f", {job['progress']} %")),
        ("target", text(job["target"])),
        ("detail", text(job["detail"])),
        ("began", Text(f"{moment(job['started_at'])}, {_by(job['started_by'])}")),
        ("ended", Text(moment(job["ended_at"]) if job["ended_at"] else "")),
    ]
    heading = Text.assemble((f"job {job['id']}  ", STRONG), text(job["kind"], STRONG))
    screen: list[RenderableType] = [heading, table((), [(Text(n, QUIET), value) for n, value in facts if value.plain])]
    return [*screen, "", *_result(job)] if job["result"] else screen


def _result(job: Shape) -> list[RenderableType]:
    """As the command shows it that had started the job; of a kind that is not known, the result as it is."""
    result = job["result"]
    match job["kind"]:
        case "autotune" if "curve" in result:
            return autotune.curve(result)
        case "load-model" if "taken" in result:
            return [models.loaded(result)]
        case "warm-up" if "took" in result:
            return [warm.result(result)]
    return [Text(safe_lines(json.dumps(result, indent=2, ensure_ascii=False)))]


def _by(uid: int | None) -> str:
    """What started a job: the service itself, or a user by name; by number where no such user is known here."""
    if uid is None:
        return "by itself"
    try:
        return f"started by {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"started by uid {uid}"
