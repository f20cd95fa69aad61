"""Life inside a web app: opened and closed with it, and pages that tell how it stands."""
