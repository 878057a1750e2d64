"""Who owns which document, and how he is told: `owners.toml`."""

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, Self, cast, get_args
from urllib.parse import urlsplit

from langchain_feedback.errors import UnreadableFileError

__all__ = ["Channel", "Owner", "Owners", "OwnersFileError"]

Channel = Literal["outbox", "webhook", "email", "github"]

_KEYS = ("name", "sources", "channel", "address", "secret_env")
_ADDRESSED = ("webhook", "email")


class OwnersFileError(UnreadableFileError):
    """An owners file is not what it should be; the message names the place in it."""


@dataclass(frozen=True)
class Owner:
    """Who is told when a document is wrong, and how."""

    name: str
    channel: Channel = "outbox"
    address: str = ""
    """A URL, an e-mail address, or a repository, by the channel."""
    secret: str | None = field(default=None, repr=False)
    """What webhooks are signed with."""
    secret_env: str | None = None
    """The environment variable that it comes from."""


class Owners:
    r"""The owners of documents, by patterns on their sources.

    The file::

        [[owners]]
        name = "billing"
        sources = ["handbook/refund-*", "faq/*.md"]
        channel = "webhook"
        address = "https://docs.example.com/hooks/feedback"
        secret_env = "BILLING_HOOK_SECRET"   # the variable's name, never the secret

        [default]                            # of all other sources, and of missing documents
        name = "docs team"

    The channels: `outbox` (the default; a line in a file), `webhook` (a signed POST to
    `address`, http or https), `email` and `github` (a file that is ready to send to `address`).
    In a pattern `*` stands for any characters, `/` too, `?` for one, `[ab]` for one of some;
    case counts. The first owner with a pattern that matches has the document.

    Example:
        >>> owners = Owners([(Owner("billing"), ["faq/*"])], default=Owner("docs team"))
        >>> owners.of("faq/refunds.md").name, owners.of("").name
        ('billing', 'docs team')
    """

    def __init__(
        self,
        rules: Sequence[tuple[Owner, Sequence[str]]] = (),
        *,
        default: Owner | None = None,
    ) -> None:
        self.default = default
        self._rules = [(owner, tuple(patterns)) for owner, patterns in rules]
        self._by_name = {owner.name: owner for owner in self}

    @classmethod
    def from_toml(cls, path: Path | str) -> Self:
        """Read the owners of a file; the secrets come from the environment.

        A variable that is not set is no error here: what would be signed with it waits.

        Raises:
            OwnersFileError: If the file cannot be read, is no TOML, or has a wrong key or value.
        """
        try:
            parsed = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            msg = f"The owners file {path} cannot be read: {error.strerror or error}"
            raise OwnersFileError(msg) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            msg = f"The owners file {path} is no TOML: {error}"
            raise OwnersFileError(msg) from error
        return cls._from(_Reader(str(path)), parsed)

    @classmethod
    def _from(cls, reader: "_Reader", parsed: Mapping[str, Any]) -> Self:
        reader.only(parsed, ("owners", "default"), "at the top")
        tables, default = parsed.get("owners", []), parsed.get("default")
        if not isinstance(tables, list):
            reader.fail("owners", "write each owner as a table of its own: [[owners]]")
        rules = []
        for number, table in enumerate(tables, start=1):
            where = f"[[owners]] number {number}"
            rules.append((reader.owner(table, where), reader.sources(table, where)))
        names = [owner.name for owner, _ in rules]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            reader.fail("owners", f"{twice[0]!r} stands there twice; give it several `sources`")
        if default is None:
            return cls(rules)
        if isinstance(default, Mapping) and "sources" in default:
            reader.fail("[default]", "`sources` belong to [[owners]]: it has all the others")
        named = dict(default).get("name") if isinstance(default, Mapping) else None
        if named in names and len(default) == 1:
            return cls(rules, default=rules[names.index(named)][0])
        if named in names:
            reader.fail("[default]", f"{named!r} is described above; here its name is enough")
        return cls(rules, default=reader.owner(default, "[default]"))

    def of(self, source: str) -> Owner | None:
        """Return who owns a source: the first that matches, else the default, if there is one."""
        for owner, patterns in self._rules:
            if source and any(fnmatchcase(source, pattern) for pattern in patterns):
                return owner
        return self.default

    def named(self, name: str) -> Owner | None:
        """Return the owner of this name, or None."""
        return self._by_name.get(name)

    def __iter__(self) -> Iterator[Owner]:
        """Go through the owners, the default one last."""
        yield from (owner for owner, _ in self._rules)
        if self.default is not None:
            yield self.default


@dataclass(frozen=True)
class _Reader:
    """Reads the tables of one file, and says where something is wrong."""

    path: str

    def owner(self, table: Any, where: str) -> Owner:
        if not isinstance(table, Mapping):
            self.fail(where, f"expected a table, got {table!r}")
        self.only(table, _KEYS, where)
        name, channel = self._text(table, "name", where), table.get("channel", "outbox")
        if not name:
            self.fail(f"{where}, key `name`", "an owner needs a name")
        if channel not in get_args(Channel):
            known = ", ".join(get_args(Channel))
            self.fail(f"{where}, key `channel`", f"expected one of {known}, got {channel!r}")
        address = self._text(table, "address", where)
        self._check_address(channel, address, where)
        variable = self._text(table, "secret_env", where) or None
        if channel == "webhook" and variable is None:
            advice = "a webhook is signed: name the environment variable that holds its secret"
            self.fail(f"{where}, key `secret_env`", advice)
        secret = os.environ.get(variable) or None if variable else None
        return Owner(name, cast("Channel", channel), address, secret, variable)

    def sources(self, table: Mapping[str, Any], where: str) -> list[str]:
        given = table.get("sources")
        texts = isinstance(given, list) and all(isinstance(one, str) and one for one in given)
        if not texts or not given:
            self.fail(f"{where}, key `sources`", f"expected a list of patterns, got {given!r}")
        return cast("list[str]", given)

    def only(self, table: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
        if unknown := sorted(set(table) - set(keys)):
            hint = "; the file names a variable in `secret_env`" if unknown[0] == "secret" else ""
            self.fail(f"{where}, key `{unknown[0]}`", f"known are {', '.join(keys)}{hint}")

    def fail(self, where: str, what: str) -> None:
        msg = f"The owners file {self.path}, {where}: {what}"
        raise OwnersFileError(msg)

    def _text(self, table: Mapping[str, Any], key: str, where: str) -> str:
        value = table.get(key, "")
        if not isinstance(value, str) or any(ord(character) < ord(" ") for character in value):
            self.fail(f"{where}, key `{key}`", f"expected one line of text, got {value!r}")
        return cast("str", value).strip()

    def _check_address(self, channel: str, address: str, where: str) -> None:
        where = f"{where}, key `address`"
        if channel in _ADDRESSED and not address:
            self.fail(where, f"{channel!r} needs one")
        if channel == "webhook":
            try:
                parts = urlsplit(address)
                fine = parts.scheme in ("http", "https") and bool(parts.hostname)
            except ValueError:
                fine = False
            if not fine:
                self.fail(where, f"expected http://... or https://..., got {address!r}")
        if channel == "email" and not all(address.partition("@")):
            self.fail(where, f"expected an e-mail address, got {address!r}")
