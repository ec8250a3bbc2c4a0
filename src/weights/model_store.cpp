#include "weights/model_store.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/half.h"
#include "base/json.h"
#include "base/log.h"
#include "base/random.h"
#include "base/shares.h"
#include "nn/scopes.h"
#include "ops/nf4_codes.h"
#include "passes/form_passes.h"
#include "passes/loss_scaling.h"
#include "run/adapters.h"
#include "runtime/processes.h"
#include "runtime/value_filler.h"
#include "spec/fields.h"
#include "spec/parse_words.h"
#include "tokens/tokenizer.h"
#include "weights/nf4_weights.h"
#include "weights/peft_files.h"
#include "weights/whole_tensors.h"

namespace tracestep {
namespace {

constexpr double kTruncation = 3.0;  // in σ

// The initial values of a tensor: `constant`, or random ones of mean 0 and deviation `sigma`.
struct Initial {
  double constant = 0.0;
  double sigma = 0.0;  // 0: all values are the constant
};

constexpr std::string_view kEmbeddingTable = "token_embeddings.weight",
                           kHeadWeight = "lm_head.weight";

// Returns how a parameter is initialised. A tied embedding has small values, as it is the head as
// well. Of adapters A has the variance of PEFT's, 1/(3·in), and B is zero.
Initial initial_of(std::string_view name, const Shape& shape, bool is_tied) {
  if (name.ends_with(kAdapterB)) return {};
  if (name.ends_with(kAdapterA)) {
    return {.sigma = 1.0 / std::sqrt(3.0 * static_cast<double>(shape[1]))};
  }
  if (shape.rank() < 2) return {.constant = name.ends_with(".weight") ? 1.0 : 0.0};
  if (name == kEmbeddingTable && !is_tied) return {.sigma = 1.0};
  const auto first = static_cast<double>(std::max<std::int64_t>(1, shape[0]));
  return {.sigma = std::sqrt(2.0 / (first + static_cast<double>(shape.product()) / first))};
}

// A parameter's values on the host, to be written.
struct Values {
  DType dtype;
  std::byte* bytes;
};

void store_value(const Values& out, std::int64_t index, double value) {
  switch (out.dtype) {
    case DType::kF64: reinterpret_cast<double*>(out.bytes)[index] = value; return;
    case DType::kF32:
      reinterpret_cast<float*>(out.bytes)[index] = static_cast<float>(value);
      return;
    case DType::kBF16:
      reinterpret_cast<BF16*>(out.bytes)[index] = to_bf16(static_cast<float>(value));
      return;
    case DType::kF16:
      reinterpret_cast<F16*>(out.bytes)[index] = to_f16(static_cast<float>(value));
      return;
    default: fail_usage("init"_field, "parameters of {} cannot be initialised", name_of(out.dtype));
  }
}

void fill_range(const Values& out, const Initial& initial, std::uint64_t seed,
                std::string_view name, std::int64_t begin, std::int64_t end) {
  const CounterRng rng(seed, name);
  const TruncatedNormal normal(kTruncation);
  for (std::int64_t i = begin; i < end; ++i) {
    const bool is_random = initial.sigma > 0.0;
    store_value(
        out, i,
        is_random ? initial.sigma * normal(rng, static_cast<std::uint64_t>(i)) : initial.constant);
  }
}

// Describes uniform values around 0 whose variance is that of `initial`.
UniformValues uniform_like(const Initial& initial, std::uint64_t seed, std::string_view name) {
  return {seed, stream_hash(name), initial.sigma * std::sqrt(12.0) * 0x1p-32};
}

void fill_range_uniform(const Values& out, const Initial& initial, std::uint64_t seed,
                        std::string_view name, std::int64_t begin, std::int64_t end) {
  const UniformValues values = uniform_like(initial, seed, name);
  Uint32x4 draw{};
  for (std::int64_t i = begin; i < end; ++i) {
    if (i == begin || i % 4 == 0) draw = words_of(values, static_cast<std::uint64_t>(i / 4));
    store_value(out, i,
                initial.sigma > 0.0 ? value_of(values, draw[static_cast<std::size_t>(i % 4)])
                                    : initial.constant);
  }
}

using Fill = void (*)(const Values&, const Initial&, std::uint64_t, std::string_view, std::int64_t,
                      std::int64_t);

void fill_tensor(Fill fill, const Values& out, const Shape& shape, const Initial& initial,
                 std::uint64_t seed, const std::string& name) {
  in_shares(shape.product(), 1 << 16, [&](std::int64_t begin, std::int64_t end) {
    fill(out, initial, seed, name, begin, end);
  });
}

// A number in a saved model's metadata; `fallback` where it has no such key.
std::int64_t integer_of(const SavedTensors& from, const std::string& key, std::int64_t fallback) {
  const auto found = from.metadata().find(key);
  if (found == from.metadata().end()) return fallback;
  const std::string& text = found->second;
  std::int64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size() || out < 1) {
    fail_input(from.path(), "{} is \"{}\" in its metadata, not a whole number above 0", key, text);
  }
  return out;
}

Shape matrix(const SavedTensors& from, const std::string& name) {
  const std::string codes = name + std::string(kNf4Codes);
  const Shape shape = from.has(codes)  ? coded_shape(from.type(codes))
                      : from.has(name) ? from.type(name).shape
                                       : Shape();
  if (shape.rank() != 2) {
    fail_input(from.path(), "there is no matrix '{}': not a model of this kind", name);
  }
  return shape;
}

// True if a tensor of a file may be stored: its type matches, or is converted, as for a device
// that computes in float64 and for a published model in any floating type.
bool is_storable(const Type& from, const Type& to, bool is_published) {
  const bool converts = is_published || to.dtype == DType::kF64;
  return from == to ||
         (converts && from.shape == to.shape && is_floating(from.dtype) && !is_float8(from.dtype));
}

}  // namespace

