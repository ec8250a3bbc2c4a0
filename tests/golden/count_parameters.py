#!/usr/bin/env python3
"""Counts the parameters of published models by transformers, on its meta device: the numbers of
tests/nn/known_models_test.cpp. Reads a line for each model from stdin, with tabs between its name, its
model_type and the fields of its config.json:

    printf 'gpt2\\tgpt2\\t{}\\n' | python3 tests/golden/count_parameters.py
"""
import json
import sys

import torch
import transformers

for line in sys.stdin:
    name, family, fields = line.rstrip("\n").split("\t")
    config = transformers.AutoConfig.for_model(family, **json.loads(fields))
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    print(name, model.num_parameters())
