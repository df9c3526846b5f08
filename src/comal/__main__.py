"""``python -m comal`` is the command ``comal``."""

from comal.cli import main

if __name__ == "__main__":
    main()
