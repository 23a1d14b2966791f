"""Telemetry: what was and what happened, and what was learned from it, kept over restarts in one SQLite file."""
