"""The decoding of JSON records that jsonschema validates against their schema."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

from asyncconsumer.serdes.models import package
from asyncconsumer.serdes.schemas import Schema
from asyncconsumer.serdes.wire_format import START, unusable

T = TypeVar("T")


class JsonSchema:
    """A factory of functions that decode JSON records and validate them against a schema."""

    def __init__(self) -> None:
        self._validators = package("jsonschema.validators", "to check JSON by its schema")
        self._referencing = package("referencing", "to check JSON by its schema")
        self._draft7 = package("referencing.jsonschema", "to check JSON by its schema").DRAFT7

    def reader(self, schema: Schema, make: Callable[[Any], T]) -> Callable[[bytes], T]:
        """Return a decoder for records of this schema. Raise WrongSchema if the schema is invalid.

        The decoder passes each valid record to `make` and returns the result.
        """
        try:
            check = self._validator(schema).validate
        except Exception as error:
            raise unusable(schema, error) from error

        def read(data: bytes) -> T:
            value = json.loads(data[START:])
            check(value)
            return make(value)

        return read

    def _validator(self, schema: Schema) -> Any:  # noqa: ANN401
        """Return a validator for JSON that must match `schema`.

        The validator finds referenced schemas only among those that the registry returned. It
        requests no URL.
        """
        text = json.loads(schema.text)
        validator = self._validators.validator_for(text, self._validators.Draft7Validator)
        validator.check_schema(text)
        others = [
            (
                each.name,
                self._referencing.Resource.from_contents(json.loads(each.text), self._draft7),
            )
            for each in schema.references
        ]
        return validator(text, registry=self._referencing.Registry().with_resources(others))
