#!/usr/bin/env python3
"""Writes src/nn/harmless_fields.inc: the fields of a config.json that say nothing of the model, as the
base classes PretrainedConfig and GenerationConfig of transformers write them into every file.

    pip download --no-deps transformers==VERSION -d DIR      (of each version that counts)
    python3 tools/harmless_fields.py DIR/*.whl > src/nn/harmless_fields.inc

The sources in the wheels are parsed, and not run. Fields of a base class that do change a model are
left out by name below: a reader of a family asks for them, or they are refused.
"""
import ast
import pathlib
import re
import sys
import textwrap
import zipfile

FILES = ("transformers/configuration_utils.py", "transformers/generation/configuration_utils.py")
CLASSES = ("PretrainedConfig", "PreTrainedConfig", "GenerationConfig")

# Attributes of the base classes that change what a model computes, or how its weights are stored.
WITH_MEANING = {"tie_word_embeddings", "is_encoder_decoder", "add_cross_attention", "pruned_heads",
                "rope_parameters", "rope_scaling", "rope_theta", "per_layer_config", "sub_configs",
                "attribute_map", "quantization_config", "base_config_key"}


def text_of(node):
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return {node.value} if is_text else set()


def fields_of(method):
    """Arguments, attributes that are set, and what is taken out of the keywords."""
    arguments = method.args.args + method.args.kwonlyargs
    out = {a.arg for a in arguments if a.arg != "self"}
    for node in ast.walk(method):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            out |= {t.attr for t in targets if isinstance(t, ast.Attribute)
                    and isinstance(t.value, ast.Name) and t.value.id == "self"}
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if is_call and node.func.attr in ("pop", "get") and node.args:
            out |= text_of(node.args[0])
    return out


def fields_of_class(body):
    out = set()
    for node in body:
        is_method = isinstance(node, ast.FunctionDef)
        if is_method and node.name in ("__init__", "__post_init__"):
            out |= fields_of(node)
        elif is_method and "generation_defaults" in node.name or (
                is_method and node.name == "_get_default_generation_params"):
            for part in ast.walk(node):
                if isinstance(part, ast.Dict):
                    out |= {key for k in part.keys if k is not None for key in text_of(k)}
        elif isinstance(node, ast.AnnAssign) and "ClassVar" not in ast.dump(node.annotation):
            out.add(node.target.id)
    return out


def main():
    fields, versions = set(), []
    for path in map(pathlib.Path, sys.argv[1:]):
        versions.append(re.match(r"transformers-([^-]+)-", path.name)[1])
        with zipfile.ZipFile(path) as wheel:
            for name in set(FILES) & set(wheel.namelist()):
                for node in ast.parse(wheel.read(name)).body:
                    if isinstance(node, ast.ClassDef) and node.name in CLASSES:
                        fields |= fields_of_class(node.body)
    fields -= WITH_MEANING
    print(f"// Made by tools/harmless_fields.py of transformers {', '.join(versions)}.")
    lines = ", ".join(f'"{f}"' for f in sorted(fields))
    print("\n".join(textwrap.wrap(lines, 98, break_on_hyphens=False)))


if __name__ == "__main__":
    main()
