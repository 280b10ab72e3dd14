"""Messy model names, taken apart by rule: who sells the model, and under which exact names it may be listed.

Nothing here guesses. A prefix is removed only when it names a known provider; a suffix only when it is a version
(a date, ``-latest``, a Bedrock or Vertex version). ``gpt-5.2`` never becomes ``gpt-5``, ``m-5-mini-x`` never
``m-5-mini``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

#: What frameworks, gateways and routers write before a name -> the seller's id in the published table.
PROVIDERS: Final = {
    "openai": "openai", "text-completion-openai": "openai", "azure": "azure", "azure_openai": "azure",
    "azure-openai": "azure", "azure_ai": "azure", "anthropic": "anthropic", "anthropic_bedrock": "aws",
    "bedrock": "aws", "bedrock_converse": "aws", "amazon_bedrock": "aws", "aws": "aws", "amazon": "aws",
    "google": "google", "google_genai": "google", "google-genai": "google", "google_vertexai": "google",
    "google_anthropic_vertex": "google", "vertex_ai": "google", "vertexai": "google", "gemini": "google",
    "models": "google", "groq": "groq", "fireworks": "fireworks", "fireworks_ai": "fireworks", "mistral": "mistral",
    "mistralai": "mistral", "xai": "x-ai", "x-ai": "x-ai", "deepseek": "deepseek", "together": "together",
    "together_ai": "together", "togetherai": "together", "openrouter": "openrouter", "cohere": "cohere",
    "cohere_chat": "cohere", "perplexity": "perplexity", "moonshotai": "moonshotai", "moonshot": "moonshotai",
    "cerebras": "cerebras", "novita": "novita", "databricks": "databricks", "cloudflare": "cloudflare",
    "github_copilot": "github-copilot", "github-copilot": "github-copilot", "minimax": "minimax", "zai": "zai",
    "z-ai": "zai", "baseten": "baseten", "ovhcloud": "ovhcloud", "voyage": "voyageai", "voyageai": "voyageai",
}  # fmt: skip

#: Servers that run on somebody's own machine. Nothing is known about what they cost.
LOCAL_PROVIDERS: Final = frozenset(
    {"ollama", "ollama_chat", "llamacpp", "llama-cpp", "llama_cpp", "vllm", "hosted_vllm", "lmstudio", "lm_studio",
     "huggingface_local", "localai", "mlx", "gpt4all", "llamafile", "sglang", "xinference"}
)  # fmt: skip

#: Classes and gateways that speak the OpenAI protocol: the protocol says nothing about who sells the model.
PROTOCOL_PROVIDERS: Final = frozenset({"openai"})

#: An endpoint whose host nobody knows: a gateway, a proxy, a machine of one's own.
UNKNOWN_SELLER: Final = "?"

#: How a name that stands alone tells its maker.
_OWNERS: Final = (
    (re.compile(r"^(gpt-|chatgpt-|o[134](-|$)|ft:|text-embedding-|codex-|computer-use)"), "openai"),
    (re.compile(r"^claude-"), "anthropic"),
    (re.compile(r"^(gemini-|gemma-)"), "google"),
    (re.compile(r"^grok-"), "x-ai"),
    (re.compile(r"^deepseek-"), "deepseek"),
    (
        re.compile(r"^(labs-)?(mistral|codestral|devstral|magistral|ministral|pixtral|voxtral|open-mi(s|x)tral)"),
        "mistral",
    ),
    (re.compile(r"^(command|c4ai-)"), "cohere"),
    (re.compile(r"^sonar"), "perplexity"),
)

_BEDROCK_REGIONS: Final = r"(?:us|eu|apac|global|au|jp|ca|sa|in|us-gov)"
_BEDROCK_VENDORS: Final = (
    "amazon", "anthropic", "meta", "mistral", "cohere", "deepseek", "ai21", "openai", "qwen", "google", "nvidia",
    "moonshotai", "moonshot", "zai", "writer", "minimax", "stability", "twelvelabs", "luma",
)  # fmt: skip
_BEDROCK = re.compile(rf"^(?:{_BEDROCK_REGIONS}\.)?(?:{'|'.join(_BEDROCK_VENDORS)})\.")
_REGION_PREFIX = re.compile(rf"^{_BEDROCK_REGIONS}\.")
_VENDOR_PREFIX = re.compile(rf"^(?:{'|'.join(_BEDROCK_VENDORS)})\.")
_PREFIX = re.compile(r"^([a-z0-9_-]+)[:/](.+)$")
#: ``azure/eu/gpt-4o``, ``bedrock/us-east-1/anthropic...``, ``bedrock/converse/...`` of LiteLLM.
_ROUTE = re.compile(
    r"^(?:us|eu|global|global-standard|converse|converse_like|invoke|[a-z]{2}(?:-gov)?-[a-z]+-\d)/(.+)$"
)

#: Date suffixes that any table may carry: the only ones that a price of the user may be reached through.
DATE_SUFFIX = re.compile(
    r"-(?:20\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])|20\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01]))$"
)
_VERTEX_SUFFIX = re.compile(r"@(?:20\d{6}|latest|default)$")
_LATEST_SUFFIX = re.compile(r"-latest$")
_BEDROCK_SUFFIX = re.compile(r"(?::\d+(?::\d+k)?|-v\d+)$")
_GEMINI_SUFFIX = re.compile(r"-(?:\d{3}|(?:preview|exp)(?:-\d\d-\d\d(?:\d\d)?)?)$")
_GEMINI_DATE = re.compile(r"(?<=-preview)-\d\d-\d\d(?:\d\d)?$")
_AZURE_FINE_TUNE = re.compile(r"(?<=\.ft)-[0-9a-z-]+$")
_OPENAI_FINE_TUNE_DATE = re.compile(r"(?<=^ft:gpt-3\.5-turbo)-\d{4}$")
#: Routers write ``gpt-4o-20240513`` where the table has ``gpt-4o-2024-05-13``, which is dearer than ``gpt-4o``.
_COMPACT_DATE = re.compile(r"-(20\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])$")
_FINE_TUNE = re.compile(r"^(ft:[a-z0-9.-]+):.*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelName:
    """A name taken apart.

    Attributes:
        given: as it was given, without surrounding space.
        provider: the seller's id in the published table, or ``None`` when nothing tells.
        spellings: lower-case names to look for, the most literal first.
        local: a server on somebody's own machine is named; no price can be known.
    """

    given: str
    provider: str | None
    spellings: tuple[str, ...]
    local: bool = False


def parse(name: str, provider: str | None = None) -> ModelName:
    """The parts of ``name``; a provider in the name beats the hint ``provider``.

    >>> parse("us.anthropic.claude-haiku-4-5-20251001-v1:0").provider
    'aws'
    >>> parse("bedrock/us-east-1/anthropic.claude-3-haiku-20240307-v1:0").spellings[-1]
    'anthropic.claude-3-haiku-20240307-v1:0'
    """
    given = name.strip()
    text = given.lower()
    hint = provider.strip().lower() if provider else None
    seller = PROVIDERS.get(hint, hint) if hint else None
    local = seller in LOCAL_PROVIDERS
    spellings = [text]
    if text.startswith("arn:"):
        text = text.rsplit("/", 1)[-1]
        seller, spellings = "aws", [text]
    elif text.startswith(("projects/", "publishers/")) and "/models/" in text:
        text = text.rsplit("/models/", 1)[1]
        seller, spellings = "google", [text]
    while (found := _PREFIX.match(text)) and not text.startswith("accounts/"):
        prefix, rest = found.groups()
        if prefix == "ft":
            text = _FINE_TUNE.sub(r"\1", text) if ":" in rest else text
            seller = seller or "openai"
            spellings.append(text)
            break
        if prefix in LOCAL_PROVIDERS:
            return ModelName(given=given, provider=None, spellings=(rest,), local=True)
        if prefix not in PROVIDERS or (seller is not None and _sold_under_prefix(seller)):
            break
        seller, text = PROVIDERS[prefix], rest
        if route := _ROUTE.match(text):
            text = route.group(1)
        spellings.append(text)
    if text.startswith("accounts/fireworks/"):
        seller = "fireworks"
    elif seller is None and _BEDROCK.match(text):
        seller = "aws"
    return ModelName(given=given, provider=None if local else seller, spellings=_unique(spellings), local=local)


def _sold_under_prefix(seller: str) -> bool:
    """Sellers whose own names begin with the maker's: the prefix is part of the name."""
    return seller in (
        "openrouter",
        "groq",
        "together",
        "novita",
        "fireworks",
        "cerebras",
        "baseten",
        "cloudflare",
    ) or (seller.startswith("huggingface"))


