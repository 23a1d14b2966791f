"""`top`: the live screen.

`feed`      The connection: signals as they come, and never more than one call a second.
`board`     What the feed has heard, as shapes; `trace` what was, for sparklines.
`views`     The board -> lines; pure. `overview` is the first of them.
`page`      Lines on the terminal: only those that have changed are drawn again.
`app`       Keys, views, and `dialogs` for what is asked of a person.
"""
