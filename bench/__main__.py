"""`python -m bench`."""

from bench.entry import main

if __name__ == "__main__":
    main()
