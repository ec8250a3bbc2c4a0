// The fields of a model: its sizes and its architecture.
#include "spec/model_fields.h"

#include "base/error.h"
#include "nn/captured_programs.h"
#include "nn/families.h"
#include "spec/parse_words.h"

namespace tracestep {
namespace {

constexpr std::int64_t kMaxLayers = 4096;

auto model(auto member) {
  return in(&RunSpec::model, member);
}

// Makes `row` the field of a preset or file, which sets all sizes and the whole architecture.
RunField preset_field(RunField row) {
  for (const ModelConfig& config : model_presets()) row.choices.push_back(config.name);
  row.value = [](const RunSpec& spec) { return Json(spec.model.name); };
  row.text = [](const RunSpec& spec) {
    return spec.model.source.empty() ? spec.model.name : spec.model.source;
  };
  row.parse = [](const About& where, const std::string& text) -> RunChange {
    return [model = model_called(where, text)](RunSpec& spec) { spec.model = model; };
  };
  return row;
}

bool has_sizes(const RunSpec& spec) {
  return spec.model.captured == nullptr;
}

// Makes `row` the field of a captured module's folder, which sets the whole model with its sizes.
// Results of two folders differ by the names of their modules.
RunField program_field(RunField row) {
  row.value = [](const RunSpec& spec) {
    return has_sizes(spec) ? Json() : Json(spec.model.source);
  };
  row.parse = [](const About& where, const std::string& text) -> RunChange {
    if (text.empty()) fail_usage(where, "the value is empty");
    return [model = captured_config(captured_at(text))](RunSpec& spec) { spec.model = model; };
  };
  row.applies = [](const RunSpec& spec) { return !has_sizes(spec); };
  return row;
}

// Makes `row` the field of a pattern of layers, whose letters are the two in `letters`.
RunField pattern_field(RunField row, std::string ModelConfig::*pattern, const char* letters) {
  row.value_name = "PATTERN";
  row.value = [pattern](const RunSpec& spec) { return Json(spec.model.*pattern); };
  row.parse = [=](const About& where, const std::string& text) -> RunChange {
    if (text.empty() || text.find_first_not_of(letters) != std::string::npos) {
      fail_usage(where, "\"{}\" is no pattern of layers; give a letter for each, {} or {}", text,
                 letters[0], letters[1]);
    }
    return [=](RunSpec& spec) { spec.model.*pattern = text; };
  };
  return row;
}

}  // namespace

void add_model_fields(FieldRows<RunSpec>& rows) {
  const RunField size{.group = FieldGroup::kModel, .show = FieldShow::kKey, .applies = has_sizes};
  const auto add = [&](const char* name, const char* help, std::int64_t max, auto at,
                       Thousand thousand = Thousand::kDecimal) {
    RunField row = size;
    row.name = name;
    row.help = help;
    row.thousand = thousand;
    rows.integer(std::move(row), 1, max, at);
  };
  rows.add(preset_field({.name = "size",
                         .alias = "--model",
                         .alias_help = "a published model: its name (tracestep models), a folder "
                                       "with its config.json, or that file",
                         .group = FieldGroup::kModel,
                         .is_axis = true,
                         .help = "preset of the model's sizes",
                         .about = "preset, or custom"}));
  rows.add(program_field({.name = "program",
                          .group = FieldGroup::kModel,
                          .role = FieldRole::kPlace,
                          .show = FieldShow::kKey,
                          .is_optional = true,
                          .value_name = "DIR",
                          .help = "a module of your own instead of a model, as tracestep.capture "
                                  "wrote it (docs/your-module.md)"}));
  add("d_model", "model width C, instead of " TRACESTEP_OPTION(size), kMaxSize,
      model(&ModelConfig::d_model), Thousand::kBinary);
  add("d_ff", "feed-forward width F", kMaxSize, model(&ModelConfig::d_ff), Thousand::kBinary);
  add("layers", "layers L", kMaxLayers, model(&ModelConfig::layers));
  add("heads", "attention heads H; they divide C", kMaxSize, model(&ModelConfig::heads));
}

// Adds the fields that tell architectures apart; a preset or a file of a model sets all of them.
void add_architecture_fields(FieldRows<RunSpec>& rows) {
  const auto row = [](const char* name, const char* help) {
    return RunField{.name = name,
                    .group = FieldGroup::kModel,
                    .show = FieldShow::kKey,
                    .is_optional = true,
                    .help = help,
                    .applies = has_sizes};
  };
  constexpr double kMost = 1e12;
  rows.integer(
      row("kv_heads", "heads of keys and values, each for a group of heads; 0: as many as heads"),
      0, kMaxSize, model(&ModelConfig::kv_heads));
  rows.integer(row("head_width", "width D of each head; 0: C/H"), 0, kMaxSize,
               model(&ModelConfig::head_size));
  rows.choice(row("norm_kind", "root mean square, or layer norm"), kAll<NormKind>,
              model(&ModelConfig::norm));
  rows.real(row("norm_eps", "what a norm adds to the mean square"), 0, 1,
            model(&ModelConfig::norm_eps));
  rows.choice(row("norm_place", "before attention and feed-forward, after them, or both"),
              kAll<NormPlace>, model(&ModelConfig::norm_place));
  rows.on_off(row("norm_bias", "layer norms add a bias"), model(&ModelConfig::norm_bias));
  rows.real(row("norm_offset", "norms multiply by their weight plus this"), -kMost, kMost,
            model(&ModelConfig::norm_offset));
  rows.choice(row("qk_norm", "queries and keys are normalised: each head, or all heads of a token"),
              kAll<QkNorm>, model(&ModelConfig::qk_norm));
  rows.choice(row("activation", "of the feed-forward"), kAll<Activation>,
              model(&ModelConfig::activation));
  rows.on_off(row("gated", "the feed-forward's activation multiplies a second product"),
              model(&ModelConfig::is_gated));
  rows.on_off(row("qkv_bias", "queries, keys and values have biases"),
              model(&ModelConfig::qkv_bias));
  rows.on_off(row("output_bias", "attention's output projection has a bias"),
              model(&ModelConfig::output_bias));
  rows.on_off(row("ffn_bias", "the feed-forward's products have biases"),
              model(&ModelConfig::ffn_bias));
  rows.on_off(row("tied_head", "the head's weight is the embedding's"),
              model(&ModelConfig::is_tied));
  rows.on_off(row("parallel_residual", "attention and feed-forward read the same residual stream"),
              model(&ModelConfig::is_parallel));
  rows.choice(row("positions", "rotary, or a learned vector for each position"), kAll<Positions>,
              model(&ModelConfig::positions));
  rows.integer(row("max_positions", "learned positions"), 0, kMaxVocab,
               model(&ModelConfig::max_positions));
  rows.real(row("rope_theta", "base of the rotary frequencies"), 1, kMost,
            model(&ModelConfig::rope_theta));
  rows.real(
      row("rope_theta_windowed", "that of layers with a window, which are not scaled; 0: the same"),
      0, kMost, model(&ModelConfig::rope_theta_windowed));
  rows.real(row("rope_share", "part of each head that is rotated"), 0, 1,
            model(&ModelConfig::rope_share));
  RunField scaling = row("rope_scaling",
                         "none, linear:FACTOR, llama3:FACTOR:LOW:HIGH:ORIGINAL, "
                         "yarn:FACTOR:LOW:HIGH:ORIGINAL:MAGNITUDE or longrope:ORIGINAL:MAGNITUDE "
                         "and a factor for each pair, twice: in short contexts, in longer ones");
  scaling.value_name = "HOW";
  rows.parsed(std::move(scaling), parse_rope_scaling, model(&ModelConfig::rope_scaling));
  rows.real(row("embedding_scale", "factor on the embedded tokens"), -kMost, kMost,
            model(&ModelConfig::embedding_scale));
  rows.real(row("score_scale", "factor on the scores of attention; 0: 1/√D"), 0, kMost,
            model(&ModelConfig::score_scale));
  rows.real(row("score_cap", "scores s become cap · tanh(s / cap); 0: they stay"), 0, kMost,
            model(&ModelConfig::score_cap));
  rows.real(row("logit_cap", "the same of the logits"), 0, kMost, model(&ModelConfig::logit_cap));
  rows.integer(row("window", "tokens that attention sees in layers with a window; 0: all"), 0,
               kMaxSize, model(&ModelConfig::window));
  rows.add(pattern_field(
      row("window_layers", "layers with a window (w) and without (f), as a pattern: wwwwwf"),
      &ModelConfig::window_layers, "wf"));
  rows.add(pattern_field(
      row("rope_layers", "layers that are rotated (r) and that are not (n), as a pattern: rrrn"),
      &ModelConfig::rope_layers, "rn"));
}

}  // namespace tracestep
