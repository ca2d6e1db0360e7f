"""Puts the command, the shim and the C library into the wheel; for other systems it has Python alone."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeBuildHook(BuildHookInterface):  # type: ignore[type-arg]
	"""Hatchling's hook: ``initialize`` runs before a wheel is put together."""

	def initialize(self, version: str, build_data: dict[str, Any]) -> None:
		if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
			return
		root = Path(self.root)
		built = subprocess.run([root / "scripts/build-native"], check=True, stdout=subprocess.PIPE, text=True)
		for file in built.stdout.split("\n"):
			if file:
				build_data["force_include"][file] = f"flashfork/native/{Path(file).name}"
		build_data["pure_python"] = False
		build_data["tag"] = "py3-none-" + os.environ.get("FLASHFORK_WHEEL_PLATFORM", "linux_x86_64")