namespace {

// Returns NF4 magnitudes or scales in the shape that `to` has; nullopt: no change is needed.
std::optional<HostTensor> divided_otherwise(const WholeTensors& to, const std::string& name,
                                            const TensorView& value) {
  const Type type = to.type(name);
  if (!is_part_of_nf4(name) || value.shape == type.shape) return std::nullopt;
  const std::string codes = std::string(weight_of_part(name)) + std::string(kNf4Codes);
  return with_shape(value.copy(), type.shape, nf4_blocks(2 * to.type(codes).count()));
}

}  // namespace

void load_tensor(const WholeTensors& to, const std::string& name, const TensorView& value) {
  const Type type = to.type(name);
  if (const auto divided = divided_otherwise(to, name, value)) {
    return load_tensor(to, name, *divided);
  }
  if (value.dtype != type.dtype &&
      is_storable({value.dtype, value.shape}, type, to.is_frozen(name))) {
    to.set(name, as_dtype(value, type.dtype));
  } else {
    to.set(name, value);
  }
}

void load_tensor(Store& store, const std::string& name, const TensorView& value) {
  load_tensor(WholeTensors(store), name, value);
}

void initialize_states(const WholeTensors& to) {
  const std::string name(kLossScale);
  if (!to.computes() || !to.has(name)) return;
  const auto scale = static_cast<float>(kInitialLossScale);
  load_tensor(to, name, HostTensor::of<float>(DType::kF32, {}, std::span(&scale, 1)));
}

void initialize_states(Store& store) {
  initialize_states(WholeTensors(store));
}

