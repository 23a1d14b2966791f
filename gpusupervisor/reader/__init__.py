"""gpusupervisor-reader: reads what is hidden from the supervisor (processes, model files). It changes nothing."""
