"""Messages about mistakes in a configuration file: one line that names file, key and remedy.

A long text is never repeated: it might be an API key in the wrong place.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from podium.core.errors import ConfigError

SECRET_KEYS: Final = ("api_key", "apikey", "key", "token", "secret", "password", "authorization")
"""Names under which people write an API key into a file."""

MAX_SHOWN_CHARS: Final = 24
"""Characters of a text that may be shown; a longer one might be an API key."""

_EXPECTED: Final = {
    "string_type": "a text",
    "path_type": "a text",
    "string_pattern_mismatch": "a text without spaces around it",
    "string_too_short": "a text without spaces around it",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "model_type": "a table",
    "dict_type": "a table",
    "tuple_type": "a list",
    "frozen_set_type": "a list",
    "literal_error": "one of {expected}",
    "too_short": "a list of {min_length} or more",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "{ge:g} or more",
    "less_than_equal": "{le:g} or less",
}
"""The expected input, by pydantic's type of error."""


def validation_problem(
    file: Path | str, error: ValidationError, form: type[BaseModel]
) -> ConfigError:
    """Describe the first mistake in the file; a misspelt key comes before a missing one."""
    details = min(error.errors(), key=lambda details: details["type"] != "extra_forbidden")
    return ConfigError(f"{file}: {_describe(details, form)}")


def find_secret(options: Any, path: str) -> str | None:
    """Return the path of the first option that would hold a secret, however deep."""
    if isinstance(options, list):
        inner = {f"{path}[{position}]": value for position, value in enumerate(options)}
    elif isinstance(options, Mapping):
        inner = {f"{path}.{name}": value for name, value in options.items()}
        for name, here in zip(options, inner, strict=True):
            if _is_secret(name):
                return here
    else:
        return None
    return next(filter(None, (find_secret(value, here) for here, value in inner.items())), None)


def secret_problem(path: str) -> str:
    """Say that an API key belongs into the environment."""
    return (
        f"{path}: a key must not be in a file; put it into an environment variable and name "
        f'that with key_env = "…"'
    )


def check_address(address: str, path: str) -> None:
    """Refuse a URL that holds credentials: addresses are shown and stored."""
    parts = urlsplit(address)
    if "@" in parts.netloc:
        raise ValueError(secret_problem(path))
    if parts.query or parts.fragment:
        raise ValueError(
            f"{path}: expected an address without ? and #, such as https://example.com/v1; "
            f'a key goes into an environment variable, named with key_env = "…"'
        )


def suggest(word: str, valid: Iterable[str]) -> str:
    words = sorted(valid)
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(words)}"


def table_in(annotation: Any) -> type[BaseModel] | None:
    """Return the table inside `Table`, `Table | None` or `tuple[Table, ...]`, if there is one."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(table_in, get_args(annotation))), None)


def _describe(details: ErrorDetails, form: type[BaseModel]) -> str:
    location, kind = details["loc"], details["type"]
    path, last = _path(location), str(location[-1]) if location else ""
    if kind == "value_error":  # raised by a validator; its message begins with the key
        return f"{path}{'.' if path else ''}{details['ctx']['error']}"
    if kind == "extra_forbidden":
        if _is_secret(last):
            return secret_problem(path)
        return f"unknown key {path}; {suggest(last, _keys_at(form, location[:-1]))}"
    if kind == "missing":
        return f"{path} is missing, and it is required"
    if last == "key_env" or location[-2:-1] == ("env",):
        return f"{path}: expected the name of an environment variable, such as OPENAI_API_KEY"
    if kind == "tuple_type" and len(location) == 1:
        expected = f"tables written [[{path}]]"
    elif kind in _EXPECTED:
        expected = _EXPECTED[kind].format(**details.get("ctx", {}))
    else:
        expected = details["msg"].removeprefix("Input should be ")
    return f"{path}: expected {expected}, got {_describe_value(details['input'])}"


def _describe_value(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case str() if len(value) <= MAX_SHOWN_CHARS:
            return f"the text {value!r}"
        case str():
            return f"a text of {len(value)} characters"
        case list():
            return f"a list of {len(value)}"
        case Mapping():
            return "a table"
        case _:
            return f"a {type(value).__name__}"


def _path(location: tuple[int | str, ...]) -> str:
    """Format a location as `worker[0].price.input`, counted from 0 as ids are."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _keys_at(form: type[BaseModel], location: tuple[int | str, ...]) -> Iterable[str]:
    parts = iter(part for part in location if isinstance(part, str))
    for part in parts:
        annotation = form.model_fields[part].annotation
        table = table_in(annotation)
        assert table is not None, "only a table can have a key too many"
        form = table
        if get_origin(annotation) is dict:
            next(parts)  # the name that the file gives to such a table
    return form.model_fields


def _is_secret(name: str) -> bool:
    return name.lower().replace("-", "_").removeprefix("x_") in SECRET_KEYS
