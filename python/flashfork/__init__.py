"""Clone warmed processes by copy-on-write, at a cost that doesn't grow with their memory.

    import flashfork

    table = build()                  # hundreds of megabytes
    flashfork.seal()                 # once: moves them into sealed memory, in place
    if flashfork.fork() == 0:        # microseconds, as often as you like
        ...

:func:`seal` and :func:`fork` clone this process. :class:`Template` keeps another program, warm, and runs clones of it.
:func:`snapshot` and :func:`restore` take this process back to an earlier state, and :class:`Region` does so for some
memory of it. Where that can't be done (``flashfork.unsupported`` says why), forks are plain ones.
"""

from ._clone import Clone
from ._errors import Error, PlainForks, Refused, StaleTemplate
from ._library import unsupported
from ._process import SealReport, Stats, exclude, fork, seal, stats, unseal
from ._region import Region
from ._snapshot import discard, restore, snapshot
from ._template import Template, TemplateInfo

__all__ = [
	"Clone",
	"Error",
	"PlainForks",
	"Refused",
	"Region",
	"SealReport",
	"StaleTemplate",
	"Stats",
	"Template",
	"TemplateInfo",
	"discard",
	"exclude",
	"fork",
	"restore",
	"seal",
	"snapshot",
	"stats",
	"unseal",
	"unsupported",
]
