"""`python -m topmast.app`: the program, without an installed script."""

from topmast.app.main import main

main()