def owner_of(spelling: str) -> str | None:
    """The maker that a bare name tells, as the seller's id in the published table."""
    return next((seller for pattern, seller in _OWNERS if pattern.match(spelling)), None)


def without_date(name: str) -> str | None:
    """``name`` without one date suffix (``-YYYY-MM-DD`` or ``-YYYYMMDD``), or ``None`` when it has none."""
    shorter = DATE_SUFFIX.sub("", name)
    return shorter if shorter and shorter != name else None


def reductions(spelling: str, provider: str | None) -> tuple[str, ...]:
    """``spelling`` and what is left of it when versions are removed one by one, the longest first.

    Bedrock's region and vendor, Vertex's ``@`` versions and Gemini's ``-001`` and ``-preview-05-06`` are
    removed for those sellers only.
    """
    suffixes = [DATE_SUFFIX, _LATEST_SUFFIX, _VERTEX_SUFFIX]
    if provider in ("aws", "google"):
        suffixes.append(_BEDROCK_SUFFIX)
    if provider == "google":
        suffixes += [_GEMINI_SUFFIX, _GEMINI_DATE]
    if provider == "azure":
        suffixes.append(_AZURE_FINE_TUNE)
    if provider == "openai":
        suffixes.append(_OPENAI_FINE_TUNE_DATE)
    prefixes = [_REGION_PREFIX, _VENDOR_PREFIX] if provider == "aws" else []
    seen = [spelling, _COMPACT_DATE.sub(r"-\1-\2-\3", spelling)]
    for current in seen:
        for pattern in (*suffixes, *prefixes):
            shorter = pattern.sub("", current, count=1)
            if shorter and shorter not in seen:
                seen.append(shorter)
    return tuple(sorted(dict.fromkeys(seen), key=len, reverse=True))


def _unique(names: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
