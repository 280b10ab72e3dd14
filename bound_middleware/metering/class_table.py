"""The table of chat model classes. A line is data: what the class's own package does, by class name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

Retries = Literal["clients", "cached_clients", "attempts", "none", "unknown"]
"""Where the client hides its retries.

* ``clients``: in provider clients held by the model (``root_client``, ``client``, and their async twins);
* ``cached_clients``: in clients built when first used, from ``max_retries``;
* ``attempts``: ``max_retries`` counts attempts, so that 1 means none;
* ``none``: it never retries;
* ``unknown``: nothing is known: assume that it does.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassFacts:
    """What is known about one class.

    Attributes:
        provider: hint for prices; ``None`` where the name of the model tells (LiteLLM) or nothing does.
        retries: where retries hide.
        default_retries: how many, when the model does not say.
    """

    provider: str | None
    retries: Retries = "unknown"
    default_retries: int = 2


_OPENAI_LIKE: Final[dict[str, str]] = {
    "ChatOpenAI": "openai", "BaseChatOpenAI": "openai", "AzureChatOpenAI": "azure",
    "AzureAIOpenAIApiChatModel": "azure",
    "ChatXAI": "x-ai", "ChatDeepSeek": "deepseek", "ChatTogether": "together",
}  # fmt: skip

_DOUBLES: Final = (
    "ScriptedChatModel", "GenericFakeChatModel", "FakeChatModel", "FakeListChatModel", "ParrotFakeChatModel",
    "FakeMessagesListChatModel", "FakeStreamingChatModel",
)  # fmt: skip

CLASSES: Final[Mapping[str, ClassFacts]] = MappingProxyType(
    {
        **{name: ClassFacts(provider=seller, retries="clients") for name, seller in _OPENAI_LIKE.items()},
        **{name: ClassFacts(provider=None, retries="none") for name in _DOUBLES},
        "ChatGroq": ClassFacts(provider="groq", retries="clients"),
        "ChatAnthropic": ClassFacts(provider="anthropic", retries="cached_clients"),
        "ChatAnthropicBedrock": ClassFacts(provider="aws", retries="cached_clients"),
        "ChatAnthropicVertex": ClassFacts(provider="google"),
        "ChatMistralAI": ClassFacts(provider="mistral", retries="attempts", default_retries=4),
        "ChatGoogleGenerativeAI": ClassFacts(provider="google", retries="attempts", default_retries=5),
        "ChatVertexAI": ClassFacts(provider="google", retries="attempts", default_retries=5),
        "ChatBedrockConverse": ClassFacts(provider="aws"),
        "ChatBedrock": ClassFacts(provider="aws"),
        "ChatOllama": ClassFacts(provider="ollama", retries="none"),
        "ChatLlamaCpp": ClassFacts(provider="llamacpp", retries="none"),
        "ChatLiteLLM": ClassFacts(provider=None),
        "ChatOpenRouter": ClassFacts(provider="openrouter"),
        "ChatFireworks": ClassFacts(provider="fireworks"),
        "ChatPerplexity": ClassFacts(provider="perplexity"),
        "ChatCohere": ClassFacts(provider="cohere"),
    }
)


def facts_of(model: Any) -> ClassFacts | None:
    """The line of the nearest class in the method resolution order, or ``None`` for a class that nobody knows."""
    names = (base.__name__ for base in type(model).__mro__)
    return next((CLASSES[name] for name in names if name in CLASSES), None)
