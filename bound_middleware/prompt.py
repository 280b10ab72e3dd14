"""The steering text of BOUND under the seed's path; their home is ``bound_middleware.decision``."""

from .decision.steering import MAX_WORDS, generate_prompt, steering_text, word_count

__all__ = ["MAX_WORDS", "generate_prompt", "steering_text", "word_count"]
