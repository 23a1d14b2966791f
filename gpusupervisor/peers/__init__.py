"""Other processes that are asked over D-Bus: the privileged helper, and systemd."""
