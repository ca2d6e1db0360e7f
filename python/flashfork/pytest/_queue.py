"""The tests that are left to run, in the portions that workers get."""

from __future__ import annotations

from collections import deque
from typing import Deque, List, Sequence

import pytest

#: The most tests in a portion: its message must fit what a socket holds while nobody reads.
_MOST = 1000


class Queue:
	"""Indices of tests, in order of collection."""

	def __init__(self, items: Sequence[pytest.Item], workers: int, distribution: str):
		self._workers = workers
		#: Portions that aren't divided.
		self._portions: Deque[List[int]] = deque()
		#: Those that are.
		self._single: Deque[int] = deque()
		if distribution == "load":
			self._single.extend(range(len(items)))
			return
		groups: "dict[str, List[int]]" = {}
		for index, item in enumerate(items):
			groups.setdefault(_group(item, distribution), []).append(index)
		self._portions.extend(groups.values())

	def __bool__(self) -> bool:
		return bool(self._portions or self._single)

	def units(self) -> int:
		"""Into how many portions the rest can be divided."""
		return len(self._portions) + len(self._single)

	def next(self) -> List[int]:
		"""The next portion: a part of what is left, so that all workers come to their ends together."""
		if self._portions:
			portion = self._portions.popleft()
			if len(portion) > _MOST:
				self._portions.appendleft(portion[_MOST:])
			return portion[:_MOST]
		count = max(1, min(_MOST, len(self._single) // (4 * self._workers)))
		return [self._single.popleft() for _ in range(count)]

	def put_back(self, indices: List[int]) -> None:
		"""What a worker that crashed hasn't run."""
		if indices:
			self._portions.appendleft(indices)


def _group(item: pytest.Item, distribution: str) -> str:
	nodeid = item.nodeid
	if distribution == "loadgroup":
		mark = item.get_closest_marker("xdist_group")
		if mark is not None:
			return "group " + str(mark.kwargs.get("name", mark.args[0] if mark.args else "default"))
		return nodeid
	if distribution == "loadfile":
		return nodeid.split("::", 1)[0]
	return nodeid.rsplit("::", 1)[0]
