"""What has to be remembered from tick to tick, each in a keeper of its own: what of it changed, and what is due."""
