"""Linear layers with products of 8 bits, as torchao has them (`pip install torchao`; measured with 0.17.0).

A precision is one of its recipes: `fp8` has one scale for a tensor, `fp8-row` one for each row.
"""

import functools

import torch

RECIPES = {"fp8": "tensorwise", "fp8-row": "rowwise"}


def config_of(precision):
    from torchao.float8 import Float8LinearConfig
    return Float8LinearConfig.from_recipe_name(RECIPES[precision])


@functools.cache
def linear_of(precision):
    """What stands for F.linear(x, weight) in that precision: the layer of torchao without its module."""
    from torchao.float8.float8_linear import Float8Linear, matmul_with_hp_or_float8_args
    with torch.device("meta"):
        layer = Float8Linear(16, 16, bias=False, config=config_of(precision))

    def linear(x, weight):
        return matmul_with_hp_or_float8_args.apply(x.to(torch.bfloat16), weight.t(),
                                                   layer.linear_mm_config, layer.config)

    return linear


def convert(model, precision):
    """The model with all of its linear layers but the head in that precision."""
    from torchao.float8 import convert_to_float8_training
    return convert_to_float8_training(model, config=config_of(precision),
                                      module_filter_fn=lambda _, name: name != "lm_head")
