"""From subwords to words, by examples worked out by hand."""

import numpy as np
import pytest

from fairseq_attn_zoo.inspect.subwords import join_subwords, links_of, word_weights


@pytest.mark.parametrize(
    "scheme, tokens",
    [
        ("subword_nmt", ["the", "lo@@", "we@@", "st", "price"]),
        ("sentencepiece", ["▁the", "▁lo", "we", "st", "▁price"]),
    ],
)
def test_subwords_become_words(scheme, tokens):
    assert join_subwords(tokens, scheme) == (["the", "lowest", "price"], [0, 1, 1, 1, 2])


def test_without_subwords_every_token_is_a_word():
    assert join_subwords(["a@@", "▁b"]) == (["a@@", "▁b"], [0, 1])
    assert join_subwords([], "subword_nmt") == ([], [])


def test_a_sentence_may_end_within_a_word_and_begin_without_its_sign():
    assert join_subwords(["a", "b@@"], "subword_nmt") == (["a", "b"], [0, 1])
    assert join_subwords(["a", "▁b"], "sentencepiece") == (["a", "b"], [0, 1])


def test_a_lone_sign_of_sentencepiece_belongs_to_the_piece_after_it():
    assert join_subwords(["▁", "the", "▁dog", "▁", "▁cat", "<unk>"], "sentencepiece") == (
        ["the", "dog", "cat", "<unk>"],
        [0, 0, 1, 2, 2, 3],
    )


def test_another_scheme_is_refused():
    with pytest.raises(ValueError, match="'morfessor'; there are subword_nmt, sentencepiece"):
        join_subwords(["a"], "morfessor")


def test_a_word_attends_like_the_mean_of_its_subwords_and_to_all_of_a_words_subwords_together():
    weights = np.array([[0.1, 0.2, 0.3, 0.4], [0.5, 0.1, 0.2, 0.2], [0.0, 0.0, 0.9, 0.1]])  # the last column is </s>
    source = join_subwords(["a@@", "b", "c"], "subword_nmt")
    target = join_subwords(["x@@", "y", "z"], "subword_nmt")
    joined = word_weights(weights, source, target)
    np.testing.assert_allclose(joined, [[0.45, 0.25, 0.3], [0.0, 0.9, 0.1]])
    np.testing.assert_allclose(joined.sum(axis=1), 1)


def test_links_leave_the_end_of_the_sentence_out_or_count_it_as_no_link():
    weights = np.array([[0.1, 0.2, 0.7], [0.6, 0.3, 0.1]])
    assert links_of(weights, 2) == [(1, 0), (0, 1)]
    assert links_of(weights, 2, null=True) == [(0, 1)]
    assert links_of(weights[:, 2:], 0) == []
