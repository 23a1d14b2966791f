"""Films: what the machine said, second by second, and the judgement run over it again."""
