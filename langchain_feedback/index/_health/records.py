"""What a look at an index's health comes to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

__all__ = ["HealthCheck", "IndexHealth", "Severity", "Status"]

Severity: TypeAlias = Literal["alarm", "finding"]
Status: TypeAlias = Literal["done", "skipped", "failed"]


@dataclass(frozen=True, kw_only=True)
class HealthCheck:
    """What one check came to."""

    name: str
    why: str
    """For people: what was found, or why the check was skipped or failed."""
    status: Status = "done"
    """`skipped`: the index does not give what it needs; `failed`: it could not be done."""
    severity: Severity | None = None
    """`alarm`: answers are likely to be worse for it; None: nothing was found."""
    todo: str = ""
    """What to do next; empty where there is nothing to do."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """What it rests on. Plain values, as JSON has them; shares in [0, 1], times in ISO 8601."""

    @property
    def ok(self) -> bool | None:
        """Whether nothing was found; None: it was not done."""
        return self.severity is None if self.status == "done" else None

    def __str__(self) -> str:
        what = self.severity or ("clean" if self.status == "done" else self.status)
        todo = f" {self.todo}" if self.todo else ""
        return f"{what.upper() if what == 'alarm' else what} {self.name}: {self.why}.{todo}"

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return vars(self) | {"figures": dict(self.figures)}


@dataclass(frozen=True, kw_only=True)
class IndexHealth:
    """Every check of one index, done or not."""

    namespace: str
    index: str
    """The name of its ledger."""
    at: datetime
    """UTC."""
    checks: tuple[HealthCheck, ...]

    @property
    def findings(self) -> tuple[HealthCheck, ...]:
        """What somebody is to look at, alarms first."""
        found = [check for check in self.checks if check.severity is not None]
        return tuple(sorted(found, key=lambda check: check.severity != "alarm"))

    @property
    def alarms(self) -> tuple[HealthCheck, ...]:
        """The findings that are alarms."""
        return tuple(check for check in self.checks if check.severity == "alarm")

    @property
    def skipped(self) -> tuple[HealthCheck, ...]:
        """What was not looked at, with the reasons."""
        return tuple(check for check in self.checks if check.status == "skipped")

    @property
    def failed(self) -> tuple[HealthCheck, ...]:
        """What could not be looked at, with the errors."""
        return tuple(check for check in self.checks if check.status == "failed")

    @property
    def exit_code(self) -> int:
        """0: nothing found; 1: findings; 2: a check failed, so nobody knows."""
        return 2 if self.failed else int(bool(self.findings))

    def get(self, name: str) -> HealthCheck:
        """Return the check of a name.

        Raises:
            KeyError: If there is none.
        """
        return {check.name: check for check in self.checks}[name]

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "namespace": self.namespace,
            "index": self.index,
            "at": self.at.isoformat(),
            "exit_code": self.exit_code,
            "alarms": [check.name for check in self.alarms],
            "findings": [check.name for check in self.findings],
            "checks": [check.as_dict() for check in self.checks],
        }

    def __str__(self) -> str:
        clean = sum(one.status == "done" and one.severity is None for one in self.checks)
        counts = {
            "alarms": len(self.alarms),
            "other findings": len(self.findings) - len(self.alarms),
            "clean": clean,
            "skipped": len(self.skipped),
            "failed": len(self.failed),
        }
        told = ", ".join(f"{what} {number}" for what, number in counts.items())
        lines = [f"Index {self.index!r} of namespace {self.namespace!r}: {told}"]
        rest = [check for check in self.checks if check.severity is None]
        return "\n".join([*lines, *map(str, self.failed), *map(str, self.findings)]
                         + [str(check) for check in rest if check.status != "failed"])  # fmt: skip
