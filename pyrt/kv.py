"""Pages of the KV cache: who holds them, which prefix they hold, which go first.

A page holds 32 consecutive tokens of one sequence for all layers of one cache group (layers with the same
sliding window). A full page is known by the chained hash of its tokens and of everything before them, so
that equal prefixes are shared by reference; a page nobody holds keeps its prefix until the room is needed
(least recently used first). Groups with a sliding window give pages back as soon as no later position can
see them.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from typing import Protocol

from pyrt.errors import MemoryLimitError

PAGE = 32  # tokens; the core's KvCache.PAGE_TOKENS
GROWTH = 16  # pages asked of the core at once, at least
CHUNK = 512  # most rows of one sequence in a step


class CoreCache(Protocol):
    """The part of _core.KvCache that is used here."""

    @property
    def groups(self) -> list[dict[str, int]]: ...

    def resize(self, group: int, n_pages: int) -> None: ...


class Table:
    """The pages of one sequence, and the hashes of its full pages.

    pages: one array of ints [most pages] a group, -1 where absent. start: first page still held, by group.
    length: pages reached so far (the same in every group). shared: tokens whose pages others may find.
    keys: hashes of the full pages among them known so far.
    """

    __slots__ = ("keys", "length", "pages", "shared", "start")

    def __init__(self, n_groups: int, most_tokens: int, shared: int) -> None:
        self.pages = [_absent(-(-most_tokens // PAGE)) for _ in range(n_groups)]
        self.start = [0] * n_groups
        self.length = 0
        self.shared = shared
        self.keys: list[bytes] = []


class Pool:
    """The pages of one cache group."""

    def __init__(self, cache: CoreCache, group: int, limit: int) -> None:
        self.window = cache.groups[group]["window"]
        self.page_bytes = cache.groups[group]["page_bytes"]
        self.limit = limit
        self._cache = cache
        self._group = group
        self._free: list[int] = []
        self._holders: list[int] = []
        self._key: list[bytes | None] = []
        self._page_of: dict[bytes, int] = {}
        self._idle: dict[int, None] = {}  # held by nobody but full of a known prefix; oldest first

    @property
    def size(self) -> int:
        """Pages that exist in the core."""
        return len(self._holders)

    @property
    def available(self) -> int:
        """Pages that could be taken now."""
        return len(self._free) + len(self._idle) + self.limit - self.size

    def needed(self, n_tokens: int) -> int:
        """The most pages that one sequence of ``n_tokens`` tokens holds at a time."""
        return most_held(self.window, -(-n_tokens // PAGE))

    def knows(self, key: bytes) -> bool:
        return key in self._page_of

    def take(self) -> int | None:
        """An empty page: free, new, or that of the prefix used least recently. None if all are held."""
        if not self._free and self.size < self.limit:
            self._grow()
        if self._free:
            page = self._free.pop()
        elif self._idle:
            page = next(iter(self._idle))
            del self._idle[page]
            self._forget(page)
        else:
            return None
        self._holders[page] = 1
        return page

    def share(self, key: bytes) -> int:
        """One more holder of the page that holds this prefix."""
        page = self._page_of[key]
        self._idle.pop(page, None)
        self._holders[page] += 1
        return page

    def give_back(self, page: int) -> None:
        self._holders[page] -= 1
        if self._holders[page] == 0:
            if self._key[page] is None:
                self._free.append(page)
            else:
                self._idle[page] = None

    def publish(self, page: int, key: bytes) -> None:
        """Let others find this full page; of two pages with the same prefix the first is the known one."""
        if self._key[page] is None and key not in self._page_of:
            self._key[page] = key
            self._page_of[key] = page

    def _forget(self, page: int) -> None:
        key = self._key[page]
        if key is not None:
            del self._page_of[key]
            self._key[page] = None

    def _grow(self) -> None:
        size = min(self.limit, self.size + max(GROWTH, self.size // 4))
        try:
            self._cache.resize(self._group, size)
        except MemoryError:
            raise MemoryLimitError(
                f"the machine has no memory for {size} KV pages of {self.page_bytes:,} bytes "
                f"({size * self.page_bytes:,} bytes); there are {self.size}"
            ) from None
        new = range(self.size, size)
        self._free.extend(reversed(new))
        self._holders.extend(0 for _ in new)
        self._key.extend(None for _ in new)


class PagedCache:
    """All groups of one KV cache; owned by one engine, used by one thread at a time."""

    def __init__(self, cache: CoreCache, limits: Sequence[int], salt: bytes) -> None:
        """limits: most pages, by group. salt: what else decides a page's bits (numerics, KV type)."""
        self.pools = [Pool(cache, group, limit) for group, limit in enumerate(limits)]
        self._root = blake2b(salt, digest_size=16).digest()
        self._coming: dict[bytes, Table] = {}  # prefixes that a running sequence is about to publish

    def new_table(self, most_tokens: int, shared: int) -> Table:
        """shared: how many of its tokens may share pages: what others computed by the same arithmetic."""
        return Table(len(self.pools), most_tokens, shared)

    def attach(self, table: Table, tokens: array[int], most: int) -> int | None:
        """Share the longest cached prefix of ``tokens``, at most ``most`` tokens of it; returns how many.

        None: another sequence is just computing more of this prefix, so that waiting for it is cheaper.
        """
        self._hash(table, tokens, len(tokens))
        keys = table.keys
        wanted = keys[: most // PAGE]
        count = self._longest(wanted)
        if count < len(wanted) and wanted[count] in self._coming:
            return None
        for group, pool in enumerate(self.pools):
            first = self._first_seen(pool, count * PAGE)
            table.start[group] = first
            for index in range(first, count):
                table.pages[group][index] = pool.share(keys[index])
        table.length = count
        for key in keys[count:]:
            self._coming.setdefault(key, table)
        return count * PAGE

    def has_room(self, table: Table, n_tokens: int) -> bool:
        """Whether the pages that ``n_tokens`` tokens need beyond the table's could be taken now."""
        return all(
            pool.needed(n_tokens) - (table.length - start) <= pool.available
            for pool, start in zip(self.pools, table.start, strict=True)
        )

    def check_fits(self, n_tokens: int) -> None:
        """MemoryLimitError if a sequence of so many tokens could not be held even alone."""
        for pool in self.pools:
            needed, each = pool.needed(n_tokens), pool.page_bytes
            if needed > pool.limit:
                raise MemoryLimitError(
                    f"{n_tokens} tokens need {needed} KV pages of {each:,} bytes = {needed * each:,} bytes, "
                    f"but the memory limit leaves room for {pool.limit} = {pool.limit * each:,} bytes"
                )

    def reserve(self, table: Table, n_tokens: int) -> bool:
        """Take pages until ``n_tokens`` tokens fit; False when none are left (what was taken stays taken)."""
        while table.length * PAGE < n_tokens:
            for group, pool in enumerate(self.pools):
                if table.pages[group][table.length] < 0:
                    page = pool.take()
                    if page is None:
                        return False
                    table.pages[group][table.length] = page
            table.length += 1
        return True

    def commit(self, table: Table, tokens: array[int], before: int, now: int) -> None:
        """After a step that wrote tokens[before:now]: publish full pages, drop what no one will see."""
        self._hash(table, tokens, now)
        for index, key in enumerate(table.keys[before // PAGE : now // PAGE], before // PAGE):
            for group, pool in enumerate(self.pools):
                pool.publish(table.pages[group][index], key)
            if self._coming.get(key) is table:
                del self._coming[key]
        for group, pool in enumerate(self.pools):
            first = self._first_seen(pool, now)
            for index in range(table.start[group], first):
                pool.give_back(table.pages[group][index])
                table.pages[group][index] = -1
            table.start[group] = max(table.start[group], first)

    def release(self, table: Table) -> None:
        """Give back every page; what was published stays findable. The table is empty again."""
        for key in table.keys:
            if self._coming.get(key) is table:
                del self._coming[key]
        for group, pool in enumerate(self.pools):
            # The end first: a prefix's first pages serve most others, so they should be the last to go.
            for page in reversed(table.pages[group][: table.length + 1]):
                if page >= 0:
                    pool.give_back(page)
            table.pages[group] = _absent(len(table.pages[group]))
            table.start[group] = 0
        table.length = 0

    @property
    def bytes_used(self) -> int:
        """Bytes of all pages that exist."""
        return sum(pool.size * pool.page_bytes for pool in self.pools)

    def _hash(self, table: Table, tokens: array[int], n_tokens: int) -> None:
        """Extend table.keys to the full pages of the first ``n_tokens`` tokens, as far as they are shared."""
        keys = table.keys
        for index in range(len(keys), min(n_tokens, table.shared) // PAGE):
            page = tokens[index * PAGE : (index + 1) * PAGE].tobytes()
            keys.append(blake2b(page, key=keys[-1] if keys else self._root, digest_size=16).digest())

    def _longest(self, keys: list[bytes]) -> int:
        """How many leading pages count as a hit: full groups hold all, windowed ones their last window."""
        count = len(keys)
        for pool in self.pools:
            if pool.window == 0:
                count = next((i for i in range(count) if not pool.knows(keys[i])), count)
        settled = False
        while not settled:
            settled = True
            for pool in self.pools:
                first = self._first_seen(pool, count * PAGE)
                missing = [i for i in range(first, count) if not pool.knows(keys[i])]
                if missing:
                    count = missing[-1]
                    settled = False
        return count

    @staticmethod
    def _first_seen(pool: Pool, position: int) -> int:
        """The first page that a query at ``position`` or later can see: keys j with position - j < window."""
        return 0 if pool.window == 0 else max(0, position - pool.window + 1) // PAGE


def _absent(n_pages: int) -> array[int]:
    return array("i", [-1]) * n_pages


def most_held(window: int, n_pages: int) -> int:
    """Pages of a group that a sequence of ``n_pages`` holds at a time: all, or a window and a chunk."""
    return min(n_pages, (window + CHUNK) // PAGE + 2) if window else n_pages


def page_limits(
    groups: Sequence[dict[str, int]], n_ctx: int, n_sequences: int, budget: int | None
) -> list[int]:
    """The most pages, by group: for ``n_sequences`` full contexts, or what ``budget`` bytes hold."""

    def limits(n_pages: int) -> list[int]:
        return [min(n_pages, 2 * n_sequences * most_held(group["window"], n_pages)) for group in groups]

    def nbytes(n_pages: int) -> int:
        return sum(count * group["page_bytes"] for count, group in zip(limits(n_pages), groups, strict=True))

    low, high = 0, n_sequences * -(-n_ctx // PAGE)
    if budget is None or nbytes(high) <= budget:
        return limits(high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if nbytes(middle) <= budget else (low, middle)
    return limits(low)
