"""Reading files of every generation, local and remote."""
