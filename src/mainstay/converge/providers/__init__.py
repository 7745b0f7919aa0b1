"""The providers. `providers/<type>/<name>.py` is one provider; these folders are the registry."""

from __future__ import annotations

from importlib import import_module

from mainstay.converge.contract import Provider
from mainstay.converge.failures import Missing, MissingForGood
from mainstay.converge.host.host import Host
from mainstay.foundation.module_names import module_names, registered


def find_all(type_name: str) -> list[Provider]:
    """Returns every provider of a type, the preferred first."""
    folder = import_module(f"{__name__}.{type_name}")
    modules = [import_module(f"{folder.__name__}.{name}") for name in module_names(folder.__path__)]
    found = [registered(module, "PROVIDER") for module in modules]
    return sorted(found, key=lambda provider: (provider.priority, provider.name))


def names(type_name: str) -> list[str]:
    return [provider.name for provider in find_all(type_name)]


def choose(type_name: str, wanted: str | None, host: Host) -> Provider:
    """Returns the given provider, or the preferred available one; raises `Failure` with the reasons if there is none."""
    reasons = []
    may_appear = False
    for provider in find_all(type_name):
        if wanted is not None and provider.name != wanted:
            continue
        reason = provider.unavailable(host)
        if reason is None:
            return provider.for_run()
        reasons.append(f"{provider.name}: {reason}")
        may_appear = may_appear or provider.may_appear(host)
    failed = Missing if may_appear else MissingForGood
    raise failed(f"no provider for {type_name} is available: {'; '.join(reasons)}")
