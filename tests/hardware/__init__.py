"""What only a machine with a card can prove: `prove.py`, run by hand there, and over the simulated card in tests."""
