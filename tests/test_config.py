"""Flags that all architectures have: what they do, and values that are refused with one clear line."""

import pytest
from zoo import ARCHITECTURES, dictionary, tiny_model

every_architecture = pytest.mark.parametrize("name", sorted(ARCHITECTURES))


@every_architecture
@pytest.mark.parametrize(
    "flag, value",
    [
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("encoder_dropout_in", 1.5),
        ("decoder_dropout_out", -1.0),
        ("encoder_embed_dim", 0),
        ("decoder_hidden_size", -4),
        ("encoder_layers", 0),
    ],
)
def test_a_value_out_of_range_is_refused_by_its_flag(name, flag, value):
    with pytest.raises(ValueError, match=f"--{flag.replace('_', '-')} is {value}"):
        tiny_model(name, **{flag: value})


@every_architecture
def test_different_depths_are_refused_with_both_flags(name):
    with pytest.raises(ValueError, match=r"--encoder-layers \(2\) and --decoder-layers \(1\)"):
        tiny_model(name, encoder_layers=2)


@every_architecture
def test_left_padded_targets_are_refused(name):
    with pytest.raises(ValueError, match="--left-pad-target"):
        tiny_model(name, task_flags={"left_pad_target": True})


@every_architecture
def test_shared_embeddings_are_one_matrix(name):
    width = tiny_model(name).decoder.network.output_size
    shared = tiny_model(name, share_all_embeddings=True, encoder_embed_dim=width, decoder_embed_dim=width)
    matrices = (
        shared.encoder.embed_tokens.weight,
        shared.decoder.embed_tokens.weight,
        shared.decoder.output_projection.weight,
    )
    assert len({matrix.data_ptr() for matrix in matrices}) == 1
    tied = tiny_model(name, share_decoder_input_output_embed=True, decoder_embed_dim=width)
    assert tied.decoder.output_projection.weight is tied.decoder.embed_tokens.weight
    assert tied.encoder.embed_tokens.weight is not tied.decoder.embed_tokens.weight


@every_architecture
def test_sharing_with_the_output_layer_needs_equal_widths(name):
    with pytest.raises(ValueError, match=r"--decoder-embed-dim \(5\).*width"):
        tiny_model(name, share_decoder_input_output_embed=True, decoder_embed_dim=5)


@every_architecture
def test_pretrained_embeddings_are_read_and_a_wrong_width_is_named(name, tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("2 5\nw0 1 2 3 4 5\nw3 5 4 3 2 1\n")
    embedding = tiny_model(
        name, keep_initial_values=True, encoder_embed_dim=5, encoder_embed_path=str(path)
    ).encoder.embed_tokens
    assert embedding.weight[dictionary().index("w3")].tolist() == [5, 4, 3, 2, 1]
    assert embedding.weight[dictionary().pad()].abs().sum() == 0
    with pytest.raises(ValueError, match="5 values.*6 wide"):
        tiny_model(name, encoder_embed_dim=6, encoder_embed_path=str(path))


@every_architecture
def test_frozen_embeddings_do_not_train(name):
    model = tiny_model(name, encoder_freeze_embed=True, decoder_freeze_embed=True)
    assert not model.encoder.embed_tokens.weight.requires_grad
    assert not model.decoder.embed_tokens.weight.requires_grad
    assert model.decoder.output_projection.weight.requires_grad
