"""What the shells ask for when a person presses Tab: `gpusupervisorctl complete SHELL ...`.

    complete bash LINE POINT WORDBREAKS   COMP_LINE, COMP_POINT and COMP_WORDBREAKS as they are
    complete zsh|fish -- WORD...          the words after the program, without quotes; the last is being written

It prints a candidate on each line: for bash as it is to be inserted, for the others unquoted (they quote themselves),
then a tab and what it is. ":files" or ":hosts" alone asks the shell for those instead. It is quiet whatever happens,
never starts the service, and asks no other machine. `position` knows the command line, `names` the service, `lines`
bash; the scripts in shells/ know nothing.
"""
