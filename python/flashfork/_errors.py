"""What can go wrong, and what callers are warned of."""

import errno

#: Nothing was done, and what was asked for can't be had: the process holds something that forbids it.
_REFUSED = {errno.EBUSY, errno.EOPNOTSUPP, errno.ENOEXEC, errno.ENOSYS}


class Error(OSError):
    """Something failed. ``errno`` says what (docs/C_API.md has a table); the text says why, and what to do."""


class Refused(Error):
    """Nothing was changed, because something here forbids it, which the text names: forks are plain, and right."""


class PlainForks(RuntimeWarning):
    """Given once where this host can't seal: forks are plain ones."""


class StaleTemplate(RuntimeWarning):
    """Files of a template have changed since it was warmed; its clone runs what was in them."""


def error(number: int, text: str) -> Error:
    """The exception for an error of the library."""
    return (Refused if number in _REFUSED else Error)(number, text)
