"""What the keys do, and what the signs mean."""

from gpusupervisor.cli.screens.common import STRONG, table, text

HELP = table(
    (),
    [
        (text(keys, STRONG), text(meaning))
        for keys, meaning in (
            ("1-7, left, right", "another view"),
            ("up, down, pages", "choose a tenant or a job, or scroll"),
            ("Enter, Esc", "about the tenant that is chosen; back"),
            ("p", "plan: what would be released for it, and who is in the way; nothing is done"),
            ("r", "release: ask it for its memory, after a yes"),
            ("m", "make room: for whom and how much; the plan is shown, and carried out after a yes"),
            ("c", "cancel the job that is chosen, after a yes"),
            ("s, S", "sort by holding, name, activity, need, idle time; the other way round"),
            ("a", "show those that are absent, or hide them"),
            ("q, Ctrl-C", "quit; what the service was asked for it carries out all the same"),
            ("", ""),
            ("bar", "who holds what, in the order of size; then unattributed, the driver's, free"),
            ("sparkline", "the last ten minutes, as a share of the card"),
        )
    ],
)
