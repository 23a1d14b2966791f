"""What the keys do, and what the signs mean."""

from gpusupervisor.cli.screens.common import STRONG, table, text

HELP = table(
    (),
    [
        (text(keys, STRONG), text(meaning))
        for keys, meaning in (
            ("1-7, left, right", "show another view"),
            ("up, down", "choose a tenant or a job; elsewhere: scroll"),
            ("Enter, Esc", "everything about the chosen tenant; back"),
            ("p", "plan: show what would be released for it"),
            ("r", "release: ask it for its memory (asks first)"),
            ("m", "make room for a tenant (shows the plan first)"),
            ("c", "cancel the chosen job (asks first)"),
            ("s, S", "sort by the next column; reverse the order"),
            ("a", "show or hide absent tenants"),
            ("q, Ctrl-C", "quit; the service finishes what it was asked"),
            ("", ""),
            ("bar", "holders, then unattributed, driver, free"),
            ("sparkline", "the last ten minutes, as a share of the card"),
        )
    ],
)
