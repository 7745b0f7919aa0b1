"""Agent types: which service types an agent can serve, which providers serve others, and how agents are configured."""

from __future__ import annotations

from mainstay.nouns import CLI, IDS, MEDIA_TYPE, NAME, OBJECT, TEXT, Member, Noun, PlaneKind

NOUN = Noun(
    "agent_type",
    "agent type",
    "/agent-types",
    (
        Member("name", NAME, "name of the agent type", required=True),
        Member(
            "serviceTypeIds",
            IDS,
            "service types that its agents serve",
            label="Serves",
            hint="",
            default=[],
            refers_to="/service-types",
            short="serviceTypes",
        ),
        Member(
            "providerIds",
            IDS,
            "participants whose agents may serve all participants",
            label="Providers that may serve other participants",
            heading="Providers",
            hint="Agents of other providers serve their own participant only.",
            default=[],
            refers_to="/participants",
            short="providers",
        ),
        Member(
            "configurationSchema",
            OBJECT,
            "schema of agent configurations",
            label="Schema of the configuration",
            hint="JSON or YAML, as a property schema.",
            listed=False,
            lines=6,
        ),
        Member(
            "configTemplate",
            TEXT,
            "template of install configurations",
            label="Template of the configuration file",
            hint="",
            listed=False,
            lines=6,
        ),
        Member(
            "cmdTemplate",
            TEXT,
            "template of install commands",
            label="Template of the install command",
            hint="For agents that are not Mainstay’s. Contains {{.configUrl}} and {{.authToken}}.",
            listed=False,
            lines=2,
        ),
        Member(
            "configContentType",
            MEDIA_TYPE,
            "media type of install configurations",
            label="Content type of the configuration file",
            hint="Such as application/yaml.",
            listed=False,
        ),
    ),
    plane=(PlaneKind("agentTypes", "agent types, by name", is_global=True),),
    left_out={CLI: "`agents add` makes one for its service types, `agents grant` and `withdraw` set the providers"},
)
