"""The JSON of `setup`. Pure."""

from collections.abc import Iterable

from gpusupervisor.cli.setup.findings import Findings
from gpusupervisor.cli.setup.front_writing import FrontItem
from gpusupervisor.cli.setup.item import Item
from gpusupervisor.cli.setup.proposals import Advice
from gpusupervisor.cli.shapes import Shape


def shape(findings: Findings, advice: Advice, items: Iterable[Item], proxies: Iterable[FrontItem]) -> Shape:
    """What was found, hints, and the proposals and proxies with what became of them."""
    return {
        "driver": findings.driver,
        "gpus": list(findings.gpus),
        "tenants": [
            {"id": each.id, "engine": each.engine, "holding": each.holding, "activity": each.activity,
             "endpoint": each.endpoint, "reachable": each.reachable}
            for each in findings.tenants.values()
        ],
        "units": [
            {"unit": each.name, "user": each.of_user, "state": each.state, "tenant": each.tenant}
            for each in findings.units
        ],
        "strangers": [
            {"pid": each.pid, "name": each.name, "used": each.used, "executable": each.executable, "unit": each.unit,
             "user_unit": each.user_unit, "container": each.container}
            for each in findings.strangers
        ],
        "hints": list(advice.hints),
        "proposals": [
            {"tenant": each.proposal.tenant, "reasons": list(each.proposal.reasons), "file": str(each.file),
             "extends": each.before is not None, "text": each.text, "outcome": each.outcome, "detail": each.detail}
            for each in items
        ],
        "proxies": [
            {"tenant": each.front.tenant, "unit": each.front.unit, "listen": each.front.listen,
             "engine_port": each.front.port, "reason": each.front.reason,
             "files": [{"file": str(path), "text": text} for path, text in each.files.items()],
             "outcome": each.outcome, "detail": each.detail}
            for each in proxies
        ],
    }  # fmt: skip
