"""The command line: `asyncconsumer`."""

import sys


def main() -> None:
    """Run the command line, or say what to install for it."""
    try:
        from asyncconsumer.cli.app import run

        code = run()
    except ModuleNotFoundError as missing:  # consumers need one extra, real servers both
        sys.exit(
            f"asyncconsumer: this needs {missing.name}: pip install 'asyncconsumer[cli,testing]'"
        )
    sys.exit(code)
