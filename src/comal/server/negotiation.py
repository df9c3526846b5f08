"""What a client takes: Accept and Accept-Encoding with their weights (RFC 9110, 12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

_LONGEST_KEPT = 300
"""Values of a usual length are parsed once; long ones each time, so that they fill no cache."""


@dataclass(frozen=True, slots=True)
class Encodings:
    """Which content codings a client takes."""

    gzip: bool
    identity: bool
    named: frozenset[str]
    """Others that it names, such as ``br``."""

    def takes(self, coding: str) -> bool:
        """Whether bytes in this coding may be sent."""
        if coding == "gzip":
            return self.gzip
        return self.identity if coding in {"", "identity"} else coding in self.named


PLAIN = Encodings(gzip=False, identity=True, named=frozenset())
"""A client that says nothing: bytes without a coding are what it surely understands."""


def encodings(value: bytes | None) -> Encodings:
    """The codings that an Accept-Encoding allows."""
    if value is None:
        return PLAIN
    return _encodings(value) if len(value) > _LONGEST_KEPT else _kept_encodings(value)


def _encodings(value: bytes) -> Encodings:
    weights = dict(_weighted(value.decode("latin-1")))
    everything = weights.get("*", 0.0)
    gzip = weights.get("gzip", weights.get("x-gzip", everything)) > 0
    identity = weights.get("identity", 1.0 if "*" not in weights else everything) > 0
    named = frozenset(name for name, weight in weights.items() if weight > 0)
    return Encodings(gzip, identity, named)


_kept_encodings = lru_cache(maxsize=512)(_encodings)


def _weighted(text: str) -> list[tuple[str, float]]:
    found = []
    for part in text.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if name:
            found.append((name, _weight(parameters)))
    return found


def _weight(parameters: Sequence[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.rstrip() == "q":
            try:
                return min(1.0, max(0.0, float(value)))
            except ValueError:
                return 0.0
    return 1.0


def best_type(value: bytes | None, offers: Sequence[str]) -> str | None:
    """The offered media type that an Accept prefers; the first of equals, None when none fits.

    Parameters
    ----------
    value
        The header, None when the client says nothing and so takes anything.
    offers
        Media types without parameters, in the server's order.
    """
    if value is None or value.strip() == b"*/*":
        return offers[0] if offers else None
    ranges = _weighted(value.decode("latin-1"))
    best, best_weight = None, 0.0
    for offer in offers:
        weight = _weight_of(offer, ranges)
        if weight > best_weight:
            best, best_weight = offer, weight
    return best


def _weight_of(offer: str, ranges: Sequence[tuple[str, float]]) -> float:
    """The weight of the most specific range that holds the offer."""
    weights = dict(ranges)
    for name in (offer, offer.partition("/")[0] + "/*", "*/*"):
        if name in weights:
            return weights[name]
    return 0.0
