"""Who gets the memory: situation, assessment, release plan, execution. Pure but for execute."""
