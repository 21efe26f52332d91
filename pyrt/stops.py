"""Stop strings in a stream of text pieces."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Passes text through until a stop string is complete; holds back what may be the beginning of one.

    The stop that is complete first ends the text, the longest if several end there: the same whatever
    pieces the text comes in.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""

    def push(self, piece: str) -> tuple[str, str | None]:
        """(text that is safe to show, the stop string that was hit or None)."""
        text = self._held + piece
        if not self._stops:
            return text, None
        hits = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if hits:
            _, start, stop = min(hits)
            self._held = ""
            return text[:start], stop
        keep = self._may_begin(text)
        self._held = text[keep:]
        return text[:keep], None

    def finish(self) -> str:
        """What is still held back: no stop string came of it."""
        held, self._held = self._held, ""
        return held

    def _may_begin(self, text: str) -> int:
        """Where the longest suffix starts that a stop string begins with; len(text) if there is none."""
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            if any(stop.startswith(text[start:]) for stop in self._stops):
                return start
        return len(text)
