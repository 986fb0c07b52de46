"""`python -m savermark` is the command `savermark`."""

from savermark.cli import main

main()
