"""``python -m ccmn`` is ``ccmn``."""

from ccmn.cli import main

if __name__ == "__main__":
    main()
