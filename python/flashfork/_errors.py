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


class StaleTemplate(Error):
	"""There is no clone: the template's program would be another one now. The text says what has changed; ``fresh=True``
    warms it anew."""


def error(number: int, text: str) -> Error:
	"""The exception for an error of the library."""
	kind = StaleTemplate if number == errno.ESTALE else Refused if number in _REFUSED else Error
	return kind(number, text)
