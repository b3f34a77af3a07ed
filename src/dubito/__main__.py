"""``python -m dubito``: the command line tool where its script is not on the path."""

from .cli import main

main()
