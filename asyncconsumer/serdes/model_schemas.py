"""JSON schemas of several types, whose models are shared as common definitions."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from asyncconsumer.errors import ConfigError
from asyncconsumer.serdes.models import model_of, without_none

SchemaObject: TypeAlias = dict[str, Any]
Mode: TypeAlias = Literal["validation", "serialization"]
"""Whether the schema is that of a value to read or to write. Defaults and aliases may differ."""

_PLAIN: Final[Mapping[Any, SchemaObject]] = {
    None: {},
    Any: {},
    object: {},
    "json": {},
    bytes: {"type": "string", "format": "binary"},
    str: {"type": "string"},
    dict: {"type": "object"},
    list: {"type": "array"},
}


class SchemaRequest(NamedTuple):
    """A type, and the direction for which its schema is requested: validation or serialization."""

    kind: Any
    mode: Mode


class ModelSchemas(NamedTuple):
    """The schemas of types, and the definitions that these schemas refer to, by name."""

    by_type: Mapping[SchemaRequest, SchemaObject]
    definitions: dict[str, SchemaObject]


def model_schemas(types: Iterable[SchemaRequest], reference: str) -> ModelSchemas:
    """Return the schemas of types, with definitions that ``{reference}{name}`` refers to.

    A type that no installed package describes has an empty schema, which allows all values.
    """
    by_package: dict[str, list[SchemaRequest]] = {"pydantic": [], "msgspec": []}
    by_type: dict[SchemaRequest, SchemaObject] = {}
    for each in dict.fromkeys(types):
        kind = without_none(each.kind)
        if kind in _PLAIN:
            by_type[each] = dict(_PLAIN[kind])
        else:
            package = _package_of(kind)
            by_type[each] = {}
            if package is not None:
                by_package[package].append(each)
    definitions: dict[str, SchemaObject] = {}
    if of_pydantic := by_package["pydantic"]:
        schemas, definitions = _by_pydantic(of_pydantic, reference)
        by_type |= schemas
    if of_msgspec := by_package["msgspec"]:
        schemas, others = _by_msgspec(of_msgspec, reference)
        if others.keys() & definitions.keys():  # models of both packages with the same name
            schemas, others = _by_msgspec(of_msgspec, f"{reference}msgspec.")
            others = {f"msgspec.{name}": schema for name, schema in others.items()}
        by_type |= schemas
        definitions |= others
    return ModelSchemas(by_type, definitions)


def _package_of(kind: Any) -> str | None:  # noqa: ANN401 - any type
    """Return the package that describes a type, pydantic or msgspec, or None if neither does."""
    try:
        package = model_of(kind).package
    except ConfigError:
        return None
    if package == "msgspec":
        return package
    pydantic = import_module("pydantic")
    try:
        pydantic.TypeAdapter(kind).json_schema()
    except pydantic.errors.PydanticUserError:  # it has no schema, for example a callable
        return None
    return package


def _by_pydantic(
    types: Iterable[SchemaRequest], reference: str
) -> tuple[dict[SchemaRequest, SchemaObject], dict[str, SchemaObject]]:
    adapter = import_module("pydantic").TypeAdapter
    inputs = [(each, each.mode, adapter(without_none(each.kind))) for each in types]
    schemas, shared = adapter.json_schemas(
        inputs, by_alias=True, ref_template=reference + "{model}"
    )
    definitions = shared.get("$defs", {})
    return (
        {each: _with_plain_discriminators(schema) for (each, _), schema in schemas.items()},
        {name: _with_plain_discriminators(schema) for name, schema in definitions.items()},
    )


def _with_plain_discriminators(schema: Any) -> Any:  # noqa: ANN401 - a part of a schema
    """Return a schema in which each discriminator is the name of a property, as in AsyncAPI.

    pydantic and msgspec make objects of discriminators, as in OpenAPI.
    """
    if isinstance(schema, list):
        return [_with_plain_discriminators(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _with_plain_discriminators(each) for name, each in schema.items()}
    match made.get("discriminator"):
        case {"propertyName": str(name)}:
            made["discriminator"] = name
    return made


def _by_msgspec(
    types: Iterable[SchemaRequest], reference: str
) -> tuple[dict[SchemaRequest, SchemaObject], dict[str, SchemaObject]]:
    each = list(types)
    kinds = [without_none(kind) for kind, _ in each]
    made, definitions = import_module("msgspec.json").schema_components(
        kinds, ref_template=reference + "{name}"
    )
    schemas = dict(zip(each, map(_with_plain_discriminators, made), strict=True))
    return schemas, _with_plain_discriminators(definitions)
