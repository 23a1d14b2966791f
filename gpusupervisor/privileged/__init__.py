"""What the two privileged services share: who may call them, files that only root could have written, idle exit."""
