"""Find the files that a pattern names below the workdir (ART-01, ART-07)."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Literal, NamedTuple

from towline.artifacts.declaration import fixed_part, is_literal, part_matcher, pattern_parts
from towline.errors.artifacts import ArtifactPackError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EntryKind = Literal["file", "folder", "link"]


class Entry(NamedTuple):
    """One thing to pack: its path below the tree's root, where it lies now, and what it is."""

    path: str
    source: str
    kind: EntryKind


class Match(NamedTuple):
    """What a pattern named: one file, or the entries of a tree in archive order (ART-06)."""

    kind: Literal["file", "tree"]
    entries: tuple[Entry, ...]


def find(workdir: Path, pattern: str, artifact: str) -> Match | None:
    """Find what the pattern names; ``None`` if there is nothing.

    A folder counts with all that is below it; folders inside are entries only where they are empty. Links
    are not followed, but for those in the pattern's fixed part, which have to stay in the workdir.

    Raises:
        ArtifactPackError: Something that cannot be packed was matched.
    """
    base = os.path.join(workdir, fixed_part(pattern))
    if not os.path.lexists(base):
        return None
    _check_inside(workdir, base, artifact)
    literal = is_literal(pattern)
    if literal and not os.path.isdir(base):
        if not os.path.isfile(base):
            raise ArtifactPackError(artifact, base, "is neither a file nor a folder")
        return Match("file", (Entry(os.path.basename(base), base, "file"),))
    found: dict[str, Entry] = {}
    walk = _below(base, "", artifact) if literal else _matching(base, pattern, artifact)
    for entry in walk:
        found[entry.path] = entry
    if not found and not literal:
        return None
    return Match("tree", tuple(found[path] for path in sorted(found, key=os.fsencode)))


def _check_inside(workdir: Path, base: str, artifact: str) -> None:
    root, real = os.path.realpath(workdir), os.path.realpath(base)
    if os.path.commonpath([root, real]) != root:
        raise ArtifactPackError(artifact, base, "is reached by a link that leaves the workdir")


def _matching(base: str, pattern: str, artifact: str) -> Iterator[Entry]:
    fixed = pattern_parts(fixed_part(pattern))
    parts = [None if part == "**" else part_matcher(part) for part in pattern_parts(pattern)[len(fixed) :]]
    if not os.path.isdir(base):
        return
    pending = [(base, "", 0)]
    while pending:
        folder, path, at = pending.pop()
        part, last = parts[at], at == len(parts) - 1
        if part is None and not last:
            pending.append((folder, path, at + 1))  # "**" as no folder at all
        for entry in _scan(folder, artifact):
            below = f"{path}{entry.name}"
            is_folder = entry.is_dir(follow_symlinks=False)
            if part is None and not last:
                if is_folder:
                    pending.append((entry.path, f"{below}/", at))
            elif part is None or part.match(entry.name):
                if last:
                    yield from _whole(entry, below, artifact)
                elif is_folder:
                    pending.append((entry.path, f"{below}/", at + 1))


def _below(folder: str, path: str, artifact: str) -> Iterator[Entry]:
    for entry in _scan(folder, artifact):
        yield from _whole(entry, f"{path}{entry.name}", artifact)


def _whole(entry: os.DirEntry[str], path: str, artifact: str) -> Iterator[Entry]:
    """Yield an entry; of a folder everything below it, or the folder itself if that is nothing."""
    pending = [(entry, path)]
    while pending:
        entry, path = pending.pop()
        kind = _kind(entry, artifact)
        if kind != "folder":
            yield Entry(path, entry.path, kind)
            continue
        inner = _scan(entry.path, artifact)
        pending += ((child, f"{path}/{child.name}") for child in inner)
        if not inner:
            yield Entry(path, entry.path, kind)


def _kind(entry: os.DirEntry[str], artifact: str) -> EntryKind:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    if entry.is_file(follow_symlinks=False):
        return "file"
    mode = entry.stat(follow_symlinks=False).st_mode
    what = "socket" if stat.S_ISSOCK(mode) else "named pipe" if stat.S_ISFIFO(mode) else "device"
    raise ArtifactPackError(artifact, entry.path, f"is a {what}")


def _scan(folder: str, artifact: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise ArtifactPackError(artifact, folder, f"cannot be read: {error.strerror}") from error


def at_path(path: Path, artifact: str) -> Match | None:
    """Take one file or folder by its path (ART-12); ``None`` if there is nothing."""
    if path.is_dir():
        entries = {entry.path: entry for entry in _below(str(path), "", artifact)}
        return Match("tree", tuple(entries[name] for name in sorted(entries, key=os.fsencode)))
    if path.is_file():
        return Match("file", (Entry(path.name, str(path), "file"),))
    if path.exists():
        raise ArtifactPackError(artifact, str(path), "is neither a file nor a folder")
    return None
