#!/usr/bin/env python3
"""Checks that the `course` and `best` forms are one model: same loss, same gradients, float64."""

import sys

import torch

import model


def gradients(lm, batch):
    lm.loss(*batch).backward()
    return {n: p.grad for n, p in lm.parameters.items()}


def main():
    config = model.Config(d_model=32, d_ff=64, layers=2, heads=4, vocab=97, context=16)
    parameters = model.init_parameters(config, seed=3, dtype=torch.float64)
    tokens = torch.randint(0, config.vocab, (2, 3, config.context))
    batch = (tokens[0], tokens[1])
    course = model.CourseModel(config, parameters)
    # Merging is a concatenation, so it applies to gradients as it does to weights.
    as_merged = model.BestModel(config, parameters).merged
    expected = as_merged(gradients(course, batch))
    einsum = as_merged(gradients(model.CourseModel(config, parameters, use_einsum=True), batch))
    worst = max(float((einsum[n] - want).norm() / want.norm()) for n, want in expected.items())
    for use_sdpa in (True, False):
        for use_rms_norm in (True, False):
            best = model.BestModel(config, parameters, use_sdpa, use_rms_norm)
            got = gradients(best, batch)
            for name, want in expected.items():
                worst = max(worst, float((got[name] - want).norm() / want.norm()))
    print(f"torch {torch.__version__}: worst relative gradient difference {worst:.1e}")
    return 0 if worst < 1e-10 else 1


if __name__ == "__main__":
    sys.exit(main())
