#include "weights/captured_tensors.h"

#include <optional>

#include "base/error.h"
#include "base/random.h"
#include "runtime/processes.h"
#include "spec/step_program.h"
#include "weights/model_store.h"
#include "weights/peft_files.h"
#include "weights/saved_tensors.h"

namespace tracestep {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& file) {
  std::error_code none;
  return fs::exists(file, none);
}

const Value& leaf_of(const CapturedModel& model, const std::string& name) {
  return model.program.value(model.program.find_leaf(name));
}

// Reads the tensor of a leaf; fails if it is missing, or not of the type in the module's program.
HostTensor read_leaf(const SavedTensors& file, const std::string& name, const Type& type) {
  if (!file.has(name)) fail_input(file.path(), "tensor '{}' is missing", name);
  const Type found = file.type(name);
  if (found != type) {
    fail_input(file.path(), "tensor '{}' is {}, the program expects {}", name, found.str(),
               type.str());
  }
  return file.read(name);
}

void load_leaf(const WholeTensors& to, const SavedTensors& file, const CapturedModel& model,
               const std::string& name) {
  load_tensor(to, name, read_leaf(file, name, leaf_of(model, name).type));
}

// Throws for a tensor that is no weight or constant of the module, and no adapter.
void check_names(const SavedTensors& file, const CapturedModel& model) {
  for (const std::string& name : file.names()) {
    const ValueId id = model.program.find_leaf(name);
    const bool is_leaf = id != kNoValue && model.program.value(id).leaf != LeafKind::kInput;
    if (is_leaf || model.tied.contains(name) || is_adapter(name)) continue;
    fail_input(file.path(), "{} has no weight '{}'", model.name, name);
  }
}

std::int64_t integer_in(const HostTensor& tensor, std::int64_t i) {
  return tensor.as<std::int64_t>()[static_cast<std::size_t>(i)];
}

// Fails for a token beyond the vocabulary. Negative targets are fine, as losses ignore them.
void check_tokens(const std::string& where, const CapturedInput& input, const HostTensor& value) {
  if (input.role == InputRole::kGiven || input.role == InputRole::kBatch) return;
  for (std::int64_t i = 0; i < value.count(); ++i) {
    const std::int64_t token = integer_in(value, i);
    const bool is_ignored = input.role == InputRole::kTargets && token < 0;
    if (is_ignored || (token >= 0 && token < input.high)) continue;
    fail_input(where, "{} of '{}' is no token below {}", token, input.name, input.high);
  }
}

HostTensor drawn_tokens(const CapturedInput& input, const Shape& shape, std::uint64_t seed) {
  HostTensor out = HostTensor::zeros(DType::kI64, shape);
  const CounterRng rng(seed, input.name);
  std::uint64_t index = 0;
  for (std::int64_t& token : out.as<std::int64_t>()) {
    token = static_cast<std::int64_t>(rng.below(index++, static_cast<std::uint64_t>(input.high)));
  }
  return out;
}

// Returns made-up values: numbers in [-√3, √3), whose variance is 1; zeros of any other type.
HostTensor made_values(const CapturedInput& input, const Type& type, std::uint64_t seed) {
  if (!is_floating(type.dtype)) return HostTensor::zeros(type.dtype, type.shape);
  HostTensor out = HostTensor::zeros(DType::kF64, type.shape);
  const CounterRng rng(seed, input.name);
  std::uint64_t index = 0;
  for (double& value : out.as<double>()) value = (rng.uniform(index++) - 0.5) * 3.4641016151377544;
  return as_dtype(out, type.dtype);
}

// Returns `shape` with the rows of all replicas, each of which has those of the module's program.
Shape of_replicas(Shape shape, int replicas) {
  if (!shape.empty()) shape[0] *= replicas;
  return shape;
}

// Returns the tensor with each replica's rows `times` times, once for each of its micro-batches.
HostTensor repeated(const HostTensor& value, std::int64_t times, int replicas) {
  if (times == 1) return value;
  Shape shape = value.shape;
  shape[0] *= times;
  HostTensor out = HostTensor::zeros(value.dtype, shape);
  const auto share = static_cast<std::ptrdiff_t>(value.bytes.size()) / replicas;
  auto to = out.bytes.begin();
  for (int replica = 0; replica < replicas; ++replica) {
    for (std::int64_t i = 0; i < times; ++i)
      to = std::copy_n(value.bytes.begin() + replica * share, share, to);
  }
  return out;
}

}  // namespace

HostTensor batch_numbers(const RunSpec& run, std::int64_t number) {
  const std::int64_t replicas = run.parallel.replicas(), parts = micro_batches_of(run);
  HostTensor out = HostTensor::zeros(DType::kI64, {replicas * parts});
  const auto seed = static_cast<std::uint64_t>(run.seed) << 40U;
  const std::span<std::int64_t> numbers = out.as<std::int64_t>();
  for (std::int64_t i = 0; i < replicas * parts; ++i) {
    const std::int64_t replica = i / parts, batch = number * parts + i % parts;
    const auto own = static_cast<std::uint64_t>(batch * replicas + replica);
    numbers[static_cast<std::size_t>(i)] = static_cast<std::int64_t>(seed + own);
  }
  return out;
}

bool has_captured_weights(const CapturedModel& model) {
  return is_there(model.folder / kCapturedWeights);
}

