"""What is made from the architectures' cards: tables, sizes, the zoo's rows, initial values."""

import re
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest
import torch
from zoo import dictionary, tiny_config, tiny_model, tiny_task

from fairseq_attn_zoo.initial_values import InitialValues, constant, zeros
from fairseq_attn_zoo.models import ARCHITECTURES, sizes, tables
from fairseq_attn_zoo.models.config import RecurrentConfig, check_flags, even, flag, number, option, probability, size

ROOT = Path(__file__).resolve().parents[1]
every_architecture = pytest.mark.parametrize("name", sorted(ARCHITECTURES))


def main(module, monkeypatch, *arguments) -> None:
    monkeypatch.setattr(sys, "argv", ["program", *map(str, arguments)])
    module.main()


# The tables


def test_the_readme_has_every_architecture_and_every_flag_of_its_own():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shared = {item.name for item in fields(RecurrentConfig)}
    for name, model in ARCHITECTURES.items():
        card = model.card
        rows = [line for line in text.splitlines() if line.startswith("| `") and f"`{name}`" in line]
        assert sum(card.summary in row and str(card.paper.year) in row for row in rows) == 1
        for item in fields(card.config):
            assert item.name in shared or sum(f"`{flag(item.name)}`" in row for row in rows) >= 1, item.name


def test_tables_are_written_between_their_markers_and_a_difference_is_named(tmp_path, monkeypatch):
    readme = tmp_path / "README.md"
    right = (ROOT / "README.md").read_text(encoding="utf-8")
    readme.write_text(right.replace("RNNsearch: additive attention", "a sentence of somebody's"), encoding="utf-8")
    with pytest.raises(
        SystemExit, match=r"README.md says something else than the architectures; run python -m .*tables"
    ):
        main(tables, monkeypatch, readme, "--check")
    assert "somebody's" in readme.read_text(encoding="utf-8")
    main(tables, monkeypatch, readme)
    assert readme.read_text(encoding="utf-8") == right
    main(tables, monkeypatch, readme, "--check")
    readme.write_text(right.replace("<!-- end of own flags -->", ""), encoding="utf-8")
    with pytest.raises(SystemExit, match="README.md: there is no <!-- own flags"):
        main(tables, monkeypatch, readme)


# Sizes


@every_architecture
def test_a_model_of_width_n_is_n_wide_everywhere(name):
    model = tiny_model(name, **sizes.sizes(name, 24))
    decoder = model.decoder.network
    assert {model.encoder.embed_tokens.embedding_dim, decoder.output_size} == {24}
    units = {parameter.size(1) for key, parameter in model.encoder.named_parameters() if "weight_hh" in key}
    widths = model.card.widths
    assert units == {widths.encoder_beside(24)}
    if widths.directions is not None:
        assert widths.directions * widths.encoder_beside(24) == 24


def test_the_sizes_command_prints_flags_or_overrides(monkeypatch, capsys):
    main(sizes, monkeypatch, "lstm_luong_attention", 16)
    flags = "--encoder-embed-dim 16 --encoder-hidden-size 8 --decoder-embed-dim 16 --decoder-hidden-size 16"
    assert capsys.readouterr().out == f"{flags} --attention-dim 16\n"
    main(sizes, monkeypatch, "lstm_luong_attention", 16, "--hydra")
    printed = capsys.readouterr().out.split()
    assert printed[0] == "model._name=lstm_luong_attention" and "++model.encoder_hidden_size=8" in printed
    for arguments, message in (
        (("lstm_luong_attention", 15), "sizes: --encoder-hidden-size must be half of .* 15 is odd"),
        (("transformer", 16), "sizes: no architecture 'transformer'; there are gru_coverage"),
        (("lstm", 16, "--hydra"), "sizes: no architecture 'lstm'"),
    ):
        with pytest.raises(SystemExit, match=message):
            main(sizes, monkeypatch, *arguments)


# Flags


@dataclass
class Declared(RecurrentConfig):
    encoder_hidden_size: int = even(RecurrentConfig, "encoder_hidden_size", "it is halved")
    beams: int = number(3, "how many", lowest=2, highest=5)
    chance: float = probability(0.5, "of something")
    width: int = size(4, "of something")
    other: str = option("", "anything")


@pytest.mark.parametrize(
    "values, message",
    [
        ({}, None),
        ({"beams": 2, "chance": 0.0, "width": 2**16, "other": "x", "encoder_hidden_size": 2}, None),
        ({"beams": None, "chance": None}, None),
        ({"beams": 1}, "--beams is 1; it must be from 2 to 5"),
        ({"chance": 1.0}, "--chance is 1.0; a dropout probability must be at least 0 and below 1"),
        ({"width": 0}, "--width is 0; it must be from 1 to 65536"),
        ({"encoder_hidden_size": 0}, "--encoder-hidden-size is 0; it must be from 1 to 65536"),
        ({"encoder_hidden_size": 3}, "--encoder-hidden-size is 3, which is odd; make it even: it is halved"),
    ],
    ids=str,
)
def test_a_value_is_checked_as_its_field_declares_it(values, message):
    config = {item.name: item.default for item in fields(Declared)}
    config |= {"max_source_positions": 5, "max_target_positions": 5, **values}
    if message is None:
        check_flags(Declared, config)
        return
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        check_flags(Declared, config)


# Initial values


def test_the_first_pattern_that_fits_fills_a_parameter_and_a_shared_one_is_filled_once():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    model[1].weight = model[0].weight
    rule = InitialValues({"0.*": constant(1.0), "*": constant(2.0)})
    rule.fill(model)
    assert (model[0].weight == 1).all() and (model[0].bias == 1).all() and (model[1].bias == 2).all()
    rule.but({"*.bias": zeros}).fill(model)
    assert (model[0].weight == 1).all() and (model[0].bias == 0).all() and (model[1].bias == 0).all()
    with pytest.raises(LookupError, match="the initial values say nothing of 0.bias"):
        InitialValues({"*.weight": zeros}).fill(model)


@every_architecture
def test_initial_values_are_the_rules_alone_whatever_constructors_draw(name, monkeypatch):
    model = ARCHITECTURES[name]
    first = tiny_model(name, keep_initial_values=True)
    build = model.build_networks.__func__

    def after_other_draws(cls, *arguments):
        torch.rand(7)
        encoder, decoder = build(cls, *arguments)
        for parameter in (*encoder.parameters(), *decoder.parameters()):
            torch.nn.init.constant_(parameter, 7.0)
        return encoder, decoder

    monkeypatch.setattr(model, "build_networks", classmethod(after_other_draws))
    second = tiny_model(name, keep_initial_values=True)
    for (key, expected), (_, found) in zip(first.named_parameters(), second.named_parameters(), strict=True):
        assert torch.equal(expected, found), key


@every_architecture
def test_a_rule_fills_everything_but_the_row_of_padding(name, monkeypatch):
    model = ARCHITECTURES[name]
    monkeypatch.setattr(model, "card", replace(model.card, initial_values=InitialValues({"*": constant(0.5)})))
    built = model.build_model(tiny_config(name), tiny_task())
    padding = dictionary().pad()
    for embedding in (built.encoder.embed_tokens, built.decoder.embed_tokens):
        assert (embedding.weight[padding] == 0).all()
        embedding.weight.data[padding] = 0.5
    assert all((parameter == 0.5).all() for parameter in built.parameters())
