"""A web page that shows the records of a topic as they arrive.

Variables set the options of the consumer. docs/configuration.md describes them.

export ASYNCCONSUMER_BOOTSTRAP_SERVERS=localhost:9092 TOPIC=orders
uvicorn examples.live_page:api
"""

import os

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from asyncconsumer.browser import TopicEvents

TOPIC = os.environ.get("TOPIC", "orders")
SERVERS = os.environ.get("ASYNCCONSUMER_BOOTSTRAP_SERVERS", "localhost:9092")
PAGE = """\
<!doctype html>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Orders</title>
<h1>Orders</h1>
<p id="state">connecting</p>
<ol id="orders"></ol>
<script>
const source = new EventSource("events/");  // reconnects by itself, and continues at the last event
source.addEventListener("start", () => { state.textContent = "live"; });
source.addEventListener("error", () => { state.textContent = "reconnecting"; });
source.addEventListener("message", (event) => {
  const item = document.createElement("li");
  item.textContent = JSON.parse(event.data).value;  // as text, because it may contain markup
  orders.prepend(item);
  if (orders.children.length > 100) orders.lastElementChild.remove();
});
</script>
"""

api = FastAPI()
api.mount("/events", TopicEvents(TOPIC, bootstrap_servers=SERVERS))


@api.get("/", response_class=HTMLResponse)
def page() -> str:
    """Return the page."""
    return PAGE
