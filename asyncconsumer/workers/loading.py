"""The import of an app by its name, ``module:attribute``."""

import importlib
import traceback
from typing import Final

from asyncconsumer.errors import ConfigError
from asyncconsumer.handlers.app import ConsumerApp

_EXAMPLE: Final = "name it as in `asyncconsumer run shop.orders:app`"


def check_name(target: str) -> tuple[str, str]:
    """Return module and attribute of a target. Raise ConfigError if it is malformed."""
    module, colon, attribute = target.partition(":")
    parts = [*module.split("."), *attribute.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        raise ConfigError(f"{target!r} is no module and attribute: {_EXAMPLE}")
    return module, attribute


def load(target: str) -> ConsumerApp:
    """Import and return an app. Raise ConfigError, with one sentence, if that fails."""
    module, attribute = check_name(target)
    try:
        found: object = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{module} cannot be imported: {_told(error)}") from error
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            apps = sorted(k for k, v in vars(found).items() if isinstance(v, ConsumerApp))
            there = f"; it has {', '.join(apps)}" if apps else ""
            raise ConfigError(f"{module} has no {attribute!r}{there}: {_EXAMPLE}") from None
    if not isinstance(found, ConsumerApp):
        raise ConfigError(f"{target} is no ConsumerApp but {_a(type(found).__name__)}: {_EXAMPLE}")
    return found


def _told(error: BaseException) -> str:
    """Return an error as one line, with the file and line that raised it."""
    what = " ".join(f"{type(error).__name__}: {error}".split())
    frames = [one for one in traceback.extract_tb(error.__traceback__) if _is_theirs(one)]
    return f"{what} ({frames[-1].filename}:{frames[-1].lineno})" if frames else what


def _is_theirs(frame: traceback.FrameSummary) -> bool:
    ours = __file__.rpartition("/workers/")[0]
    return not frame.filename.startswith((ours, "<frozen importlib", importlib.__file__))


def _a(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
