"""gpusupervisor-helper: changes hardware settings (fans, profile, drift). It reads no user's files or processes."""
