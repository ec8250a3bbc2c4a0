#!/usr/bin/env python3
"""A Trainer of Hugging Face's whose training step is a program; all else of it stays as it is.

    python examples/in_process/trainer.py [--plain] [--program build/tracestep]
"""
import argparse
import tempfile

import torch
import tracestep
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class StepTrainer(Trainer):
    """Forward, backward, clipping and the update run in `training_step`; the Trainer's own optimizer.step() behind it
    finds no gradients and does nothing. Rates are its scheduler's, the moments are in its optimizer."""

    program = None

    def training_step(self, model, inputs, num_items_in_batch=None):
        if self.program is None:
            model.train()
            optimizer = getattr(self.optimizer, "optimizer", self.optimizer)  # Accelerate wraps it
            self.program = tracestep.step(model, optimizer=optimizer, clip=self.args.max_grad_norm or float("inf"),
                                          accumulate=self.args.gradient_accumulation_steps, check=False)
        loss = self.program(**{k: v for k, v in inputs.items() if k != "attention_mask"})
        return loss.to(self.args.device) / self.args.gradient_accumulation_steps

    def log(self, logs, *args, **kwargs):
        if "grad_norm" in logs:  # which the Trainer takes of gradients that are not there
            logs["grad_norm"] = self.program.grad_norm
        super().log(logs, *args, **kwargs)


def train(kind, steps=4):
    """The rows with losses that the Trainer logs, and the model."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                                         use_cache=False))
    rows = [torch.randint(0, 64, (16,)) for _ in range(8)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(output_dir=folder, max_steps=steps, per_device_train_batch_size=2, use_cpu=True,
                                      learning_rate=1e-2, weight_decay=0.1, max_grad_norm=1.0, logging_steps=1,
                                      report_to=[], disable_tqdm=True, save_strategy="no", seed=0, warmup_steps=1,
                                      lr_scheduler_type="cosine")
        trainer = kind(model=model, args=arguments, train_dataset=[{"input_ids": r, "labels": r} for r in rows])
        trainer.train()
    return [row for row in trainer.state.log_history if "loss" in row], model


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--program")
    options = parser.parse_args()
    if options.program:
        tracestep.use(options.program)
    for row in train(Trainer if options.plain else StepTrainer)[0]:
        print(row)
