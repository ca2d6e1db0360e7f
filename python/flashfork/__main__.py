"""``python -m flashfork doctor``, ``run``, ``warm`` …: the flashfork command that this package has in it."""

import os
import sys

from ._library import NATIVE, unsupported


def main() -> None:
	"""Becomes the command, with this process's arguments."""
	if unsupported:
		sys.exit(f"flashfork: {unsupported}.")
	command = NATIVE / "flashfork"
	os.execv(command, [str(command), *sys.argv[1:]])


if __name__ == "__main__":
	main()
