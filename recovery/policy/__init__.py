"""Policies of persistence for parts of a program, as records of traits.

- `traits`: the traits, with their sources. Everything else reads them, and asks no policy for its class or its name.
- `policies`: the policies that there are. `chosen`: the policy of a node.
- `saved_as_one`, `at_least_once`, `gaps`: what cannot be under a policy with some traits, or lead into one.

Enters: what the program gives to regions and operators. Leaves: traits, and errors with the user's line. How to add a policy
is in docs/adding_a_policy.md.
"""

from recovery.policy.policies import (
    POLICIES,
    Amnesia,
    AtLeastOnce,
    Batch,
    Eager,
    Ephemeral,
    Lazy,
    LogHistory,
    PassiveStandby,
    Snapshot,
)
from recovery.policy.traits import Every, Interval, Policy, Saves, interval

__all__ = [
    "POLICIES",
    "Amnesia",
    "AtLeastOnce",
    "Batch",
    "Eager",
    "Ephemeral",
    "Every",
    "Interval",
    "Lazy",
    "LogHistory",
    "PassiveStandby",
    "Policy",
    "Saves",
    "Snapshot",
    "interval",
]
