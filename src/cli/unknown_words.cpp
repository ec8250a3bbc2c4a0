#include "cli/unknown_words.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <vector>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/suggest.h"
#include "nn/config.h"

namespace tracestep::cli {
namespace {

// Flags of nanoGPT, llm.c, transformers, accelerate, torchrun, DeepSpeed, vLLM and llama.cpp.
constexpr FlagElsewhere kElsewhere[] = {
    {"--learning-rate", "--lr"},
    {"--max-lr", "--lr"},
    {"--lr-max", "--lr"},
    {"--min-lr", "--lr-min"},
    {"--lr-scheduler-type", "--schedule"},
    {"--lr-scheduler", "--schedule"},
    {"--lr-schedule", "--schedule"},
    {"--lr-decay", "--schedule"},
    {"--decay-lr", "--schedule"},
    {"--warmup-iters", "--warmup-steps"},
    {"--num-warmup-steps", "--warmup-steps"},
    {"--lr-warmup-steps", "--warmup-steps"},
    {"--lr-warmup", "--warmup-steps"},
    {"--wd", "--weight-decay"},
    {"--grad-clip", "--clip"},
    {"--max-grad-norm", "--clip"},
    {"--max-iters", "--steps"},
    {"--iters", "--steps"},
    {"--num-steps", "--steps"},
    {"--num-iterations", "--steps"},
    {"--num-train-steps", "--steps"},
    {"--max-steps", "--steps"},
    {"--runs", "--steps"},
    {"--eval-interval", "--validate-every"},
    {"--eval-steps", "--validate-every"},
    {"--eval-iters", "--validation-batches"},
    {"--adam-beta1", "--beta1"},
    {"--adam-beta2", "--beta2"},
    {"--adam-epsilon", "--eps"},
    {"--log-interval", "--log-every"},
    {"--logging-steps", "--log-every"},
    {"--save-steps", "--checkpoint-every"},
    {"--batch-size", "--batch"},
    {"--bs", "--batch"},
    {"--train-batch-size", "--batch"},
    {"--per-device-train-batch-size", "--batch"},
    {"--global-batch-size", "--batch"},
    {"--block-size", "--context"},
    {"--seq", "--context"},
    {"--seq-len", "--context"},
    {"--seqlen", "--context"},
    {"--seq-length", "--context"},
    {"--sequence-length", "--context"},
    {"--max-seq-len", "--context"},
    {"--max-seq-length", "--context"},
    {"--max-model-len", "--context"},
    {"--context-length", "--context"},
    {"--ctx", "--context"},
    {"--ctx-size", "--context"},
    {"--n-ctx", "--context"},
    {"--gradient-accumulation-steps", "--accumulate"},
    {"--grad-accum", "--accumulate"},
    {"--gradient-checkpointing", "--recompute"},
    {"--activation-checkpointing", "--recompute"},
    {"--out-dir", "--checkpoint"},
    {"--output-dir", "--checkpoint"},
    {"--resume-from-checkpoint", "--resume"},
    {"--checkpoint", "--init"},
    {"--checkpoint-dir", "--init"},
    {"--ckpt", "--init"},
    {"--weights", "--init"},
    {"--init-from", "--init"},
    {"--model-name", "--model"},
    {"--model-path", "--model"},
    {"--model-name-or-path", "--model"},
    {"--dataset", "--data"},
    {"--packing", "--pack"},
    {"--dtype", "--precision"},
    {"--torch-dtype", "--precision"},
    {"--mixed-precision", "--precision"},
    {"--bf16", "--precision"},
    {"--fp16", "--precision"},
    {"--amp", "--precision"},
    {"--compile", "--executor"},
    {"--flash", "--attention"},
    {"--flash-attention", "--attention"},
    {"--attn-implementation", "--attention"},
    {"--gpus", "--parallel"},
    {"--num-gpus", "--gpus"},
    {"--num-gpus", "--parallel"},
    {"--n-gpus", "--gpus"},
    {"--n-gpus", "--parallel"},
    {"--nproc-per-node", "--gpus"},
    {"--nproc-per-node", "--parallel"},
    {"--world-size", "--gpus"},
    {"--world-size", "--parallel"},
    {"--fsdp", "--parallel"},
    {"--ddp", "--parallel"},
    {"--zero", "--parallel"},
    {"--zero-stage", "--parallel"},
    {"--tp", "--parallel"},
    {"--dp", "--parallel"},
    {"--tensor-parallel-size", "--parallel"},
    {"--gpu", "--published"},
    {"--gpu", "--device"},
    {"--gpu-memory", "--memory-limit"},
    {"--max-memory", "--memory-limit"},
    {"--vram", "--memory-limit"},
    {"--max-new-tokens", "--max-tokens"},
    {"--n-predict", "--max-tokens"},
    {"--n-layer", "--layers"},
    {"--num-layers", "--layers"},
    {"--num-hidden-layers", "--layers"},
    {"--n-head", "--heads"},
    {"--num-heads", "--heads"},
    {"--num-attention-heads", "--heads"},
    {"--num-key-value-heads", "--kv-heads"},
    {"--n-embd", "--d-model"},
    {"--hidden-size", "--d-model"},
    {"--intermediate-size", "--d-ff"},
    {"--vocab-size", "--vocab"},
    {"--lora-r", "--lora"},
    {"--lora-rank", "--lora"},
    {"--lora-alpha", "--lora"},
    {"--lora-dropout", "--lora"},
    {"--peft", "--lora"},
    {"--use-peft", "--lora"},
};

// Flags that people ask for and no command has yet.
struct Missing {
  std::string_view word;  // with which the flag begins
  std::string_view what;
};
constexpr Missing kMissing[] = {
    {"--qlora", "4-bit weights are not there yet; adapters are: --lora"},
    {"--load-in-", "weights in 4 or 8 bits are not there yet"},
    {"--pipeline-parallel", "pipeline parallelism is not there yet"},
    {"--num-experts", "mixtures of experts are not there yet"},
    {"--epochs", "steps are counted, not epochs: --steps N of --batch sequences each"},
    {"--num-train-epochs", "steps are counted, not epochs: --steps N of --batch sequences each"},
    {"--num-epochs", "steps are counted, not epochs: --steps N of --batch sequences each"},
};

// Writes a flag as ours are written: "-n_head" and "--N_HEAD" become "--n-head".
std::string in_our_letters(const std::string& flag) {
  std::string out = "--" + flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
  std::ranges::replace(out, '_', '-');
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

std::string_view missing_thing(std::string_view flag) {
  const auto found = std::ranges::find_if(
      kMissing, [&](const Missing& missing) { return flag.starts_with(missing.word); });
  return found == std::end(kMissing) ? std::string_view() : found->what;
}

// Returns our flag for one of another program, if the command has it; empty: none is known.
std::string_view ours_for(const Command& command, std::string_view flag) {
  for (const auto& [theirs, ours] : kElsewhere) {
    if (theirs == flag && command.options.find(ours) != nullptr) return ours;
  }
  return {};
}

std::vector<std::string> owners_of(std::string_view flag) {
  std::vector<std::string> out;
  for (const Command& command : all_commands()) {
    if (command.options.find(flag) != nullptr) out.push_back(command.name);
  }
  return out;
}

std::string nearest_anywhere(const std::string& flag) {
  std::vector<std::string> flags;
  for (const Command& command : all_commands()) {
    for (const Option& option : command.options.options()) flags.push_back(option.flag);
  }
  const auto found = closest(flag, flags);
  if (!found) return {};
  return fmt::format("; did you mean {}, an option of {}?", *found,
                     fmt::join(owners_of(*found), ", "));
}

// Suggests a flag: "; did you mean --size?" for "--sise", "--lr" for "--learning_rate".
std::string meant_by_flag(const Command& command, const std::string& given) {
  const std::string flag = in_our_letters(given);
  if (const auto missing = missing_thing(flag); !missing.empty()) {
    return fmt::format("; {}", missing);
  }
  std::string out;
  if (const auto owners = owners_of(flag); !owners.empty() && !command.options.find(flag)) {
    out += fmt::format("; it is an option of {}", fmt::join(owners, ", "));
  }
  if (const auto ours = ours_for(command, flag); !ours.empty()) {
    out += fmt::format("; did you mean {}?", ours);
  }
  if (!out.empty()) return out;
  std::vector<std::string> flags{"--help"};
  for (const Option& option : command.options.options()) flags.push_back(option.flag);
  out = did_you_mean(flag, flags);
  return out.empty() ? nearest_anywhere(flag) : out;
}

// Suggests the option for a word, "; did you mean --init W.safetensors?": for a file that an option
// takes, a folder with a model or weights, or the name of a known model.
std::string meant_by_word(const Command& command, const std::string& word) {
  const auto meant = [&](std::string_view flag) {
    return fmt::format("; did you mean {} {}?", flag, word);
  };
  const OptionSet& options = command.options;
  std::error_code none;
  const std::filesystem::path path = word;
  const bool is_model =
      path.filename() == "config.json" || std::filesystem::exists(path / "config.json", none);
  if (const ModelConfig* known = find_model(word); known != nullptr && options.find("--size")) {
    const bool is_preset = std::ranges::find(model_presets(), *known) != model_presets().end();
    return meant(is_preset ? "--size" : "--model");
  }
  if (is_model && options.find("--model") != nullptr) return meant("--model");
  if (std::filesystem::is_directory(path, none) && options.find("--init")) return meant("--init");
  for (const Option& option : options.options()) {
    for (const std::string& ending : option.endings) {
      if (word.ends_with(ending)) return meant(option.flag);
    }
  }
  return {};
}

}  // namespace

std::span<const FlagElsewhere> flags_elsewhere() {
  return kElsewhere;
}

void fail_unknown(const Command& command, const std::string& word) {
  const std::string flag = word.substr(0, word.find('='));
  throw Error(
      ErrorCode::kUsage, command.name,
      flag.starts_with("-")
          ? fmt::format("unknown option {}{}", flag, meant_by_flag(command, flag))
          : fmt::format("\"{}\" belongs to no option{}", word, meant_by_word(command, word)),
      fmt::format("tracestep {} --help lists the options", command.name));
}

}  // namespace tracestep::cli