namespace {

// A function that sets a whole parameter in the device's memory; it returns false if it cannot.
using FillThere = std::function<bool(const std::string& name, const Initial& initial)>;

void fill_parameters(Fill fill, const WholeTensors& to, std::uint64_t seed,
                     const FillThere& fill_there = {}) {
  if (!to.computes()) return;
  initialize_states(to);
  std::vector<std::string> names = to.weights();
  const bool is_tied = std::ranges::find(names, kHeadWeight) == names.end();
  std::erase_if(names, [&](const std::string& name) {
    const bool is_plain = !is_part_of_nf4(name) && weight_of_codes(name).empty();
    return is_plain && fill_there &&
           fill_there(name, initial_of(name, to.type(name).shape, is_tied));
  });
  std::int64_t largest = 0;
  for (const std::string& name : names) {
    // The weight in float32 that codes are made from.
    const std::int64_t elements = 2 * to.type(name).count();
    const bool has_codes = !weight_of_codes(name).empty();
    largest = std::max(largest, has_codes ? elements * 4 : to.type(name).bytes());
  }
  // All parameters share one buffer, which is not cleared: page faults for billions of values take
  // longer than computing them.
  const auto bytes = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(largest));
  for (const std::string& name : names) {
    if (is_part_of_nf4(name)) continue;
    const std::string weight = weight_of_codes(name);
    const Type type =
        weight.empty() ? to.type(name) : Type{DType::kF32, coded_shape(to.type(name))};
    fill_tensor(fill, {type.dtype, bytes.get()}, type.shape,
                initial_of(weight.empty() ? name : weight, type.shape, is_tied), seed,
                weight.empty() ? name : weight);
    if (!weight.empty()) {
      set_nf4(to, weight,
              {type.dtype, type.shape, {bytes.get(), static_cast<std::size_t>(type.bytes())}});
      continue;
    }
    to.set(name, {type.dtype, type.shape, {bytes.get(), static_cast<std::size_t>(type.bytes())}});
  }
}

// Fills a parameter and its narrow copy in the memory of a device; false if the device cannot.
bool fill_on(ValueFiller& filler, const Store& store, const std::string& name,
             const Initial& initial, std::uint64_t seed) {
  if (initial.sigma <= 0.0) return false;
  const UniformValues values = uniform_like(initial, seed, name);
  for (const std::string& held : {name, shadow_name(name)}) {
    const Store::Entry* entry = store.find(held);
    if (entry == nullptr) continue;
    const bool is_there = entry->memory == Memory::kDevice;
    const auto [dtype, shape] = entry->type;
    if (!is_there || !filler.fill_uniform(entry->data, dtype, shape.product(), values)) {
      return false;
    }
  }
  return true;
}

// Zeroes the states that say whether codes of weights are valid, so that these are made anew.
void forget_codes(Store& store) {
  for (const std::string& name : store.names(LeafKind::kState)) {
    if (name.starts_with(kFoundPrefix)) store.zero(name);
  }
}

}  // namespace

void initialize_tensor(const WholeTensors& to, const std::string& name, std::uint64_t seed) {
  HostTensor out = HostTensor::zeros(to.type(name).dtype, to.type(name).shape);
  if (!is_floating(out.dtype)) return to.set(name, out);
  fill_tensor(fill_range, {out.dtype, out.bytes.data()}, out.shape,
              initial_of(name, out.shape, true), seed, name);
  to.set(name, out);
}

void initialize_parameters(const WholeTensors& to, std::uint64_t seed) {
  fill_parameters(fill_range, to, seed);
}

void initialize_parameters(Store& store, std::uint64_t seed) {
  initialize_parameters(WholeTensors(store), seed);
}

void initialize_for_timing(Store& store, std::uint64_t seed) {
  FillThere fill_there;
  if (auto* filler = dynamic_cast<ValueFiller*>(&store.device()); filler != nullptr) {
    fill_there = [&store, filler, seed](const std::string& name, const Initial& initial) {
      return fill_on(*filler, store, name, initial, seed);
    };
  }
  fill_parameters(fill_range_uniform, WholeTensors(store), seed, fill_there);
  if (!fill_there || !store.device().computes()) return;
  forget_codes(store);
  store.device().synchronize();  // no step's time is that of values before it
}

