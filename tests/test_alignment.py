"""Pharaoh alignments and the alignment error rate, by examples worked out by hand."""

import math

import pytest

from fairseq_attn_zoo.inspect import GoldAlignment, alignment_error_rate, parse_alignment, read_alignments


def test_sure_links_are_possible_too():
    sentence = parse_alignment("0-0 2?1 1-2")
    assert sentence.sure == {(0, 0), (1, 2)}
    assert sentence.possible == {(0, 0), (1, 2), (2, 1)}
    assert GoldAlignment(sure=[(3, 4)], possible=[]).possible == {(3, 4)}


def test_one_based_lines_become_zero_based():
    assert parse_alignment("1-1 3?2", one_based=True) == parse_alignment("0-0 2?1")


def test_an_empty_line_has_no_links():
    assert parse_alignment(" \n") == GoldAlignment()


@pytest.mark.parametrize("link", ["3", "1-", "-1", "1--2", "a-b", "1-2-3", "1:2", "0-0,1-1", "-1-2", "1 - 2", "٣-١"])
def test_malformed_links_are_named(link):
    with pytest.raises(ValueError, match="malformed link"):
        parse_alignment(f"0-0 {link}")


def test_word_zero_is_refused_when_words_count_from_one():
    with pytest.raises(ValueError, match="'0-1'.*counted from 1"):
        parse_alignment("1-1 0-1", one_based=True)


def test_files_keep_empty_lines_and_name_the_bad_one(tmp_path):
    path = tmp_path / "test.align"
    path.write_bytes(b"0-0\r\n\r\n1?1 0-1\r\n")
    assert [len(sentence.possible) for sentence in read_alignments(path)] == [1, 0, 2]
    path.write_text("0-0\n\n0-0 1-x\n")
    with pytest.raises(ValueError, match=r"test\.align, line 3: malformed link '1-x'"):
        read_alignments(path)
    path.write_text("")
    assert read_alignments(path) == []
    path.write_text("1-1\n3-2")
    assert [sentence.sure for sentence in read_alignments(path, one_based=True)] == [{(0, 0)}, {(2, 1)}]


def test_a_perfect_alignment():
    """All sure links, and of the possible ones whichever was chosen: nothing is wrong."""
    score = alignment_error_rate([{(0, 0), (1, 1)}], [parse_alignment("0-0 1?1 2?1")])
    assert (score.aer, score.precision, score.recall) == (0, 1, 1)


def test_counts_are_summed_over_the_corpus():
    """|A| = 5, |S| = 4, |A & S| = 2, |A & P| = 3. The mean over sentences would be another number."""
    gold = [parse_alignment("0-0 1-1 2?1"), parse_alignment("0-1 1-0")]
    predicted = [[(0, 0), (2, 1), (2, 2)], [(0, 1), (1, 1)]]
    score = alignment_error_rate(predicted, gold)
    assert score.precision == pytest.approx(3 / 5)
    assert score.recall == pytest.approx(2 / 4)
    assert score.aer == pytest.approx(1 - (2 + 3) / (5 + 4))


def test_source_and_target_are_not_interchangeable():
    assert alignment_error_rate([[(0, 1)]], [parse_alignment("1-0")]).aer == 1


def test_a_link_named_twice_counts_once():
    assert alignment_error_rate([[(0, 0), (0, 0)]], [parse_alignment("0-0")]).precision == 1


def test_ratios_without_a_denominator_are_not_numbers():
    nothing_predicted = alignment_error_rate([[]], [parse_alignment("0-0")])
    assert math.isnan(nothing_predicted.precision)
    assert (nothing_predicted.aer, nothing_predicted.recall) == (1, 0)
    nothing_sure = alignment_error_rate([[(0, 0)]], [parse_alignment("0?0")])
    assert math.isnan(nothing_sure.recall)
    assert (nothing_sure.aer, nothing_sure.precision) == (0, 1)
    with pytest.raises(ValueError, match="nothing to score"):
        alignment_error_rate([[]], [GoldAlignment()])


def test_different_numbers_of_sentences_are_refused():
    with pytest.raises(ValueError, match="1 predicted alignments, but 2 gold"):
        alignment_error_rate([[(0, 0)]], [GoldAlignment(), GoldAlignment()])
