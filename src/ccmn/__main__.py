"""Entry point of ``python -m ccmn``, the same as the command ``ccmn``."""

from ccmn.app.cli import main

if __name__ == "__main__":
    main()
