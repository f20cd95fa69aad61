"""The compiled part of the build. Everything else is in pyproject.toml.

The record decoder is C. If it cannot be compiled, the package is installed with the pure-Python
decoder. The reason is printed, and stored next to the module. `asyncconsumer.records.decoding`
reads it and warns at import.
"""

from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

REASON_FILE = "_not_compiled.txt"


class BuildOrExplain(build_ext):
    """A build of the extension that stores the reason if the compilation fails."""

    def build_extension(self, ext: Extension) -> None:
        """Compile `ext`. If that fails, print and store the reason."""
        note = Path(self.get_ext_fullpath(ext.name)).parent / REASON_FILE
        note.unlink(missing_ok=True)
        try:
            super().build_extension(ext)
        except Exception as error:  # noqa: BLE001 - the package works without the extension
            reason = f"{type(error).__name__}: {error}"
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(reason + "\n", encoding="utf-8")
            print(
                f"asyncconsumer: {ext.name} was NOT compiled ({reason}).\n"
                "asyncconsumer: the package works on its pure-Python decoder, many times slower. "
                "Install a C compiler and the Python headers, and reinstall."
            )

    def get_outputs(self) -> list[str]:
        """Return the files that exist, so that a missing module does not fail the installation."""
        return [name for name in super().get_outputs() if Path(name).exists()]


setup(
    cmdclass={"build_ext": BuildOrExplain},
    ext_modules=[
        Extension(
            "asyncconsumer.records._records",
            sources=sorted(map(str, Path("asyncconsumer/records/_native").glob("*.c"))),
            depends=sorted(map(str, Path("asyncconsumer/records/_native").glob("*.h"))),
            extra_compile_args=[
                "-O3",
                "-std=gnu11",
                "-Wall",
                "-Wextra",
                "-Wno-unused-parameter",
                "-Wno-missing-field-initializers",
                "-Wno-cast-function-type",
                "-fvisibility=hidden",
            ],
            optional=False,
        )
    ],
)
