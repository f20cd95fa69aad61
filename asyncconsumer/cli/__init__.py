"""The command line: `asyncconsumer`."""

import sys


def main() -> None:
    """Run the command line, or say what to install for it."""
    try:
        from asyncconsumer.cli.app import run
    except ImportError as missing:
        sys.exit(
            f"asyncconsumer: the command line needs {missing.name}: "
            "pip install 'asyncconsumer[cli,testing]'"
        )
    sys.exit(run())
