"""Reads the actual state of one resource, without a manifest. Used by `mainstay status`."""

from __future__ import annotations

from mainstay.converge import providers, resources
from mainstay.converge.apply import Options
from mainstay.converge.contract import Provider, Resource, ResourceType, State
from mainstay.converge.failures import Failure, Missing
from mainstay.converge.redaction import redact_state, secret_names
from mainstay.converge.run import RunRequest, Session
from mainstay.foundation import Any
from mainstay.foundation.suggestions import did_you_mean


def read_state(type_name: str, name: str, provider_name: str | None) -> dict[str, Any]:
    """Returns the actual state of one resource, without a manifest."""
    _, resource_type, wanted, provider, state = _read_alone(type_name, name, provider_name)
    redact_state(state, secret_names(resource_type.properties))
    return {"resource": wanted.id, "provider": provider.name, **state.as_json()}


def read_entry(type_name: str, name: str, provider_name: str | None) -> tuple[dict[str, Any], list[str]]:
    """Returns the properties with which a manifest keeps the actual state of one resource, and what they leave out."""
    session, resource_type, wanted, _, state = _read_alone(type_name, name, provider_name)
    properties = resource_type.manifest_entry(state)
    if properties is None:
        raise Failure(f"{type_name}: a manifest cannot be written from a state of this type")
    left_out = [
        f"{key} is left out: it is a secret"
        for key in secret_names(resource_type.properties)
        if getattr(state, key, None)
    ]
    if session.host.held_secret(name):
        left_out.append("content is left out: a run wrote a secret to it")
    else:
        text = state.text(session.host.files)
        if text is not None:
            properties["content"] = as_text(text)
    table = resource_type.properties
    typed = {key: table[key].kind.accept(value) if key in table else value for key, value in properties.items()}
    for key, problem in resource_type.check(resource_type.resource({**wanted.__dict__, **typed})):
        # The host has what a manifest may not give.
        if key in properties:
            del properties[key]
            left_out.append(f"{key} is left out: {problem}")
    return {key: value for key, value in properties.items() if value is not None}, left_out


def as_text(text: str) -> str:
    """Returns the template that gives exactly this text."""
    return text.replace("{{", "{{ '{{' }}")


def _read_alone(
    type_name: str, name: str, provider_name: str | None
) -> tuple[Session, ResourceType, Resource, Provider, State]:
    session = Session(RunRequest(options=Options(noop=True)))
    resource_type = resources.find(type_name)
    if resource_type is None:
        suggestion = did_you_mean(type_name, resources.names())
        raise Missing(f"unknown resource type {type_name!r}{suggestion}; known types: {', '.join(resources.names())}")
    if resource_type.composes:
        raise Failure(f"{type_name} has no state of its own; it applies a manifest")
    if not resource_type.from_command_line:
        raise Failure(f"a {type_name} has no state by its name alone; use it in a manifest")
    for problem in resource_type.check_name(name):
        raise Failure(f"{type_name}#{name}: {problem}")
    given = {"type": type_name, "name": name, "id": f"{type_name}#{name}", "place": ()}
    wanted = resource_type.resource(given)
    provider = providers.choose(type_name, provider_name, session.host)
    state: State = provider.read_forecast(wanted, session.host, refresh=True)
    state.complete(session.host.files)
    return session, resource_type, wanted, provider, state
