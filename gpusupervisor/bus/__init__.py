"""The D-Bus face: what the last tick published as objects and properties, the supervisor's verbs as methods.

Thin on purpose: nothing here decides anything. Property reads never leave the last published state.
"""