namespace {

// Returns `from` with `rows` rows: the last ones are left out, or each new one is the mean of the
// old ones, as transformers resizes embeddings (resize_token_embeddings), but without its noise.
HostTensor with_rows(const HostTensor& from, std::int64_t rows) {
  Type type{DType::kF32, from.shape};
  type.shape[0] = rows;
  const HostTensor wide = as_dtype(from, DType::kF32);
  HostTensor out = HostTensor::zeros(type.dtype, type.shape);
  const std::span<const float> x = wide.as<float>();
  const std::span<float> y = out.as<float>();
  const auto width = static_cast<std::size_t>(from.shape.product() / from.shape[0]);
  const std::size_t kept = std::min(x.size(), y.size());
  std::ranges::copy(x.first(kept), y.begin());
  if (kept < y.size()) {
    std::vector<double> mean(width, 0.0);
    for (std::size_t i = 0; i < x.size(); ++i) mean[i % width] += static_cast<double>(x[i]);
    const auto count = static_cast<double>(from.shape[0]);
    for (std::size_t i = kept; i < y.size(); ++i) {
      y[i] = static_cast<float>(mean[i % width] / count);
    }
  }
  return as_dtype(out, from.dtype);
}

}  // namespace

bool is_of_vocabulary(std::string_view name) {
  return name == kEmbeddingTable || name == kHeadWeight;
}

// Loads all weights; adapters stay as they are if the file has none, as it may be their base.
void load_parameters(const WholeTensors& to, const SavedTensors& from) {
  const std::string where = from.path().string();
  const std::vector<std::string> names = to.weights(), given = from.names();
  const std::set<std::string> wanted(names.begin(), names.end());
  for (const std::string& name : given) {
    if (wanted.contains(name) || is_nf4(to, name)) continue;
    if (!is_adapter(name)) fail_input(where, "the model has no tensor '{}'", name);
    throw Error(ErrorCode::kInput, where,
                fmt::format("the model has no adapter '{}', and the weights have", name),
                "give by " TRACESTEP_OPTION(lora) " the adapters that they were trained with, or merge them "
                "(export)");
  }
  const bool is_base = std::ranges::none_of(given, is_adapter);
  for (const std::string& name : names) {
    if (is_base && is_adapter(name)) continue;
    if (const std::string weight = weight_of_codes(name); from.has(weight)) {
      set_nf4(to, weight, from.read(weight));
      continue;
    }
    if (!from.has(name) && is_part_of_nf4(name)) continue;  // set with the codes
    if (!from.has(name)) fail_input(where, "tensor '{}' is missing", name);
    Type held = from.type(name);
    const Type type = to.type(name);
    const bool is_resized = from.is_published() && is_of_vocabulary(name) &&
                            held.shape.rank() == type.shape.rank() &&
                            held.shape[0] != type.shape[0];
    if (is_resized && name == kEmbeddingTable) {
      log_info("vocabulary: {} tokens instead of {}; {}", type.shape[0], held.shape[0],
               type.shape[0] < held.shape[0] ? "the last rows are left out"
                                             : "each new row is the mean of those there are");
    }
    if (is_resized) held.shape[0] = type.shape[0];
    if (is_part_of_nf4(name) && held != type) {
      if (const auto divided = divided_otherwise(to, name, from.read(name))) {
        load_tensor(to, name, *divided);
        continue;
      }
    }
    if (!is_storable(held, type, from.is_published() || to.is_frozen(name))) {
      fail_input(where, "tensor '{}' is {}, the model expects {}", name, held.str(), type.str());
    }
    HostTensor value = from.read(name);
    if (is_resized) value = with_rows(value, type.shape[0]);
    held == type ? to.set(name, value) : to.set(name, as_dtype(value, type.dtype));
  }
}

