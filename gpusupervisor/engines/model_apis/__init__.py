"""What engines say of their models, and how they are asked to load and unload them: one adapter per engine."""
