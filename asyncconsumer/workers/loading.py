"""The import of an app by its name, ``module:attribute``."""

import importlib
import traceback
from typing import Final

from asyncconsumer.errors import ConfigError
from asyncconsumer.handlers.app import ConsumerApp
from asyncconsumer.workers.feeder_service import Feeder, FeederService

_EXAMPLE: Final = "Name the app as in `asyncconsumer run shop.orders:app`."


def check_name(target: str) -> tuple[str, str]:
    """Return the module and the attribute in `target`. Raise ConfigError if it is malformed."""
    module, colon, attribute = target.partition(":")
    parts = [*module.split("."), *attribute.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        raise ConfigError(f"{target!r} does not have the form MODULE:APP. {_EXAMPLE}")
    return module, attribute


def load(target: str) -> ConsumerApp:
    """Import and return the app that `target` names. Raise ConfigError if that fails."""
    value = _find(target)
    if not isinstance(value, ConsumerApp):
        raise ConfigError(
            f"{target} must be a ConsumerApp, and its type is {type(value).__name__}. {_EXAMPLE}"
        )
    return value


def load_service(target: str) -> ConsumerApp | FeederService:
    """Import the app or the feeder that `target` names. Raise ConfigError if that fails."""
    value = _find(target)
    if isinstance(value, ConsumerApp):
        return value
    if isinstance(value, Feeder):
        return FeederService(value)
    raise ConfigError(
        f"{target} must be a ConsumerApp or a SparkFeeder, and its type is "
        f"{type(value).__name__}. {_EXAMPLE}"
    )


def _find(target: str) -> object:
    module, attribute = check_name(target)
    try:
        value: object = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{module} cannot be imported: {_describe(error)}") from error
    for name in attribute.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            known_types = (ConsumerApp, Feeder)
            apps = sorted(k for k, v in vars(value).items() if isinstance(v, known_types))
            known = f", only {', '.join(apps)}" if apps else ""
            raise ConfigError(f"{module} has no app {attribute!r}{known}. {_EXAMPLE}") from None
    return value


def _describe(error: BaseException) -> str:
    """Return an error as one line, with the file and line of the user's code that raised it."""
    message = " ".join(f"{type(error).__name__}: {error}".split())
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_user_code(frame)]
    return f"{message} ({frames[-1].filename}:{frames[-1].lineno})" if frames else message


def _is_user_code(frame: traceback.FrameSummary) -> bool:
    package = __file__.rpartition("/workers/")[0]
    return not frame.filename.startswith((package, "<frozen importlib", importlib.__file__))