void load_parameters(Store& store, const SavedTensors& from) {
  load_parameters(WholeTensors(store), from);
}

ModelConfig config_of(const SavedTensors& from, const ModelConfig& fallback) {
  ModelConfig out = fallback;
  out.name = ModelConfig().name;
  const Shape embedding = matrix(from, std::string(kEmbeddingTable));
  out.vocab = embedding[0];
  out.d_model = embedding[1];
  out.d_ff = matrix(from, scope::layer(0) + ".ffn.w1.weight")[0];
  out.layers = 0;
  const auto has_layer = [&](std::int64_t layer) {
    const std::string name = scope::layer(layer) + ".ffn.w1.weight";
    return from.has(name) || from.has(name + std::string(kNf4Codes));
  };
  while (has_layer(out.layers)) ++out.layers;
  out.heads = integer_of(from, "heads", fallback.heads);
  const auto saved = from.metadata().find(kArchitecture);
  try {
    if (saved != from.metadata().end()) {
      out = with_architecture(out, Json::parse(saved->second, from.path().string()));
    }
    validate(out);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInput) throw;
    fail_input(from.path(), "of the model in its metadata: {}: {}", error.where(), error.message());
  }
  return out;
}

SavedTensors::Metadata metadata_of(const ModelConfig& config) {
  SavedTensors::Metadata out{{"heads", std::to_string(config.heads)},
                             {"layers", std::to_string(config.layers)},
                             {"d_model", std::to_string(config.d_model)},
                             {"d_ff", std::to_string(config.d_ff)},
                             {"vocab", std::to_string(config.vocab)}};
  const Json architecture = architecture_of(config);
  if (!architecture.members().empty()) out[kArchitecture] = architecture.dump();
  return out;
}

namespace {

// Host copies of tensors whose names start with `prefix`. `From`: a store, or WholeTensors.
template <class From>
std::map<std::string, HostTensor> tensors_of(const From& from, LeafKind kind,
                                             std::string_view prefix) {
  std::map<std::string, HostTensor> out;
  for (const std::string& name : from.names(kind)) {
    if (name.starts_with(prefix)) out.emplace(name, from.get(name));
  }
  return out;
}

}  // namespace

std::map<std::string, HostTensor> parameters_of(const Store& store) {
  return tensors_of(store, LeafKind::kParameter, "");
}
std::map<std::string, HostTensor> parameters_of(const WholeTensors& from) {
  return tensors_of(from, LeafKind::kParameter, "");
}
std::map<std::string, HostTensor> states_of(const Store& store, std::string_view prefix) {
  return tensors_of(store, LeafKind::kState, prefix);
}

std::optional<NotFinite> save_parameters(const WholeTensors& from, const ModelConfig& config,
                                         const Tokenizer* tokenizer,
                                         const std::filesystem::path& path,
                                         const std::string& origin, const Adapters& lora) {
  TensorTypes types;
  for (const std::string& name : from.weights()) types[name] = from.type(name);
  const bool writes = from.processes() == nullptr || from.first_rank() == 0;
  std::optional<SafetensorsOutput> file;
  if (writes) {
    SavedTensors::Metadata metadata = metadata_of(config);
    if (tokenizer != nullptr) metadata[kTokenizerHash] = tokenizer->hash();
    if (!origin.empty()) metadata[kOrigin] = origin;
    if (lora.is_on()) metadata[kLora] = name_of(lora);
    file.emplace(path, types, metadata);
  }
  std::optional<NotFinite> found;
  for (const std::string& name : order_in_file(types)) {
    if (!writes && !from.is_part(name)) continue;
    const HostTensor value = from.get(name);  // all ranks gather all of them, whatever is found
    if (!writes || found) continue;
    found = find_not_finite(name, value);
    if (!found) file->add(value);
  }
  if (writes && !found) file->commit();
  if (from.processes() != nullptr) from.processes()->wait_for_first();
  return found;
}

}  // namespace tracestep
