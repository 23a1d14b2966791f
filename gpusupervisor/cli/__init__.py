"""The command line: a D-Bus client that imports no other room but `quantities`.

How it is made, and how a command is added:

`commands/`  One module per group of commands. Each declares `COMMANDS`, a tuple of `registry.Command`: name, help,
             arguments (`registry.argument`, with what completes it), and the handler. `commands.GROUPS` says which
             module has which commands, so that only the one that is asked for is imported. These modules import
             neither rich nor dbus-fast at their top: a handler imports its screen when it needs it.
handler      `async def show(session: Session) -> int | None`: an exit code of `exits`, None for 0. It raises
             `exits.CommandFailed` to end with a text on standard error.
`session`    What a handler is given: `options` (argparse), `client`, `json` (whether --json was given),
             `emit(shape)` for JSON, `show(*renderables)` for people, `say(line)`, and `note(line)` for standard error.
`client`     One connection: `call(member, signature, body, path=, interface=)`, `objects()`,
             `properties(path, interface)`, `signals(path)`. Values come without variants.
`shapes`     D-Bus values -> the documented JSON: keys in snake_case, bytes, microseconds (times: of the realtime
             clock), null for what is not known. Screens draw from the same shapes.
`screens/`   Shapes -> rich renderables; pure. Only these, `terminal` and `following` import rich.
`text`       `safe` and `safe_lines`: whatever others wrote passes through them before it is shown.
`following`  `follow(session, job_path, meanwhile)`: shows a job until it has ended, Ctrl-C cancels it; returns its
             shape and the exit code.
`cards`      `card(session, wanted)`: the path and UUID of the GPU that --gpu means.
`overrides`  Tenant files in /etc: checked, written whole, put in force.
`asking`     A question to the person at the terminal.
`setup/`     What `setup` finds and proposes.
`exits`      The exit codes, in one place.

`completion`  What the shells ask for at Tab; it reads the declarations, so a new command needs nothing there.
`man/`       gpusupervisorctl(1) and gpusupervisorctl-json(5); tests/manual says which line of them is missing.

What every command imports has named tuples for data: a dataclass takes ten times as long to make, and to import what
makes it half as long as to answer a Tab.

A new group: write `commands/x.py`, add it to `commands.GROUPS`, its shape to `shapes`, its screen to `screens/x.py`,
and describe it in `man/`.
"""
