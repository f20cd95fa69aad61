"""Health pages for aiohttp.

web_app.cleanup_ctx.append(app.cleanup_ctx)
web_app.add_subapp("/kafka", health_pages(app))
"""

from aiohttp import web

from asyncconsumer.web.mixin import WebMixin
from asyncconsumer.web.pages import PATHS, page


def health_pages(app: WebMixin) -> web.Application:
    """Return the health pages of `WebMixin.asgi` as an aiohttp application."""

    async def respond(request: web.Request) -> web.Response:
        name = "/" + request.path.rpartition("/")[2]
        response = page(request.method, name, app.status_by_worker)
        headers = {"Content-Type": response.content_type, "Cache-Control": "no-store"}
        return web.Response(status=response.status, body=response.body, headers=headers)

    pages = web.Application()
    pages.add_routes([web.get(path, respond) for path in PATHS])
    return pages
