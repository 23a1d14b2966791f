"""The exit codes of every command, and the exception that carries one."""

DONE = 0
FAILED = 1
WRONG_USE = 2
NOT_RUNNING = 3
NOT_ALLOWED = 4
PARTIAL = 5
INTERRUPTED = 130

MEANINGS = {
    DONE: "done",
    FAILED: "it failed, the service refused, or what was checked is not ok",
    WRONG_USE: "wrong use of the command line",
    NOT_RUNNING: "the service is not running or cannot be reached",
    NOT_ALLOWED: "not allowed",
    PARTIAL: "it works, but only in part (verify)",
    INTERRUPTED: "interrupted (Ctrl-C)",
}


class CommandFailed(Exception):  # noqa: N818  (the name says what happened)
    """What a command tells on standard error before it ends with an exit code; nothing is told when it is empty."""

    def __init__(self, text: str, exit_code: int = FAILED) -> None:
        super().__init__(text)
        self.exit_code = exit_code
