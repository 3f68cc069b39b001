"""`python -m sketchc`: the command line, where `sketchc` itself is not on the path."""

from sketchc.cli.main import main

if __name__ == "__main__":
    main()
