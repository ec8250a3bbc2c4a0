#include "spec/fields.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/suggest.h"
#include "nn/families.h"
#include "passes/pipeline.h"
#include "spec/parse_words.h"

namespace tracestep {
namespace {

constexpr std::int64_t kMaxSize = std::int64_t{1} << 20;  // far beyond any model
constexpr std::int64_t kMaxVocab = std::int64_t{1} << 24;
constexpr std::int64_t kMaxLayers = 4096;
constexpr int kMaxThreads = 4096;

using Rows = FieldRows<RunSpec>;

std::vector<Precision> all_precisions() {
  std::vector<Precision> out;
  for (const std::string& name : precision_names()) out.push_back(parse_precision("", name));
  return out;
}

// A preset or a file sets all sizes, and what tells its architecture apart.
RunField preset_field(RunField row) {
  for (const ModelConfig& config : model_presets()) row.choices.push_back(config.name);
  row.value = [](const RunSpec& spec) { return Json(spec.model.name); };
  row.text = [](const RunSpec& spec) {
    return spec.model.source.empty() ? spec.model.name : spec.model.source;
  };
  row.parse = [](const std::string& where, const std::string& text) -> RunChange {
    return [model = model_called(where, text)](RunSpec& spec) { spec.model = model; };
  };
  return row;
}

RunField recompute_field(RunField row) {
  row.examples = {"none",         "blocks",        "every=2",      "nested",
                  "budget=90KiB", "layers.*.attn", "layers.*.ffn", "lm_head"};
  row.joint = '+';
  row.value = [](const RunSpec& spec) { return Json(name_of(spec.recompute)); };
  row.parse = [](const std::string& where, const std::string& text) -> RunChange {
    return [choice = parse_recomputation(where, text)](RunSpec& spec) { spec.recompute = choice; };
  };
  return row;
}

constexpr const char* kAuto = "auto";

RunField loss_chunks_field(RunField row) {
  row.examples = {kAuto, "1", "2", "3"};
  row.value = [](const RunSpec& spec) {
    return Json(spec.loss_chunks == 0 ? kAuto : std::to_string(spec.loss_chunks));
  };
  row.parse = [](const std::string& where, const std::string& text) -> RunChange {
    const std::int64_t count = text == kAuto ? 0 : parse_count(where, text, 1, kMaxSize);
    return [count](RunSpec& spec) { spec.loss_chunks = count; };
  };
  return row;
}

RunField parallel_field(RunField row) {
  row.examples = {"none"};
  for (const auto& part : parallel_fields()) {
    if (part.value_name.empty()) row.examples.push_back(part.name);
    for (const std::string& value : part.examples) row.examples.push_back(part.name + "=" + value);
  }
  row.joint = ',';
  row.value = [](const RunSpec& spec) { return Json(name_of(spec.parallel)); };
  row.parse = [](const std::string& where, const std::string& text) -> RunChange {
    return [choice = parse_parallel(where, text)](RunSpec& spec) { spec.parallel = choice; };
  };
  return row;
}

// "GPU:1" is cuda:1, which people call their GPU.
RunField device_field(RunField row) {
  row.value = [](const RunSpec& spec) { return Json(spec.place.device); };
  row.parse = [](const std::string& where, const std::string& text) -> RunChange {
    std::string name = folded(text);
    if (name.empty()) fail_usage(where, "the value is empty");
    if (name == "gpu" || name.starts_with("gpu:")) name.replace(0, 3, "cuda");
    return [name](RunSpec& spec) { spec.place.device = name; };
  };
  return row;
}

// Composites by name: the two usual sets, or any joined by +.
RunField granularity_field(RunField row) {
  for (Granularity granularity : kAllGranularities) row.choices.push_back(name_of(granularity));
  for (Composite composite : kNamedComposites) row.examples.emplace_back(name_of(composite));
  row.joint = '+';
  row.value = [](const RunSpec& spec) { return Json(name_of(spec.ops)); };
  row.parse = [](const std::string& where, const std::string& text) -> RunChange {
    return [ops = parse_granularity(where, text)](RunSpec& spec) { spec.ops = ops; };
  };
  return row;
}

constexpr const char *kByExecutor = kAuto, *kNoPass = "none", *kAllPasses = "all";

std::string compile_passes_text(const RunSpec& spec) {
  if (!spec.compile_passes) return kByExecutor;
  const std::vector<std::string> all = compile_passes();
  if (spec.compile_passes->empty()) return kNoPass;
  if (spec.compile_passes->size() == all.size()) return kAllPasses;
  std::string out;
  for (const std::string& name : all) {
    if (spec.compile_passes->contains(name)) out += (out.empty() ? "" : "+") + name;
  }
  return out;
}

std::optional<std::set<std::string>> parse_compile_passes(const std::string& where,
                                                          const std::string& text) {
  const std::vector<std::string> all = compile_passes();
  if (text == kByExecutor) return std::nullopt;
  if (text == kNoPass) return std::set<std::string>();
  if (text == kAllPasses) return std::set(all.begin(), all.end());
  std::vector<std::string> known = all;
  if (text.find('+') == std::string::npos) {
    known.insert(known.end(), {kByExecutor, kNoPass, kAllPasses});
  }
  const std::vector<std::string> parts = checked_parts(where, text, known);
  return std::set(parts.begin(), parts.end());
}

RunField compile_passes_field(RunField row) {
  row.examples = compile_passes();
  row.examples.insert(row.examples.end(), {kByExecutor, kNoPass, kAllPasses});
  row.joint = '+';
  row.value = [](const RunSpec& spec) { return Json(compile_passes_text(spec)); };
  row.parse = [](const std::string& where, const std::string& text) -> RunChange {
    return [passes = parse_compile_passes(where, text)](RunSpec& spec) {
      spec.compile_passes = passes;
    };
  };
  return row;
}

using Role = FieldRole;
using Show = FieldShow;

void add_model_fields(Rows& rows) {
  const RunField size{.group = FieldGroup::kModel, .show = Show::kKey};
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
  add(
      "d_model", "model width C, instead of option size", kMaxSize,
      [](auto& s) -> auto& { return s.model.d_model; }, Thousand::kBinary);
  add(
      "d_ff", "feed-forward width F", kMaxSize, [](auto& s) -> auto& { return s.model.d_ff; },
      Thousand::kBinary);
  add(
      "layers", "layers L", kMaxLayers, [](auto& s) -> auto& { return s.model.layers; });
  add(
      "heads", "attention heads H; they divide C", kMaxSize,
      [](auto& s) -> auto& { return s.model.heads; });
}

RunField rope_scaling_field(RunField row) {
  row.value = [](const RunSpec& spec) { return Json(name_of(spec.model.rope_scaling)); };
  row.parse = [](const std::string& where, const std::string& text) -> RunChange {
    return [scaling = parse_rope_scaling(where, text)](RunSpec& spec) {
      spec.model.rope_scaling = scaling;
    };
  };
  return row;
}

RunField window_layers_field(RunField row) {
  row.value = [](const RunSpec& spec) { return Json(spec.model.window_layers); };
  row.parse = [](const std::string& where, const std::string& text) -> RunChange {
    if (text.empty() || text.find_first_not_of("wf") != std::string::npos) {
      fail_usage(where, "\"{}\" is no pattern of layers; give a letter for each, w or f", text);
    }
    return [text](RunSpec& spec) { spec.model.window_layers = text; };
  };
  return row;
}

// What tells architectures apart; a preset or a file of a model's fields sets all of them.
void add_architecture_fields(Rows& rows) {
  const auto row = [](const char* name, const char* help) {
    return RunField{.name = name,
                    .group = FieldGroup::kModel,
                    .show = Show::kKey,
                    .is_optional = true,
                    .help = help};
  };
  constexpr double kMost = 1e12;
  rows.integer(
      row("kv_heads", "heads of keys and values, each for a group of heads; 0: as many as heads"),
      0, kMaxSize, [](auto& s) -> auto& { return s.model.kv_heads; });
  rows.integer(
      row("head_width", "width D of each head; 0: C/H"), 0, kMaxSize,
      [](auto& s) -> auto& { return s.model.head_size; });
  rows.choice(
      row("norm_kind", "root mean square, or layer norm"), kAllNormKinds,
      [](auto& s) -> auto& { return s.model.norm; });
  rows.real(
      row("norm_eps", "what a norm adds to the mean square"), 0, 1,
      [](auto& s) -> auto& { return s.model.norm_eps; });
  rows.choice(
      row("norm_place", "before attention and feed-forward, after them, or both"), kAllNormPlaces,
      [](auto& s) -> auto& { return s.model.norm_place; });
  rows.on_off(
      row("norm_bias", "layer norms add a bias"),
      [](auto& s) -> auto& { return s.model.norm_bias; });
  rows.real(
      row("norm_offset", "norms multiply by their weight plus this"), -kMost, kMost,
      [](auto& s) -> auto& { return s.model.norm_offset; });
  rows.choice(
      row("qk_norm", "queries and keys are normalised: each head, or all heads of a token"),
      kAllQkNorms, [](auto& s) -> auto& { return s.model.qk_norm; });
  rows.choice(
      row("activation", "of the feed-forward"), kAllActivations,
      [](auto& s) -> auto& { return s.model.activation; });
  rows.on_off(
      row("gated", "the feed-forward's activation multiplies a second product"),
      [](auto& s) -> auto& { return s.model.is_gated; });
  rows.on_off(
      row("qkv_bias", "queries, keys and values have biases"),
      [](auto& s) -> auto& { return s.model.qkv_bias; });
  rows.on_off(
      row("output_bias", "attention's output projection has a bias"),
      [](auto& s) -> auto& { return s.model.output_bias; });
  rows.on_off(
      row("ffn_bias", "the feed-forward's products have biases"),
      [](auto& s) -> auto& { return s.model.ffn_bias; });
  rows.on_off(
      row("tied_head", "the head's weight is the embedding's"),
      [](auto& s) -> auto& { return s.model.is_tied; });
  rows.on_off(
      row("parallel_residual", "attention and feed-forward read the same residual stream"),
      [](auto& s) -> auto& { return s.model.is_parallel; });
  rows.choice(
      row("positions", "rotary, or a learned vector for each position"), kAllPositions,
      [](auto& s) -> auto& { return s.model.positions; });
  rows.integer(
      row("max_positions", "learned positions"), 0, kMaxVocab,
      [](auto& s) -> auto& { return s.model.max_positions; });
  rows.real(
      row("rope_theta", "base of the rotary frequencies"), 1, kMost,
      [](auto& s) -> auto& { return s.model.rope_theta; });
  rows.real(
      row("rope_theta_windowed", "that of layers with a window, which are not scaled; 0: the same"),
      0, kMost, [](auto& s) -> auto& { return s.model.rope_theta_windowed; });
  rows.real(
      row("rope_share", "part of each head that is rotated"), 0, 1,
      [](auto& s) -> auto& { return s.model.rope_share; });
  RunField scaling = row("rope_scaling",
                         "none, linear:FACTOR, llama3:FACTOR:LOW:HIGH:ORIGINAL or "
                         "yarn:FACTOR:LOW:HIGH:ORIGINAL:MAGNITUDE");
  scaling.value_name = "HOW";
  rows.add(rope_scaling_field(std::move(scaling)));
  rows.real(
      row("embedding_scale", "factor on the embedded tokens"), -kMost, kMost,
      [](auto& s) -> auto& { return s.model.embedding_scale; });
  rows.real(
      row("score_scale", "factor on the scores of attention; 0: 1/√D"), 0, kMost,
      [](auto& s) -> auto& { return s.model.score_scale; });
  rows.real(
      row("score_cap", "scores s become cap · tanh(s / cap); 0: they stay"), 0, kMost,
      [](auto& s) -> auto& { return s.model.score_cap; });
  rows.real(
      row("logit_cap", "the same of the logits"), 0, kMost,
      [](auto& s) -> auto& { return s.model.logit_cap; });
  rows.integer(
      row("window", "tokens that attention sees in layers with a window; 0: all"), 0, kMaxSize,
      [](auto& s) -> auto& { return s.model.window; });
  RunField layers =
      row("window_layers", "layers with a window (w) and without (f), as a pattern: wwwwwf");
  layers.value_name = "PATTERN";
  rows.add(window_layers_field(std::move(layers)));
}

void add_step_fields(Rows& rows) {
  rows.integer(
      {.name = "context",
       .group = FieldGroup::kStep,
       .is_axis = true,
       .thousand = Thousand::kBinary,
       .help = "tokens in a sequence, T",
       .about = "tokens per row (T)"},
      1, kMaxSize, [](auto& s) -> auto& { return s.shape.context; });
  rows.integer(
      {.name = "batch",
       .group = FieldGroup::kStep,
       .thousand = Thousand::kBinary,
       .help = "sequences in a batch, B",
       .about = "rows (B)"},
      1, kMaxSize, [](auto& s) -> auto& { return s.shape.batch; });
  rows.integer(
      {.name = "vocab",
       .group = FieldGroup::kModel,
       .show = Show::kData,
       .help = "vocabulary V, unless a tokenizer or a file of weights sets it",
       .about = "vocabulary (V)"},
      1, kMaxVocab, [](auto& s) -> auto& { return s.model.vocab; });
  rows.choice(
      {.name = "mode",
       .group = FieldGroup::kStep,
       .is_axis = true,
       .help = "what a step does",
       .about = "what a step does"},
      kAllModes, [](auto& s) -> auto& { return s.mode; });
  rows.choice(
      {.name = "objective",
       .flag = "--loss",
       .group = FieldGroup::kStep,
       .show = Show::kVarying,
       .is_axis = true,
       .is_optional = true,
       .help = "what backward starts from: the mean cross-entropy against targets, or the sum of "
               "all logits, as in benchmarks without targets",
       .about = "what backward starts from"},
      kAllLossKinds, [](auto& s) -> auto& { return s.loss; });
}

void add_form_fields(Rows& rows) {
  rows.choice(
      {.name = "precision",
       .is_axis = true,
       .help = "tf32 (CUDA only) rounds the operands of matrix products; fp32-split (Hopper only) "
               "multiplies float32 by parts on tensor cores; bf16 and fp16 compute "
               "matrix products in 16 bits and keep float32 weights; bf16-pure and fp16-pure "
               "store everything in 16 bits",
       .about = "of parameters and activations"},
      all_precisions(), [](auto& s) -> auto& { return s.precision; });
  rows.add(granularity_field(
      {.name = "ops",
       .is_axis = true,
       .is_form = true,
       .help =
           "composite ops expanded into simple ones, as plain framework code runs them, or each "
           "with a kernel of its own; or just some of them, joined by + (norm, swiglu, rope, "
           "softmax, loss, optimizer)",
       .about = "granularity of the program"}));
  rows.choice(
      {.name = "attention",
       .is_axis = true,
       .is_form = true,
       .is_optional = true,
       .help = "two matrix products around a softmax, or one kernel that works tile by tile and "
               "never stores the matrix of scores",
       .about = "its form: naive or flash"},
      kAllAttentionForms, [](auto& s) -> auto& { return s.attention; });
  rows.choice(
      {.name = "executor",
       .role = Role::kSpeed,
       .show = Show::kVarying,
       .is_axis = true,
       .is_form = true,
       .is_optional = true,
       .help = "eager runs op by op, with buffers from the allocator; arena runs fewer ops, after "
               "the compile passes, in one planned allocation; compiled also replays them as one "
               "graph where the device can",
       .about = "how it runs"},
      kAllExecutors, [](auto& s) -> auto& { return s.executor; });
  rows.add(compile_passes_field(
      {.name = "compile_passes",
       .role = Role::kSpeed,
       .show = Show::kVarying,
       .is_axis = true,
       .is_form = true,
       .is_optional = true,
       .value_name = "SET",
       .help = fmt::format(
           "passes that save launches and memory traffic: {}, joined by +; all; none; or "
           "auto, which is none for the executor eager and all for the others, pad only on a GPU, "
           "update_beside only with the optimizer in the host's memory",
           fmt::join(compile_passes(), ", ")),
       .about = "the passes of the pipeline that run only for it"}));
  rows.choice(
      {.name = "moments",
       .show = Show::kVarying,
       .is_axis = true,
       .is_optional = true,
       .is_kept = true,
       .help = "how AdamW's states m and v are stored: fp32, or bf16, rounded at random, which the "
               "step's number and the data decide",
       .about = "dtype of AdamW's states"},
      kAllMoments, [](auto& s) -> auto& { return s.optimizer.moments; });
}

// When the step does its work, and where: the same numbers, other bytes and times.
void add_schedule_fields(Rows& rows) {
  rows.choice(
      {.name = "launch_order",
       .role = Role::kSpeed,
       .show = Show::kVarying,
       .is_axis = true,
       .is_form = true,
       .is_optional = true,
       .help = "when the kernels of a captured step are launched: serial, each when those before "
               "it have ended, or dependent, a little earlier where the kernel itself waits for "
               "them; the same elsewhere than on GPUs of compute capability 9.0 and later",
       .about = "when captured kernels are launched"},
      kAllLaunchOrders, [](auto& s) -> auto& { return s.launch_order; });
  rows.choice(
      {.name = "updates",
       .role = Role::kSpeed,
       .show = Show::kVarying,
       .is_axis = true,
       .is_optional = true,
       .help = "when weights are updated: after backward, all together, or inside it, each as soon "
               "as its gradient is there, so that gradients are never alive all together",
       .about = "when weights are updated"},
      kAllUpdateTimes, [](auto& s) -> auto& { return s.updates; });
  rows.choice(
      {.name = "offload",
       .role = Role::kSpeed,
       .show = Show::kVarying,
       .is_axis = true,
       .is_optional = true,
       .help = "what lies in the host's memory instead of the device's: none, or optimizer, which "
               "is AdamW's moments and, where products read narrow copies, the weights; no effect "
               "on a CPU, whose memory is the host's",
       .about = "what lies in the host's memory"},
      kAllOffloads, [](auto& s) -> auto& { return s.offload; });
  rows.add(recompute_field(
      {.name = "recompute",
       .role = Role::kSpeed,
       .show = Show::kVarying,
       .is_axis = true,
       .is_optional = true,
       .value_name = "WHAT",
       .help = "what backward computes again instead of keeping it: none; blocks, one by one; "
               "every=N, groups of N blocks; nested, by repeated halving; budget=20GiB, the "
               "cheapest choice with that peak; or model paths such as layers.*.ffn+lm_head",
       .about = "what backward computes again"}));
  rows.add(loss_chunks_field(
      {.name = "loss_chunks",
       .role = Role::kSpeed,
       .show = Show::kVarying,
       .is_axis = true,
       .is_optional = true,
       .help = "parts of the batch's rows that logits, loss and their gradients are computed in, "
               "one after the other, so that the logits never exist as a whole; auto: as many "
               "chunks of at least 1024 rows as save memory",
       .about = "parts that the loss is computed in"}));
  rows.add(parallel_field(
      {.name = "parallel",
       .role = Role::kSpeed,
       .show = Show::kVarying,
       .is_optional = true,
       .value_name = "HOW",
       .help =
           "split the step over ranks: dp=N (the batch), shard=1|2|3 (ZeRO's stages), tp=N (the "
           "model); also bucket, sums, overlap, prefetch and sp (docs/parallel.md)",
       .about = "how ranks share the step"}));
}

void add_place_fields(Rows& rows) {
  const auto place = [](const char* name, Show show, const char* help) {
    return RunField{.name = name, .role = Role::kPlace, .show = show, .help = help};
  };
  RunField device = place("device", Show::kPeople, "where it runs");
  device.value_name = "NAME";
  device.about = "where it runs";
  rows.add(device_field(std::move(device)));
  rows.integer(
      place("threads", Show::kKey,
            "CPU threads of each rank; by default OMP_NUM_THREADS, or all allowed cores divided by "
            "the "
            "ranks"),
      1, kMaxThreads, [](auto& s) -> auto& { return s.place.threads; });
  RunField limit = place("memory_limit_bytes", Show::kKey,
                         "behave like a device with this much memory, such as 16GiB");
  limit.flag = "--memory-limit";
  rows.bytes(
      std::move(limit), [](auto& s) -> auto& { return s.place.memory_limit_bytes; });
  RunField seed = place("seed", Show::kKey, "seed of weights, batches and sampling");
  seed.role = Role::kBits;
  rows.integer(
      std::move(seed), 0, std::numeric_limits<std::int64_t>::max(),
      [](auto& s) -> auto& { return s.seed; });
  rows.toggle(
      place("deterministic", Show::kNowhere,
            "refuse what may give other bits in another run: option tune for a product without a "
            "stored choice"),
      [](auto& s) -> auto& { return s.place.deterministic; });
  rows.toggle(
      place("tune", Show::kNowhere,
            "CUDA: time the algorithms for each new matrix product and keep the fastest"),
      [](auto& s) -> auto& { return s.place.tune; });
  RunField file = place("tune_file", Show::kNowhere,
                        "file of these choices; tracestep-tuning.json with option tune");
  file.value_name = "FILE";
  rows.text(
      std::move(file), [](auto& s) -> auto& { return s.place.tune_file; });
}

std::vector<RunField> all_fields() {
  Rows rows;
  add_model_fields(rows);
  add_step_fields(rows);
  add_form_fields(rows);
  add_schedule_fields(rows);
  add_place_fields(rows);
  add_architecture_fields(rows);
  return rows.take();
}

}  // namespace

std::span<const RunField> run_fields() {
  static const std::vector<RunField> all = all_fields();
  return all;
}

const RunField* find_field(std::string_view name) {
  const auto fields = run_fields();
  const auto found = std::ranges::find(fields, name, &RunField::name);
  return found == fields.end() ? nullptr : &*found;
}

const RunField& field_named(std::string_view name) {
  return field_named(run_fields(), name);
}

}  // namespace tracestep
