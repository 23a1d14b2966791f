"""Questions to a person at the terminal."""

import signal


def ask(question: str) -> str:
    """The line that is typed, in lower case and without blanks around it. Raises EOFError at the end of the input.

    Ctrl-C ends it at once: asyncio's own handler would only note it, and wait on for the line.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return input(question).strip().lower()
    finally:
        signal.signal(signal.SIGINT, before)
