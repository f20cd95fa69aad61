"""All errors of this package. Each is a subclass of `ConsumerError`."""

from asyncconsumer.errors.administration import *  # noqa: F403
from asyncconsumer.errors.assignment import *  # noqa: F403
from asyncconsumer.errors.base import *  # noqa: F403 - one import path for all errors
from asyncconsumer.errors.brief import *  # noqa: F403
from asyncconsumer.errors.broker import *  # noqa: F403
from asyncconsumer.errors.connection import *  # noqa: F403
from asyncconsumer.errors.group import *  # noqa: F403
from asyncconsumer.errors.handlers import *  # noqa: F403
from asyncconsumer.errors.producing import *  # noqa: F403
from asyncconsumer.errors.records import *  # noqa: F403
from asyncconsumer.errors.schemas import *  # noqa: F403
from asyncconsumer.errors.spark import *  # noqa: F403
from asyncconsumer.errors.stores import *  # noqa: F403
from asyncconsumer.errors.zookeeper import *  # noqa: F403
