"""Settings of the server: precedence, and messages about invalid values."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstay.control.settings import BadSettings, load_settings


def test_precedence_is_flags_then_environment_then_file(tmp_path: Path) -> None:
    config = tmp_path / "server.toml"
    config.write_text('host = "a"\nport = 1\nrate-limit = 2\n')
    environment = {"MAINSTAY_PORT": "3", "MAINSTAY_HOST": "b", "HOME": "/h", "MAINSTAY_LOG_LEVEL": ""}
    settings = load_settings({"host": "c", "port": None}, environment, str(config))
    assert (settings.host, settings.port, settings.rate_limit, settings.log_level) == ("c", 3, 2, "info")
    assert settings.data_dir == "/h/.local/share/mainstay"


@pytest.mark.parametrize(
    ("flags", "environment", "file", "expected"),
    [
        ({"port": 99999}, {}, "", "--port: must be an integer from 0 to 65535, not '99999'"),
        ({}, {"MAINSTAY_HEALTH_PORT": "x"}, "", "MAINSTAY_HEALTH_PORT: must be an integer from 0 to 65535, not 'x'"),
        ({}, {"MAINSTAY_RATE_LIMIT": "-1"}, "", "MAINSTAY_RATE_LIMIT: must be an integer from 0, not '-1'"),
        (
            {},
            {"MAINSTAY_LOG_LEVEL": "loud"},
            "",
            "MAINSTAY_LOG_LEVEL: must be one of debug, info, warning, error, not 'loud'",
        ),
        (
            {},
            {"MAINSTAY_PUBLIC_URL": "https://a;id"},
            "",
            (
                "MAINSTAY_PUBLIC_URL: must be an address such as https://plane.example.org or https://example.org/plane,"
                " not 'https://a;id'"
            ),
        ),
        ({}, {}, "host = 5", "host in FILE: must be text, not '5'"),
        ({}, {}, "prot = 5", "prot in FILE: there is no such setting (did you mean 'port'?)"),
        ({}, {}, "port =", "FILE is not TOML: Invalid value (at end of document)"),
    ],
)
def test_an_invalid_setting_is_reported_with_its_source(
    flags: dict[str, object], environment: dict[str, str], file: str, expected: str, tmp_path: Path
) -> None:
    config = tmp_path / "server.toml"
    config.write_text(file)
    with pytest.raises(BadSettings) as refusal:
        load_settings(flags, environment, str(config))
    assert str(refusal.value) == expected.replace("FILE", str(config))
