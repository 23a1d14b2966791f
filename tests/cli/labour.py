"""Long work that a test leads by the hand, on the service of the test."""

import asyncio

from gpusupervisor.autotune.curve import Tuning
from gpusupervisor.errors import SupervisorError
from gpusupervisor.jobs import Report


class Labour:
    """Runs until it is told to finish or fail, or is cancelled."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.finish = asyncio.Event()
        self.failure: SupervisorError | None = None
        self.cancelled = asyncio.Event()
        self.clean = asyncio.Event()
        """Holds back what it has to undo when it is cancelled."""
        self.clean.set()
        self.report: Report

    async def __call__(self, report: Report) -> object:
        self.report = report
        self.begun.set()
        try:
            await self.finish.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            await self.clean.wait()
            raise
        if self.failure:
            raise self.failure
        return Tuning("token", 3)
