#include "capi/step/step_programs.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/error.h"
#include "base/input_file.h"
#include "base/suggest.h"
#include "captured/forward_program.h"
#include "ir/parse.h"
#include "nn/captured_programs.h"
#include "nn/transformer.h"
#include "passes/autograd.h"
#include "passes/form_passes.h"
#include "passes/pipeline.h"
#include "spec/run_grid.h"
#include "spec/step_program.h"

namespace tracestep::capi {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBeforeUpdates = "reduce";  // the pass in front of `optimizer`

// Returns the name of the field's flag without "--", with underscores for dashes.
std::string word_of(const RunField& field) {
  std::string out = field.flag.substr(2);
  std::ranges::replace(out, '-', '_');
  return out;
}

// Throws for an option of the commands that a caller's own module, optimizer or loop replaces.
[[noreturn]] void fail_of_task(const std::string& name) {
  throw Error(ErrorCode::kUsage, "words",
              fmt::format("{} is an option of the commands alone: here the module, its inputs, the "
                          "optimizer and the loop around them decide it",
                          name),
              "leave it out; docs/in-process.md says what each of them decides");
}

const RunField& field_of(const std::string& name) {
  std::vector<std::string> names;
  for (const RunField& field : run_fields()) {
    const std::string word = word_of(field);
    if (is_of_task(field)) {
      if (word == name) fail_of_task(name);
      continue;
    }
    names.push_back(word);
    if (word == name) return field;
  }
  check_choice("words", name, names);
  throw Error(ErrorCode::kUsage, "words", name + " is no word");
}

// Returns what passes need to know of the device: its kernels and traits.
PassContext context_for(const Device& device) {
  PassContext out;
  out.has_kernel = [&device](const OpDef& op) { return device.has_kernel(op); };
  out.traits = device.traits();
  return out;
}

std::vector<UpdateGroup> groups_of(const Program& program, const StepOptions& options) {
  std::vector<UpdateGroup> out = options.groups;
  if (out.empty()) out.emplace_back();
  if (out.size() > 1 || !out.front().parameters.empty()) return out;
  for (const ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    if (leaf.leaf == LeafKind::kParameter) out.front().parameters.insert(leaf.name);
  }
  return out;
}

// Runs all passes on `forward` and returns the result; in place of the pass `optimizer`, updates
// are added here for the groups of parameters that the options have.
Program passed(const Program& forward, const RunSpec& run, const StepOptions& options,
               const Device& device, PassContext context) {
  Program out;
  if (run.mode == Mode::kStep) {
    context.stop_after = kBeforeUpdates;
    out = run_pipeline(forward, run, context).program;
    OptimizerOptions update = run.optimizer;
    update.loss_scaling.enabled = scales_loss(run.precision);
    const std::vector<UpdateGroup> groups = groups_of(out, options);
    out = optimizer(out, update, {.groups = groups});
    context.stop_after.clear();
    context.start_after = "optimizer";
    out = run_pipeline(out, run, context).program;
  } else {
    out = run_pipeline(forward, run, context).program;
  }
  return device.supports(DType::kF32) ? out : as_float64(out);
}

// Returns a program that updates the store's parameters by its gradients; with `is_summed`, the
// gradients are its outputs too, so that passes sum them over the ranks.
Program updates_of(const Store& store, bool is_summed) {
  Builder b("update");
  for (const std::string& name : store.names(LeafKind::kParameter)) {
    const Store::Entry& entry = store.at(name);
    if (store.find(gradient_name(name)) == nullptr) {
      fail_usage("kind", "there is no gradient of {}: start a run of FIRST before", name);
    }
    const Val parameter = b.parameter(name, entry.type, entry.part);
    const Val gradient = b.state_of(parameter, kGradientPrefix, entry.type.dtype, Role::kGradient);
    if (is_summed) b.output(gradient_name(name), gradient);
  }
  for (const std::string& name : store.names(LeafKind::kState)) {  // narrow copies
    const Store::Entry& entry = store.at(name);
    if (entry.category != Category::kWeightCast) continue;
    b.leaf(LeafKind::kState, name, entry.type, Role::kWeightCast, entry.part);
  }
  return b.finish();
}

Program forward_of(const RunSpec& run, double scale) {
  const bool has_logits = run.mode == Mode::kForward &&
                          run.model.captured->program.find_output(kLogitsOutput) != kNoValue;
  return loss_program(run, {.with_logits = has_logits, .scale = scale});
}

Mode mode_of(tracestep_kind kind) {
  switch (kind) {
    case TRACESTEP_FORWARD: return Mode::kForward;
    case TRACESTEP_STEP:
    case TRACESTEP_UPDATE: return Mode::kStep;
    default: return Mode::kForwardBackward;
  }
}

}  // namespace

std::shared_ptr<const CapturedModel> program_at(const fs::path& path) {
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return captured_at(path);
  const std::string text = read_text_file(path, "program"_field, kMaxProgramBytes);
  const Program program = read_forward_program(text, path.string());
  Json index = Json::object();
  index["format"] = 1;
  index["module"] = path.stem().string();
  Json inputs = Json::array();
  for (const ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    if (leaf.leaf != LeafKind::kInput) continue;
    Json input = Json::object();
    input["name"] = leaf.name;
    input["role"] = "given";
    inputs.push_back(std::move(input));
  }
  index["inputs"] = std::move(inputs);
  return std::make_shared<const CapturedModel>(
      captured_from(text, index.dump(), path.parent_path()));
}

RunSpec run_of_words(const std::string& words, std::shared_ptr<const CapturedModel> module) {
  RunGrid grid;
  grid.base.mode = Mode::kStep;
  grid.base.executor = ExecutorKind::kCompiled;
  if (module != nullptr) grid.base.model = captured_config(std::move(module));
  std::istringstream rest(words);
  for (std::string word; rest >> word;) {
    const std::size_t equals = word.find('=');
    std::string name = word.substr(0, equals);
    std::ranges::replace(name, '-', '_');
    if (equals == word.npos) fail_usage("words", "{} has no value: NAME=VALUE is one", word);
    grid.give(field_of(name), name, {word.substr(equals + 1)});
  }
  return grid.run();
}

Program program_of_kind(tracestep_kind kind, const RunSpec& given, const StepOptions& options,
                        const Store& store) {
  const Device& device = store.device();
  PassContext context = context_for(device);
  RunSpec run = given;
  run.mode = mode_of(kind);
  run.optimizer.kind = options.rule;
  run.optimizer.report_norm = std::isinf(options.clip);
  run.optimizer.clip = run.optimizer.report_norm ? 0.0 : options.clip;
  run.optimizer.loss_scaling = options.loss_scaling;
  run.optimizer.loss_scaling.floor = kLossScaleFloor;
  if (kind == TRACESTEP_UPDATE) {
    context.has_gradients = true;
    return passed(updates_of(store, run.parallel.is_on()), run, options, device, context);
  }
  const bool is_part = kind == TRACESTEP_FIRST || kind == TRACESTEP_NEXT;
  const double ranks = kind == TRACESTEP_FORWARD ? 1.0 : run.parallel.ranks;
  if (is_part || kind == TRACESTEP_FORWARD) run.parallel = {};  // nothing is summed yet
  if (kind == TRACESTEP_FIRST) run.gradients = GradientKind::kPersistent;
  if (kind == TRACESTEP_NEXT) run.gradients = GradientKind::kAccumulate;
  const Program forward = forward_of(run, 1.0 / (is_part ? options.accumulate * ranks : ranks));
  return passed(forward, run, options, device, context);
}

}  // namespace tracestep::capi
