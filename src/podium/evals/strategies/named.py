"""Functions of somebody's own, named on the command line: `module:function`, or the path of a
Python file in the module's place, as in `mine.py:answer`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from podium.config.problems import nearest
from podium.errors import UsageError


def is_function_name(name: str) -> bool:
    """Whether that can be the name of a function: a module or a file, a colon, an identifier."""
    module, colon, function = name.rpartition(":")
    dotted = all(part.isidentifier() for part in module.split("."))
    return bool(colon) and function.isidentifier() and (dotted or module.endswith(".py"))


def named_function(name: str) -> Callable[..., Any]:
    """The function of that name. Its module is imported, so it is run: name only what is yours."""
    if not is_function_name(name):
        raise UsageError(f"expected module:function or file.py:function, not {name!r}")
    place, _, attribute = name.rpartition(":")
    module = _from_file(Path(place)) if place.endswith(".py") else _imported(place)
    function = getattr(module, attribute, None)
    if function is None:
        public = [known for known in vars(module) if not known.startswith("_")]
        raise UsageError(f"{place} has no function {attribute!r}; {nearest(attribute, public)}")
    if not callable(function):
        raise UsageError(f"{name} is {type(function).__name__}, not a function")
    found: Callable[..., Any] = function
    return found


def file_of(name: str) -> Path | None:
    """The file that the function of that name stands in; None where its module has none."""
    place = name.rpartition(":")[0]
    if place.endswith(".py"):
        return Path(place)
    found: str | None = getattr(_imported(place), "__file__", None)
    return None if found is None else Path(found)


def _imported(module: str) -> ModuleType:
    """The module by its name; the directory that the command was started in is looked at too."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"cannot import {module!r}: {error}; name a module that is installed or stands in "
            f"this directory, or the path of a .py file"
        ) from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file")
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None, "a path that ends in .py always has one"
    assert specification.loader is not None, "and a loader"
    module = importlib.util.module_from_spec(specification)
    try:
        specification.loader.exec_module(module)
    except Exception as error:  # whatever a user's own file does when it is run
        raise UsageError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module
