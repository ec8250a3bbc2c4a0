#include "spec/fields.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/suggest.h"
#include "passes/pipeline.h"
#include "run/memory_limit.h"
#include "spec/model_fields.h"
#include "spec/parse_words.h"

namespace tracestep {
namespace {

constexpr int kMaxThreads = 4096;
constexpr std::int64_t kMostMicroBatches = 1 << 20;

using Rows = FieldRows<RunSpec>;

std::vector<Precision> all_precisions() {
  std::vector<Precision> out;
  for (const std::string& name : precision_names()) out.push_back(parse_precision("", name));
  return out;
}

constexpr const char* kNone = "none";

RunField recompute_field(RunField row) {
  row.examples = {"none",         "blocks",        "every=2",      "nested",
                  "budget=90KiB", "layers.*.attn", "layers.*.ffn", "lm_head"};
  row.joint = '+';
  return row;
}

constexpr const char* kAuto = "auto";

RunField chunks_field(RunField row, std::int64_t RunSpec::*chunks) {
  row.examples = {kAuto, "1", "2", "3"};
  row.value = [chunks](const RunSpec& spec) {
    return Json(spec.*chunks == 0 ? kAuto : std::to_string(spec.*chunks));
  };
  row.parse = [chunks](const About& where, const std::string& text) -> RunChange {
    const std::int64_t count = text == kAuto ? 0 : parse_count(where, text, 1, kMaxSize);
    return [count, chunks](RunSpec& spec) { spec.*chunks = count; };
  };
  return row;
}

// Makes `row` a field whose values are some of `parts`, joined by commas; sets its examples.
template <class Spec>
RunField field_of_parts(RunField row, std::span<const SpecField<Spec>> parts) {
  row.examples = {kNone};
  for (const auto& part : parts) {
    if (part.value_name.empty()) row.examples.push_back(part.name);
    for (const std::string& value : part.examples) row.examples.push_back(part.name + "=" + value);
  }
  row.joint = ',';
  return row;
}

// Lets the field of the memory limit be "none" as well as a number of bytes.
void add_none(RunField& limit) {
  limit.value = [](const RunSpec& spec) {
    const std::int64_t bytes = spec.place.memory_limit_bytes;
    return bytes == kAnyMemory ? Json(kNone) : Json(bytes);
  };
  limit.parse = [of_bytes = limit.parse](const About& where, const std::string& text) -> RunChange {
    if (text != kNone) return of_bytes(where, text);
    return [](RunSpec& spec) { spec.place.memory_limit_bytes = kAnyMemory; };
  };
}

// Makes `row` the device's field, which reads names in any case, and "gpu:1" as cuda:1.
RunField device_field(RunField row) {
  row.value = [](const RunSpec& spec) { return Json(spec.place.device); };
  row.parse = [](const About& where, const std::string& text) -> RunChange {
    std::string name = folded(text);
    if (name.empty()) fail_usage(where, "the value is empty");
    if (name == "gpu" || name.starts_with("gpu:")) name.replace(0, 3, "cuda");
    return [name](RunSpec& spec) { spec.place.device = name; };
  };
  return row;
}

// Makes `row` the field "ops": "primitive", "fused", or names of composite ops joined by +.
RunField granularity_field(RunField row) {
  for (Granularity granularity : kAllGranularities) row.choices.push_back(name_of(granularity));
  for (Composite composite : kNamedComposites) row.examples.emplace_back(name_of(composite));
  row.joint = '+';
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

std::optional<std::set<std::string>> parse_compile_passes(const About& where,
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
  row.parse = [](const About& where, const std::string& text) -> RunChange {
    return [passes = parse_compile_passes(where, text)](RunSpec& spec) {
      spec.compile_passes = passes;
    };
  };
  return row;
}

using Role = FieldRole;
using Show = FieldShow;

// Sets when the field of `row` applies, why it has no effect otherwise, and when it would have one.
void only_where(bool (*applies)(const RunSpec& run), const char* no_effect, const char* needs,
                RunField& row) {
  row.applies = applies;
  row.no_effect = no_effect;
  row.needs = needs;
}

constexpr const char *kStep = TRACESTEP_OPTION(mode) " step",
                     *kFp8 = TRACESTEP_OPTION(precision) " fp8",
                     *kNoCodes = "no step has products in 8 bits";

bool is_step(const RunSpec& run) {
  return run.mode == Mode::kStep;
}

void add_step_fields(Rows& rows) {
  rows.integer({.name = "context",
                .group = FieldGroup::kStep,
                .is_axis = true,
                .thousand = Thousand::kBinary,
                .help = "tokens in a sequence, T",
                .about = "tokens per row (T)"},
               1, kMaxSize, in(&RunSpec::shape, &BatchShape::context));
  rows.integer({.name = "batch",
                .group = FieldGroup::kStep,
                .thousand = Thousand::kBinary,
                .help = "sequences in a batch, B",
                .about = "rows (B)"},
               1, kMaxSize, in(&RunSpec::shape, &BatchShape::batch));
  only_where(is_step, "nothing is updated, so no gradients are added up", kStep,
             rows.integer({.name = "accumulate",
                           .group = FieldGroup::kStep,
                           .show = Show::kVarying,
                           .is_axis = true,
                           .is_optional = true,
                           .help = "micro-batches of a step, each of " TRACESTEP_OPTION(
                               batch) ", that add up "
                                      "their gradients before the update",
                           .about = "micro-batches of a step"},
                          1, kMostMicroBatches, in(&RunSpec::accumulate)));
  rows.integer({.name = "vocab",
                .group = FieldGroup::kModel,
                .show = Show::kData,
                .help = "vocabulary V, unless a tokenizer or a file of weights sets it",
                .about = "vocabulary (V)",
                .applies = [](const RunSpec& spec) { return spec.model.captured == nullptr; }},
               1, kMaxVocab, in(&RunSpec::model, &ModelConfig::vocab));
  rows.choice({.name = "mode",
               .group = FieldGroup::kStep,
               .is_axis = true,
               .help = "what a step does",
               .about = "what a step does"},
              kAll<Mode>, in(&RunSpec::mode));
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
      kAll<LossKind>, in(&RunSpec::loss));
}

// Adds the fields that select the weights to train: adapters of a frozen model, and frozen parts.
void add_trained_fields(Rows& rows) {
  rows.parsed(
      field_of_parts(
          {.name = "lora",
           .show = Show::kVarying,
           .is_optional = true,
           .is_kept = true,
           .value_name = "HOW",
           .help = "train adapters of low rank beside the products of weights, and nothing else: "
                   "r=N (8), alpha=X (8), targets=q+v (also k, o, gate, up, down, all, or paths of "
                   "weights with *), dropout=X, rslora; or from=DIR, as PEFT has saved them "
                   "(docs/fine-tuning.md)",
           .about = "the adapters that are trained alone"},
          adapter_fields()),
      parse_adapters, in(&RunSpec::lora));
  RunField frozen{.name = "freeze",
                  .show = Show::kVarying,
                  .is_axis = true,
                  .is_optional = true,
                  .is_kept = true,
                  .value_name = "PATHS",
                  .examples = {"none", "token_embeddings", "layers.0", "*.ln1", "layers.*.attn"},
                  .joint = '+',
                  .help =
                      "parts of the model whose weights are not trained, joined by +: paths "
                      "such as layers.0-15+token_embeddings, with * for any names",
                  .about = "parts that are not trained"};
  only_where([](const RunSpec& run) { return !run.lora.is_on(); },
             "with adapters all weights of the model are frozen", TRACESTEP_OPTION(lora) " none",
             rows.parsed(std::move(frozen), parse_frozen, in(&RunSpec::frozen)));
}

// Adds the field that makes the rows of a batch hold whole documents.
void add_row_fields(Rows& rows) {
  rows.toggle({.name = "packed",
               .flag = "--pack",
               .show = Show::kKey,
               .is_optional = true,
               .help = "rows hold whole documents side by side, which do not see each other "
                       "(docs/data.md); of measured steps sixteen each"},
              in(&RunSpec::packed));
}

// Makes a field that selects another schedule of the same step, which a grid can vary.
RunField of_speed(const char* name, const char* about, std::string help,
                  const char* value_name = "N") {
  return {.name = name,
          .role = Role::kSpeed,
          .show = Show::kVarying,
          .is_axis = true,
          .is_optional = true,
          .value_name = value_name,
          .help = std::move(help),
          .about = about};
}
RunField form_of_speed(const char* name, const char* about, std::string help,
                       const char* value_name = "N") {
  RunField out = of_speed(name, about, std::move(help), value_name);
  out.is_form = true;
  return out;
}

bool has_loss(const RunSpec& run) {
  return run.mode != Mode::kInference;
}
bool has_codes(const RunSpec& run) {
  return run.precision.float8;
}

void add_form_fields(Rows& rows) {
  rows.choice(
      {.name = "precision",
       .is_axis = true,
       .help = "tf32 (CUDA only) rounds the operands of matrix products; fp32-split (Hopper only) "
               "multiplies float32 by parts on tensor cores; bf16 and fp16 compute "
               "matrix products in 16 bits and keep float32 weights; fp8 is bf16 with those "
               "of the layers in 8 bits; bf16-pure and fp16-pure "
               "store weights, activations and gradients in 16 bits, and AdamW's states "
               "as " TRACESTEP_OPTION(moments) " says: in float32, or with bf16 in 16 bits too",
       .about = "of parameters and activations"},
      all_precisions(), in(&RunSpec::precision));
  only_where(
      has_codes, kNoCodes, kFp8,
      rows.choice(
          {.name = "fp8_products",
           .show = Show::kVarying,
           .is_axis = true,
           .is_optional = true,
           .help = "with fp8, which products of the layers run in 8 bits: those large enough for a "
                   "GPU to gain by it, or all whose sizes are multiples of 16",
           .about = "which products fp8 runs in 8 bits: paying or all"},
          kAll<Float8Products>, in(&RunSpec::fp8_products)));
  only_where(
      has_codes, kNoCodes, kFp8,
      rows.choice(
          {.name = "fp8_scaling",
           .show = Show::kVarying,
           .is_axis = true,
           .is_optional = true,
           .help = "with fp8, what scales an operand: its largest magnitude in the step before, so "
                   "that it is read once, or now; modes without backward take it now",
           .about = "where the scales of fp8 come from: delayed or current"},
          kAll<Float8Scaling>, in(&RunSpec::fp8_scaling)));
  rows.parsed(
      granularity_field(
          {.name = "ops",
           .is_axis = true,
           .is_form = true,
           .help =
               "composite ops expanded into simple ones, as plain framework code runs them, or "
               "each with a kernel of its own; or just some of them, joined by + (norm, swiglu, "
               "rope, softmax, loss, optimizer)",
           .about = "granularity of the program"}),
      parse_granularity, in(&RunSpec::ops));
  rows.choice(
      {.name = "attention",
       .is_axis = true,
       .is_form = true,
       .is_optional = true,
       .help = "two matrix products around a softmax, or one kernel that works tile by tile and "
               "never stores the matrix of scores",
       .about = "its form: naive or flash"},
      kAll<AttentionForm>, in(&RunSpec::attention));
  rows.choice(
      form_of_speed(
          "executor", "how it runs",
          "eager runs op by op, with buffers from the allocator; arena runs fewer ops, after "
          "the compile passes, in one planned allocation; compiled also replays them as one "
          "graph where the device can"),
      kAll<ExecutorKind>, in(&RunSpec::executor));
  rows.add(compile_passes_field(form_of_speed(
      "compile_passes", "the passes of the pipeline that run only for it",
      fmt::format(
          "passes that save launches and memory traffic: {}, joined by +; all; none; or "
          "auto, which is none for the executor eager and all for the others, pad only on a GPU, "
          "update_beside and stream_states only with the optimizer in the host's memory",
          fmt::join(compile_passes(), ", ")),
      "SET")));
  only_where(
      is_step, "nothing is updated, so there is no optimizer", kStep,
      rows.choice(
          {.name = "optimizer",
           .show = Show::kVarying,
           .is_axis = true,
           .is_optional = true,
           .is_kept = true,
           .help = "adamw; or muon for the matrices of the layers, whose steps five products of "
                   "Newton and Schulz make orthogonal, with adamw for all else",
           .about = "how weights are updated: adamw or muon"},
          kRunOptimizers, in(&RunSpec::optimizer, &OptimizerOptions::kind)));
  only_where(
      is_step, "nothing is updated, so there are no moments", kStep,
      rows.choice(
          {.name = "moments",
           .show = Show::kVarying,
           .is_axis = true,
           .is_optional = true,
           .is_kept = true,
           .help =
               "how the optimizer's states m and v are stored, in every precision: fp32; bf16, "
               "rounded at random, which the step's number and the data decide; or 8bit (AdamW's), "
               "rounded so to codes in blocks of 128, each with a scale",
           .about = "how the optimizer's states are stored"},
          kAll<Moments>, in(&RunSpec::optimizer, &OptimizerOptions::moments)));
  only_where(
      [](const RunSpec& run) {
        return is_step(run) && run.accumulate > 1 && run.precision.autocast;
      },
      "only gradients of micro-batches that are made in 16 bits, of weights in float32, can be "
      "added up in either",
      TRACESTEP_OPTION(accumulate) " of two or more with " TRACESTEP_OPTION(
          precision) " bf16, fp16 or fp8",
      rows.choice({.name = "grad_accum_dtype",
                   .show = Show::kVarying,
                   .is_axis = true,
                   .is_optional = true,
                   .is_kept = true,
                   .help = "what the gradients of micro-batches are added up in, where "
                           "weights are in float32: fp32; or low, which keeps those that "
                           "products make in 16 bits as they are made, in half the memory, "
                           "and rounds each sum to it",
                   .about = "the dtype of summed gradients"},
                  kAll<GradientSums>, in(&RunSpec::grad_accum_dtype)));
}

// Adds fields that decide when and where a step does its work: same numbers, other bytes and times.
void add_schedule_fields(Rows& rows) {
  only_where(
      [](const RunSpec& run) { return run.executor == ExecutorKind::kCompiled; },
      "no step is captured, so its launches have no order of their own",
      TRACESTEP_OPTION(executor) " compiled",
      rows.choice(
          form_of_speed(
              "launch_order", "when captured kernels are launched",
              "when the kernels of a captured step are launched: serial, each when those before "
              "it have ended, or dependent, a little earlier where the kernel itself waits for "
              "them; the same elsewhere than on GPUs of compute capability 9.0 and later"),
          kAll<LaunchOrder>, in(&RunSpec::launch_order)));
  only_where(
      is_step, "nothing is updated, early or late", kStep,
      rows.choice(
          of_speed(
              "updates", "when weights are updated",
              "when weights are updated: after backward, all together, or inside it, each as soon "
              "as its gradient is there, so that gradients are never alive all together"),
          kAll<UpdateTime>, in(&RunSpec::updates)));
  only_where(
      is_step, "nothing is updated, so nothing waits in the host's memory", kStep,
      rows.choice(
          of_speed(
              "offload", "what lies in the host's memory",
              "what lies in the host's memory instead of the device's: none; optimizer, which "
              "is AdamW's moments and, where products read narrow copies, the weights; "
              "activations, which is what layers keep for backward; or optimizer+activations; no "
              "effect on a CPU, whose memory is the host's"),
          kAll<Offload>, in(&RunSpec::offload)));
  only_where(
      has_loss, "inference keeps nothing for backward, so there is nothing to compute again", kStep,
      rows.parsed(
          recompute_field(of_speed(
              "recompute", "what backward computes again",
              "what backward computes again instead of keeping it: none; blocks, one by one; "
              "every=N, groups of N blocks; nested, by repeated halving; budget=20GiB, the "
              "cheapest choice with that peak; or model paths such as layers.*.ffn+lm_head",
              "WHAT")),
          parse_recomputation, in(&RunSpec::recompute)));
  only_where(
      has_loss, "inference ends with logits, so there is no loss to divide", kStep,
      rows.add(chunks_field(
          of_speed("loss_chunks", "parts that the loss is computed in",
                   "parts of the batch's rows that logits, loss and their gradients are computed "
                   "in, one after the other, so that the logits never exist as a whole; auto: as "
                   "many chunks of at least 1024 rows as save memory"),
          &RunSpec::loss_chunks)));
  rows.add(chunks_field(
      of_speed(
          "ffn_chunks", "parts that feed-forwards are computed in",
          "parts of the batch's rows that each feed-forward of our own models is computed in, "
          "one after the other, so that with " TRACESTEP_OPTION(
              recompute) " its inner tensors never exist "
                         "as a whole; auto: as many chunks of at least 1024 rows as save memory"),
      &RunSpec::ffn_chunks));
  rows.parsed(field_of_parts(
                  {.name = "parallel",
                   .role = Role::kSpeed,
                   .show = Show::kVarying,
                   .is_optional = true,
                   .value_name = "HOW",
                   .help = "split the step over ranks: dp=N (the batch), shard=1|2|3 (ZeRO's "
                           "stages), tp=N (the "
                           "model); also bucket, sums, overlap, prefetch and sp (docs/parallel.md)",
                   .about = "how ranks share the step"},
                  parallel_fields()),
              parse_parallel, in(&RunSpec::parallel));
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
            "the ranks"),
      1, kMaxThreads, in(&RunSpec::place, &Place::threads));
  RunField limit =
      place("memory_limit_bytes", Show::kKey,
            "behave like a device with this much memory, such as 16GiB; none: try even "
            "what this machine has no room for");
  limit.flag = "--memory-limit";
  add_none(rows.bytes(std::move(limit), in(&RunSpec::place, &Place::memory_limit_bytes)));
  RunField seed = place("seed", Show::kKey, "seed of weights, batches and sampling");
  seed.role = Role::kBits;
  rows.integer(std::move(seed), 0, std::numeric_limits<std::int64_t>::max(), in(&RunSpec::seed));
  rows.toggle(place("deterministic", Show::kNowhere,
                    "refuse what may give other bits in another run: " TRACESTEP_OPTION(
                        tune) " for a product without a "
                              "stored choice"),
              in(&RunSpec::place, &Place::deterministic));
  rows.toggle(place("tune", Show::kNowhere,
                    "CUDA: time the algorithms for each new matrix product and keep the fastest"),
              in(&RunSpec::place, &Place::tune));
  RunField file =
      place("tune_file", Show::kNowhere,
            "file of these choices; tracestep-tuning.json with " TRACESTEP_OPTION(tune));
  file.value_name = "FILE";
  rows.text(std::move(file), in(&RunSpec::place, &Place::tune_file));
}

std::vector<RunField> all_fields() {
  Rows rows;
  add_model_fields(rows);
  add_step_fields(rows);
  add_trained_fields(rows);
  add_row_fields(rows);
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
