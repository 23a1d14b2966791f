"""Questions to a person at the terminal."""

import asyncio
import sys


async def ask(question: str) -> str:
    """The line that is typed, in lower case and without blanks around it. Raises EOFError at the end of the input.

    It is asked on standard error: standard output may be JSON.

    Ctrl-C ends it as it ends everything that is waited for; input() would only note it, and read on.
    """
    print(question, end="", file=sys.stderr, flush=True)
    typed = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), typed.set)
    try:
        await typed.wait()
    except asyncio.CancelledError:
        print(file=sys.stderr)
        raise
    finally:
        loop.remove_reader(sys.stdin.fileno())
    line = sys.stdin.readline()
    if not line:
        print(file=sys.stderr)
        raise EOFError
    return line.strip().lower()
