"""The compiled part of the build. Everything else is in pyproject.toml.

The record decoder is C. Where it cannot be compiled the package still installs, on the
pure-Python twin, but not in silence: the reason is printed here and kept beside the module,
where `asyncconsumer.records.decoding` finds it and warns with it at import.
"""

from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

REASON_FILE = "_not_compiled.txt"


class BuildOrExplain(build_ext):
    """Build the extension, or leave a note that says why there is none."""

    def build_extension(self, ext: Extension) -> None:
        """Compile `ext`; a failure becomes a printed and a kept reason."""
        note = Path(self.get_ext_fullpath(ext.name)).parent / REASON_FILE
        note.unlink(missing_ok=True)
        try:
            super().build_extension(ext)
        except Exception as error:  # noqa: BLE001 - whatever the tool chain raises, we go on without it
            reason = f"{type(error).__name__}: {error}"
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(reason + "\n", encoding="utf-8")
            print(
                f"asyncconsumer: {ext.name} was NOT compiled ({reason}).\n"
                "asyncconsumer: the package works on its pure-Python decoder, many times slower. "
                "Install a C compiler and the Python headers, and reinstall."
            )

    def get_outputs(self) -> list[str]:
        """What was really built, so that a missing module does not fail the install."""
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
