"""`gpusupervisor-demo`: the whole story on a machine without GPU, root or system bus."""
