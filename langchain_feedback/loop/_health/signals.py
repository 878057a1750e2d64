"""What people say for every hundred questions, how soon, and what of it does not count yet."""

from datetime import datetime

import numpy as np
from sqlalchemy import Connection, func, select

from langchain_feedback.loop._health.records import SignalHealth
from langchain_feedback.store.inbox.events import CLIENT_SIGNALS
from langchain_feedback.store.schema import signals, traces

__all__ = ["signal_health"]

_MOST_LAGS = 20_000


def signal_health(
    connection: Connection, namespace: str, since: datetime, until: datetime, asks: int
) -> SignalHealth:
    """Count the signals that came in a time, in which so many questions were asked."""
    row = signals.c
    waits, is_back = ~row.attached, row.retracted_at.is_not(None)
    counted = connection.execute(
        select(row.signal, waits, row.state, is_back, func.count())
        .where(row.namespace == namespace, row.received_at >= since, row.received_at <= until)
        .where(~row.reviewer)
        .group_by(row.signal, waits, row.state, is_back)
    ).all()
    sent = [one for one in counted if one[0] in CLIENT_SIGNALS]
    received = sum(one[4] for one in sent)
    counts: dict[str, int] = {}
    for name, is_pending, state, is_retracted, number in counted:
        if not is_pending and state is None and not is_retracted:
            counts[name] = counts.get(name, 0) + number
    often = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    half, most = _lags(connection, namespace, since, until)
    return SignalHealth(
        received=received,
        per_100={name: 100 * number / asks for name, number in often} if asks else {},
        pending=_share(sum(one[4] for one in sent if one[1]), received),
        held=_share(sum(one[4] for one in sent if one[2] == "held"), received),
        dropped=_share(sum(one[4] for one in sent if one[2] == "dropped"), received),
        lag_p50_seconds=half,
        lag_p95_seconds=most,
    )


def _lags(
    connection: Connection, namespace: str, since: datetime, until: datetime
) -> tuple[float | None, float | None]:
    """Return the median and the 95th percentile of the time from question to signal."""
    row = signals.c
    rows = connection.execute(
        select(row.received_at, traces.c.created_at)
        .join(traces, traces.c.trace_id == row.trace_id)
        .where(row.namespace == namespace, row.received_at >= since, row.received_at <= until)
        .where(row.signal.in_(CLIENT_SIGNALS), ~row.reviewer, row.state.is_(None))
        .order_by(row.received_at.desc())
        .limit(_MOST_LAGS)
    )
    # A client's trace may be written after its signal came in.
    lags = [max(0.0, (one.received_at - one.created_at).total_seconds()) for one in rows]
    if not lags:
        return None, None
    half, most = np.percentile(lags, [50, 95])
    return float(half), float(most)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
