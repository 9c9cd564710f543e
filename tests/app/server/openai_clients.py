"""OpenAI's own client, of a server of ours."""

from __future__ import annotations

import httpx2
from openai import AsyncOpenAI, OpenAI


def openai_of(client: httpx2.Client, key: str = "none") -> OpenAI:
    return OpenAI(base_url=f"{client.base_url}/v1", api_key=key, max_retries=0)


def async_openai_of(client: httpx2.Client) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{client.base_url}/v1", api_key="none", max_retries=0)
