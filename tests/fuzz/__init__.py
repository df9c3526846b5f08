"""Coverage-guided fuzzing of everything that takes bytes from strangers; see ``scripts/fuzz``."""
