"""Finds the power limit at which an engine gets the most out of each joule. It proposes; nothing is applied."""
