"""Health pages for aiohttp.

web_app.cleanup_ctx.append(app.cleanup_ctx)
web_app.add_subapp("/kafka", health_pages(app))
"""

from aiohttp import web

from asyncconsumer.web.mixin import WebMixin
from asyncconsumer.web.pages import PATHS, page


def health_pages(embedded: WebMixin) -> web.Application:
    """Return the pages of `WebMixin.asgi` as an aiohttp application."""

    async def answer(request: web.Request) -> web.Response:
        name = "/" + request.path.rpartition("/")[2]
        made = page(request.method, name, embedded.look)
        headers = {"Content-Type": made.content_type, "Cache-Control": "no-store"}
        return web.Response(status=made.status, body=made.body, headers=headers)

    pages = web.Application()
    pages.add_routes([web.get(path, answer) for path in PATHS])
    return pages
