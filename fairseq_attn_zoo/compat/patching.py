"""The one way in which a function of fairseq's gets another."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

Replacement = TypeVar("Replacement", bound=Callable[..., Any])
MARK = "patched_by"  # an attribute of what stands there now: which replacements it has been through


def patch(owner: Any, name: str) -> Callable[[Replacement], Replacement]:
    """A decorator: the function takes the place of ``owner.name``, and is called with what stood there before its arguments.

    Of a method ``self`` or ``cls`` comes after that. The same function replaces only once, also if this package is imported
    under two names; several may replace one another, the last one is called first.

    Args:
        owner: a module or a class of fairseq's
        name: of the function or method
    """

    def decorate(replacement: Replacement) -> Replacement:
        found = inspect.getattr_static(owner, name)
        kind = type(found) if isinstance(found, (classmethod, staticmethod)) else None
        original = found.__func__ if kind else found
        before = getattr(original, MARK, ())
        if replacement.__qualname__ in before:
            return replacement

        @functools.wraps(original)
        def patched(*arguments: Any, **keywords: Any) -> Any:
            return replacement(original, *arguments, **keywords)

        setattr(patched, MARK, (*before, replacement.__qualname__))
        setattr(owner, name, kind(patched) if kind else patched)
        return replacement

    return decorate
