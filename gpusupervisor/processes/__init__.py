"""Who a process is: pid and start time to unit, cgroup, container, executable, command line, ancestors."""
