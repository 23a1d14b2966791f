"""How a tenant is asked for its VRAM."""
