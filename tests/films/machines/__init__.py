"""Generated machines: engines with a hidden truth, against which the judgement is measured."""
