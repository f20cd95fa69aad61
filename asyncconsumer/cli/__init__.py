"""The command line program `asyncconsumer`."""

import sys


def main() -> None:
    """Run the program. If a package is missing, print how to install it."""
    try:
        from asyncconsumer.cli.app import run

        code = run()
    except ModuleNotFoundError as error:
        name = str(error.name).partition(".")[0]
        extra = "spark" if name in ("pyspark", "pyarrow") else "testing"
        sys.exit(
            f"asyncconsumer: this command needs the package {name}. "
            f"Install it with: pip install 'asyncconsumer[cli,{extra}]'"
        )
    sys.exit(code)
