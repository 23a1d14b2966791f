"""What engines are set to, and how their models are listed, loaded and unloaded."""
