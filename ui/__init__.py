"""The chat in the browser: a page over a server's API, which it asks by the server's client alone (`app.client`).

| module | does |
|---|---|
| `__main__` | starts Streamlit with this page; `ragcache ui` runs it |
| `frame` | what Streamlit runs at each click: the look, the door, and the page that is open |
| `access` | who sits in front of it: the server, the key, the page's memory of this tab |
| `markup` | texts as HTML that does nothing but show them |
| `bridge` | clicks and keys on that HTML, and what the browser's tab remembers |
| `chat`, `documents`, `cache`, `settings` | a page each |

Streamlit runs `frame` from its beginning at each click and ends the run before it, so nothing that must last is in a
run: answers and ingests belong to the server, and what is open stands in the page's address.
"""
