"""Cross-origin requests (CORS): which pages of other origins may call the API from a browser."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mainstay.control.api.asgi import HttpRequest, HttpResponse

EXPOSED = "ETag, X-Request-Id"
METHODS = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"
# Browsers send these without asking.
SIMPLE_HEADERS = {"Accept", "Accept-Language", "Content-Language", "Content-Type"}
PREFLIGHT_SECONDS = 600


@dataclass(frozen=True, slots=True)
class CrossOrigin:
    origins: re.Pattern[str]
    # Whether the setting has the origin `*`.
    is_open: bool

    def answer_preflight(self, request: HttpRequest) -> HttpResponse:
        origin = request.headers["origin"]
        if not self.origins.fullmatch(origin):
            return HttpResponse(b"Disallowed CORS Origin", 400, media_type="text/plain")
        headers = {"Access-Control-Max-Age": str(PREFLIGHT_SECONDS), "Access-Control-Allow-Methods": METHODS}
        headers |= {"Access-Control-Allow-Origin": "*"} if self.is_open else _only(origin)
        wanted = {name.strip() for name in request.headers.get("access-control-request-headers", "").split(",")} - {
            ""
        }
        if wanted:
            headers["Access-Control-Allow-Headers"] = ", ".join(sorted(wanted | SIMPLE_HEADERS))
        return HttpResponse(status=204, headers=headers)

    def headers(self, request: HttpRequest) -> dict[str, str]:
        """Of the response to any request that is not a preflight."""
        origin = request.headers.get("origin")
        if not origin or is_preflight(request):
            return {}
        headers = {
            "Access-Control-Expose-Headers": EXPOSED,
            "Access-Control-Allow-Headers": "*",
            "Access-Control-Allow-Methods": "*",
        }
        # A browser refuses `*` for a request with cookies.
        if self.is_open and "cookie" not in request.headers:
            return headers | {"Access-Control-Allow-Origin": "*"}
        return headers | (_only(origin) if self.origins.fullmatch(origin) else {})


def is_preflight(request: HttpRequest) -> bool:
    """Whether a browser asks before it sends a request."""
    return request.method == "OPTIONS" and bool(request.headers.get("origin"))


def _only(origin: str) -> dict[str, str]:
    return {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}


def parse_origins(setting: str) -> CrossOrigin | None:
    """Origins are separated by commas; `*` in one matches any text. None: the setting is empty."""
    origins = [origin.strip() for origin in setting.split(",") if origin.strip()]
    if not origins:
        return None
    pattern = "|".join(re.escape(origin).replace(r"\*", ".*") for origin in origins)
    return CrossOrigin(re.compile(pattern), "*" in origins)
