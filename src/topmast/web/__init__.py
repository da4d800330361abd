"""The dashboard: pages for people, drawn by the server from the views that ``--json`` prints.

A page is one module below ``pages/`` with a `Page`, one template, and a module of JavaScript if it
needs one. Nothing else has to know of it.
"""

from __future__ import annotations

from topmast.web.page import Ask as Ask
from topmast.web.page import Page as Page
from topmast.web.page import Replay as Replay
from topmast.web.page import Standing as Standing
from topmast.web.routes import STATIC as STATIC
from topmast.web.routes import routes as routes
