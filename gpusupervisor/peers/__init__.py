"""D-Bus clients for the privileged services and systemd."""
