"""Following a job to its end."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

from dbus_fast import Message

from gpusupervisor.cli import render
from gpusupervisor.cli.client import BUS_NAME, Client

JOB = f"{BUS_NAME}.Job"
LOOK_AFTER = 5.0
"""Seconds without a signal after which the job is looked at: the service may have ended."""


async def follow(client: Client, signals: AsyncIterator[Message], job: str) -> Mapping[str, Any]:
    """Tell how far it is until it has ended; its properties then."""
    told = ""
    shown = await client.properties(job, JOB)
    news = asyncio.ensure_future(anext(signals))
    try:
        while shown["State"] == "running":
            line = f"{shown['Progress']:3} %  {render.safe(shown['Detail'])}"
            if line != told:
                told = line
                print(line, file=sys.stderr, flush=True)
            done, _ = await asyncio.wait({news}, timeout=LOOK_AFTER)
            about_it = not done
            if done:
                about_it = news.result().path == job
                news = asyncio.ensure_future(anext(signals))
            if about_it:
                shown = await client.properties(job, JOB)
    finally:
        news.cancel()
        await asyncio.gather(news, return_exceptions=True)
    return shown


async def cancel(client: Client, job: str, meanwhile: str) -> Mapping[str, Any]:
    """Have it end, and wait until it has; its properties then. meanwhile: what happens, for people to read."""
    print(f"cancelling; {meanwhile}", file=sys.stderr, flush=True)
    shown = await client.properties(job, JOB)
    if shown["State"] == "running":
        await client.call("Cancel", path=job, interface=JOB)
    while shown["State"] == "running":
        await asyncio.sleep(0.1)
        shown = await client.properties(job, JOB)
    return shown
