"""The command line: `asyncconsumer`."""

import sys


def main() -> None:
    """Run the command line, or say what to install for it."""
    try:
        from asyncconsumer.cli.app import run

        code = run()
    except ModuleNotFoundError as missing:  # consumers need one extra, real servers or Spark two
        name = str(missing.name).partition(".")[0]
        other = "spark" if name in ("pyspark", "pyarrow") else "testing"
        sys.exit(f"asyncconsumer: this needs {name}: pip install 'asyncconsumer[cli,{other}]'")
    sys.exit(code)
