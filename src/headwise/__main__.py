"""`python -m headwise`: the `headwise` command where it is not installed as a script (and under torchrun)."""

from headwise.cli import main

if __name__ == "__main__":
    main()
