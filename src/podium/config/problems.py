"""What is wrong with a configuration file, in one line that a person can act on.

A line names the file, the key, what was expected, what came, and the nearest valid key where
one was misspelt. It never repeats a long text: a key in the wrong place would be shown.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from podium.config.schema import table_in
from podium.core.errors import ConfigError

SECRET_KEYS: Final = ("api_key", "apikey", "key", "token", "secret", "password", "authorization")
"""What people call the key that must not stand in a file."""

LONGEST_SHOWN: Final = 24
"""A longer text might be a key, so only its length is told."""


def syntax_problem(file: Path, error: tomllib.TOMLDecodeError) -> ConfigError:
    """The file is not TOML; the parser says where."""
    return ConfigError(f"{file}: not valid TOML: {error}")


def validation_problem(
    file: Path | str, error: ValidationError, form: type[BaseModel]
) -> ConfigError:
    """The first thing that is wrong with the file's form."""
    details = min(error.errors(), key=_misspellings_first)
    return ConfigError(f"{file}: {_said(details, form)}")


def find_secret(options: Any, path: str) -> str | None:
    """The path of an option that would hold a secret, however deep."""
    if isinstance(options, list):
        inner = {f"{path}[{place}]": value for place, value in enumerate(options)}
    elif isinstance(options, Mapping):
        inner = {f"{path}.{name}": value for name, value in options.items()}
        for name, here in zip(options, inner, strict=True):
            if _is_secret(name):
                return here
    else:
        return None
    return next(filter(None, (find_secret(value, here) for here, value in inner.items())), None)


def secret_problem(path: str) -> str:
    """Keys come from the environment and from nowhere else."""
    return (
        f"{path}: a key must not stand in a file; put it into an environment variable and name "
        f'that with key_env = "…"'
    )


def suggest(word: str, valid: Iterable[str]) -> str:
    """A hint at what was meant, or at what there is."""
    words = sorted(valid)
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(words)}"


def format_value(value: object) -> str:
    """A value as it may be printed."""
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case str() if len(value) <= LONGEST_SHOWN:
            return f"the text {value!r}"
        case str():
            return f"a text of {len(value)} characters"
        case list():
            return f"a list of {len(value)}"
        case Mapping():
            return "a table"
        case _:
            return f"a {type(value).__name__}"


def _misspellings_first(details: ErrorDetails) -> bool:
    """A misspelt key is also a missing one; the misspelling is what the person must see."""
    return details["type"] != "extra_forbidden"


def _said(details: ErrorDetails, form: type[BaseModel]) -> str:
    path = _path(details["loc"])
    last = str(details["loc"][-1]) if details["loc"] else ""
    if details["type"] == "extra_forbidden":
        if _is_secret(last):
            return secret_problem(path)
        keys = _keys_at(form, details["loc"][:-1])
        return f"unknown key {path}; {suggest(last, keys)}"
    if details["type"] == "missing":
        return f"{path} is missing, and it is required"
    if last == "key_env" or details["loc"][-2:-1] == ("env",):
        return f"{path}: expected the name of an environment variable, such as OPENAI_API_KEY"
    return f"{path}: expected {_expected(details)}, got {format_value(details['input'])}"


def _expected(details: ErrorDetails) -> str:
    limits = details.get("ctx", {})
    match details["type"]:
        case "literal_error":
            return f"one of {limits['expected']}"
        case "string_type":
            return "a text"
        case "string_pattern_mismatch" | "string_too_short":
            return "a text without spaces around it"
        case "int_type" | "int_from_float":
            return "a whole number"
        case "float_type":
            return "a number"
        case "bool_type":
            return "true or false"
        case "model_type" | "dict_type":
            return "a table"
        case "tuple_type" if len(details["loc"]) == 1:
            return f"tables written [[{_path(details['loc'])}]]"
        case "tuple_type":
            return "a list"
        case "frozen_set_type":
            return "a list"
        case "too_short":
            return f"a list of {limits['min_length']} or more"
        case "greater_than":
            return f"more than {limits['gt']:g}"
        case "greater_than_equal":
            return f"{limits['ge']:g} or more"
        case "less_than_equal":
            return f"{limits['le']:g} or less"
        case _:
            return details["msg"].removeprefix("Input should be ")


def _path(location: tuple[int | str, ...]) -> str:
    """`worker[0].price.input`, counted from 0 as ids are."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _keys_at(form: type[BaseModel], location: tuple[int | str, ...]) -> Iterable[str]:
    """The keys that the table at that place may have."""
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