void load_captured_weights(const WholeTensors& to, const CapturedModel& model,
                           const SavedTensors& file) {
  check_names(file, model);
  for (ValueId id : model.program.leaves) {
    const Value& leaf = model.program.value(id);
    if (leaf.leaf == LeafKind::kParameter) load_leaf(to, file, model, leaf.name);
  }
}

void load_captured_constants(const WholeTensors& to, const RunSpec& run) {
  if (run.model.captured == nullptr || !to.computes()) return;
  const CapturedModel& model = *run.model.captured;
  const bool has_weights = has_captured_weights(model);
  std::optional<SavedTensors> weights, constants;
  const auto opened = [&](std::optional<SavedTensors>& file,
                          const char* name) -> const SavedTensors& {
    if (!file) file.emplace(model.folder / name);
    return *file;
  };
  for (ValueId id : model.program.leaves) {
    const Value& leaf = model.program.value(id);
    if (leaf.leaf != LeafKind::kConstant || !to.has(leaf.name)) continue;
    if (!model.frozen.contains(leaf.name)) {
      load_leaf(to, opened(constants, kCapturedConstants), model, leaf.name);
    } else if (has_weights) {
      load_leaf(to, opened(weights, kCapturedWeights), model, leaf.name);
    } else {
      initialize_tensor(to, leaf.name, run.seed);
    }
  }
}

void start_captured(const WholeTensors& to, const RunSpec& run, const SavedTensors* init) {
  const CapturedModel& model = *run.model.captured;
  if (init != nullptr) {
    load_captured_weights(to, model, *init);
  } else if (has_captured_weights(model)) {
    load_captured_weights(to, model, SavedTensors(model.folder / kCapturedWeights));
  } else {
    initialize_parameters(to, run.seed);
  }
  load_captured_constants(to, run);
  start_adapters(to, run);
  for (const std::string& name : to.names(LeafKind::kParameter)) {
    const bool has_adapter = is_adapter(name) && init != nullptr && init->has(name);
    if (has_adapter) load_tensor(to, name, init->read(name));
  }
}

std::optional<NotFinite> save_captured(const WholeTensors& from, const CapturedModel& model,
                                       const fs::path& path) {
  std::map<std::string, std::string> leaves;  // by the name in the file
  for (ValueId id : model.program.leaves) {
    const Value& leaf = model.program.value(id);
    const bool is_saved = leaf.leaf == LeafKind::kParameter || model.frozen.contains(leaf.name) ||
                          model.buffers.contains(leaf.name);
    if (is_saved && from.has(leaf.name)) leaves[leaf.name] = leaf.name;
  }
  for (const auto& [other, leaf] : model.tied) leaves[other] = leaf;
  for (const std::string& name : from.names(LeafKind::kParameter)) {
    if (is_adapter(name)) leaves[name] = name;
  }
  TensorTypes types;
  for (const auto& [name, leaf] : leaves) types[name] = from.type(leaf);
  const bool writes = from.processes() == nullptr || from.first_rank() == 0;
  std::optional<SafetensorsOutput> file;
  if (writes) file.emplace(path, types);
  std::optional<NotFinite> found;
  for (const std::string& name : order_in_file(types)) {
    const HostTensor value = from.get(leaves.at(name));  // all ranks gather all of them
    if (!found) found = find_not_finite(name, value);
    if (writes && !found) file->add(value);
  }
  if (writes && !found) file->commit();
  if (from.processes() != nullptr) from.processes()->wait_for_first();
  return found;
}

std::map<std::string, HostTensor> captured_inputs(const RunSpec& run, const Program& program,
                                                  const fs::path& file, bool draws) {
  const CapturedModel& model = *run.model.captured;
  const fs::path own = model.folder / kCapturedInputs;
  const bool is_asked = !file.empty();
  std::optional<SavedTensors> saved;
  if (is_asked || is_there(own)) saved.emplace(is_asked ? file : own);
  const int replicas = run.parallel.replicas();
  std::map<std::string, HostTensor> out;
  for (const CapturedInput& input : model.inputs) {
    if (program.find_leaf(input.name) == kNoValue) continue;
    if (input.role == InputRole::kBatch) {
      out.emplace(input.name, batch_numbers(run, 0));
      continue;
    }
    const Type& type = leaf_of(model, input.name).type;
    const bool is_given = input.role == InputRole::kGiven;
    const bool is_saved = saved && (is_asked || saved->has(input.name));
    HostTensor value;
    if (is_saved && !(draws && !is_given) && (is_given || replicas == 1)) {
      value = read_leaf(*saved, input.name, type);
      check_tokens(saved->path().string(), input, value);
    } else if (is_given) {
      value = made_values(input, type, run.seed);
    } else {
      value = drawn_tokens(input, of_replicas(type.shape, replicas), run.seed);
    }
    if (!is_given) value = repeated(value, micro_batches_of(run), replicas);
    const DType wanted = program.type(program.find_leaf(input.name)).dtype;
    if (wanted != value.dtype) value = as_dtype(value, wanted);  // a device of float64
    out.emplace(input.name, std::move(value));
  }
  return out;
}

void set_captured_inputs(Executor& executor, const RunSpec& run) {
  for (const auto& [name, value] : captured_inputs(run, executor.program(), {}, true)) {
    executor.set_input(name, value);
  }
}

}  // namespace tracestep
