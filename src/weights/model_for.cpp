#include "weights/model_for.h"

#include <algorithm>
#include <optional>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/log.h"
#include "nn/families.h"
#include "spec/fields.h"
#include "spec/parse_words.h"
#include "weights/model_notes.h"
#include "weights/model_store.h"
#include "weights/peft_files.h"

namespace tracestep {
namespace {

// The head count of the preset with the same widths, for a file without one.
std::optional<std::int64_t> heads_of_preset(const ModelConfig& sizes) {
  for (const ModelConfig& p : model_presets()) {
    if (p.d_model == sizes.d_model && p.d_ff == sizes.d_ff && p.layers == sizes.layers) {
      return p.heads;
    }
  }
  return std::nullopt;
}

// Refuses another number of heads than the file's: the shapes would fit, but the model would be a
// different one.
void check_heads(std::int64_t asked, std::int64_t in_file, const Weights& weights) {
  if (asked == in_file) return;
  fail_usage("heads"_field, "{} is not the number of heads in {}, which is {}", asked,
             weights.path.string(), in_file);
}

// Refuses another architecture than the file's where shapes do not show it. A file that does not
// say its heads was not written here, and nothing is known of its architecture.
void check_architecture(const ModelConfig& asked, const ModelConfig& in_file,
                        const Weights& weights) {
  std::vector<std::string> differences;
  for (const RunField& field : run_fields()) {
    if (!is_of_architecture(field)) continue;
    const Json own = field.value({.model = asked}), saved = field.value({.model = in_file});
    if (own == saved) continue;
    differences.push_back(
        fmt::format("{} {}, not {}", field.name, flag_text(saved), flag_text(own)));
  }
  if (differences.empty()) return;
  throw Error(ErrorCode::kUsage, "model"_field,
              fmt::format("the weights of {} are of another model: {}", weights.path.string(),
                          fmt::join(differences, "; ")),
              "leave out the options of the model: the weights come with theirs");
}

// Returns the model that the weights hold. `asked`: the model by the flags, whose heads it takes.
ModelConfig model_in_file(const RunGrid& grid, const ModelConfig& asked, const Weights& weights) {
  const SavedTensors& file = weights.tensors;
  const bool has_heads = grid.is_given("heads");
  ModelConfig guess;
  guess.heads = has_heads ? asked.heads : 1;
  // With one head the sizes are always valid; the real count is set below.
  ModelConfig config = config_of(file, guess);
  if (file.metadata().contains("heads")) {
    if (has_heads) check_heads(asked.heads, config.heads, weights);
  } else if (has_heads) {
    config.heads = asked.heads;
  } else {
    const auto heads = heads_of_preset(config);
    if (!heads) {
      throw Error(ErrorCode::kUsage, "heads"_field,
                  fmt::format("{} does not say how many attention heads its model has",
                              weights.path.string()),
                  "give " TRACESTEP_OPTION(heads));
    }
    config.heads = *heads;
  }
  if (grid.is_given("vocab") && asked.vocab != config.vocab) {
    fail_usage("vocab"_field, "{} is not the vocabulary of {}, which is {}", asked.vocab,
               weights.path.string(), config.vocab);
  }
  validate(config);
  return config;
}

}  // namespace

void take_adapters(RunSpec& run, const Weights* weights) {
  if (weights == nullptr || run.lora.is_on() || run.frozen.any()) return;
  run.lora = adapters_of(weights->tensors);
  if (run.lora.is_on()) log_info("adapters: those of the weights, {}", name_of(run.lora));
}

ModelConfig model_for(const RunGrid& grid, const Weights* weights, const Tokenizer* tokenizer) {
  if (ModelConfig own = grid.combinations().front().model; own.captured != nullptr) {
    if (tokenizer != nullptr) check_entries(*tokenizer, own.vocab);
    return own;
  }
  // Heads and vocabulary may be given beside a file that has the other sizes.
  const bool has_sizes = std::ranges::any_of(run_fields(), [&grid](const RunField& field) {
    return field.group == FieldGroup::kModel && field.name != "heads" && field.name != "vocab" &&
           grid.is_given(field.name);
  });
  ModelConfig config;
  if (!has_sizes && weights != nullptr) {
    config = model_in_file(grid, grid.combinations().front().model, *weights);
  } else {
    config = grid.run().model;
    const bool is_own_folder =
        weights != nullptr && config.file != nullptr && weights->path == config.file->path;
    if (!grid.is_given("tied_head")) {  // the folder's files may hold another head
      config.is_tied = is_own_folder ? config_of(weights->tensors, {.heads = 1}).is_tied
                                     : checked_model(config, 0, true).is_tied;
    }
    const bool takes_vocab = !grid.is_given("vocab");
    if (weights != nullptr) {
      const ModelConfig in_file = config_of(weights->tensors, {.heads = 1});
      if (weights->tensors.metadata().contains("heads")) {
        check_heads(config.heads, in_file.heads, *weights);
        check_architecture(config, in_file, *weights);
      }
      if (takes_vocab) config.vocab = in_file.vocab;
    } else if (tokenizer != nullptr && takes_vocab) {
      const bool is_preset_size = config.vocab == ModelConfig().vocab;
      if (!is_preset_size && config.vocab != tokenizer->vocab_size()) {
        log_info("{}: the vocabulary is the {} tokens of the tokenizer, not {}, as none is given",
                 config.name, tokenizer->vocab_size(), config.vocab);
      }
      config.vocab = tokenizer->vocab_size();
    }
  }
  if (tokenizer != nullptr) check_entries(*tokenizer, config.vocab);
  return config;
}

}  // namespace tracestep
