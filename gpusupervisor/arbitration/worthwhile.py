"""The smallest amount of memory that decisions look at."""

WORTHWHILE = 64 * 1024 * 1024
"""Bytes: no tenant is asked, or named as a blocker, for less."""
