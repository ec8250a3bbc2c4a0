#include "weights/peft_files.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/output_file.h"
#include "base/output_folder.h"
#include "base/utf8.h"
#include "nn/families.h"
#include "nn/family_names.h"
#include "passes/form_passes.h"
#include "spec/parse_words.h"
#include "spec/peft_config.h"
#include "weights/family_files.h"
#include "weights/model_store.h"
#include "weights/nf4_weights.h"

namespace tracestep {
namespace fs = std::filesystem;
namespace {

constexpr const char* kExport = "export";
constexpr std::string_view kTheirs = "base_model.model.", kWeight = ".weight";
// PEFT's name of the head, under which it saves the embedding a second time if the two are tied.
constexpr const char* kTiedHead = "base_model.model.lm_head.weight";

std::string_view which_of(std::string_view adapter) {
  return adapter.ends_with(kAdapterA) ? kAdapterA : kAdapterB;
}
std::string_view product_of(std::string_view adapter) {
  return adapter.substr(0, adapter.size() - kAdapterA.size());
}

// Returns the model_type of the family whose names the model's files use.
std::string family_of(const ModelConfig& model, const fs::path& base) {
  const bool is_given = !base.empty() && is_model_folder(base);
  const auto file = is_given ? known_model_at(base) : model.file;
  if (file != nullptr) return file->family;
  const KnownModel* known = stored_as(model.source);
  return known != nullptr ? std::string(known->family) : "llama";
}

// Finds the places of a model's weights in its family's files, by our names.
class Places {
 public:
  Places(const ModelConfig& model, const std::string& family)
      : family_(family),
        shapes_(parameter_shapes(model)),
        places_(tensors_in_family(family, model, shapes_)) {}

  // Returns where the files have a product's weight. Error{kUsage} if they have it joined with
  // other weights, as one adapter would serve all of them.
  const FamilyTensor& of(std::string_view product) const {
    const std::string weight = std::string(product) + std::string(kWeight);
    const auto found = places_.find(weight);
    if (found == places_.end())
      fail_usage("lora"_field, "models of {} have no {}", family_, weight);
    const FamilyTensor& out = found->second;
    if (out.shape.product() == shapes_.at(weight).product()) return out;
    throw Error(ErrorCode::kUsage, "lora"_field,
                fmt::format("files of {} join {} with others as {}, which has one adapter for all",
                            family_, weight, out.name),
                "merge the adapters into the weights (export)");
  }

  // The module of a product in the files: "model.layers.0.self_attn.q_proj".
  std::string module_of(std::string_view product) const {
    const std::string& name = of(product).name;
    return name.substr(0, name.size() - kWeight.size());
  }
  std::string name_of(std::string_view adapter) const {
    return std::string(kTheirs) + module_of(product_of(adapter)) + std::string(which_of(adapter));
  }

  // The name in PEFT's files of a weight that is trained whole.
  std::string name_of_whole(std::string_view weight) const {
    return std::string(kTheirs) + whole(weight).name;
  }
  HostTensor whole_moved(Rows direction, std::string_view weight, const HostTensor& from) const {
    const FamilyTensor& place = whole(weight);
    const Shape& shape = shapes_.at(std::string(weight));
    const bool is_ours = direction == Rows::kToOurs;
    HostTensor out = HostTensor::zeros(from.dtype, is_ours ? shape : place.shape), given = from;
    copy_rows(direction, place, shape, size_of(from.dtype), (is_ours ? out : given).bytes,
              (is_ours ? given : out).bytes);
    return out;
  }
  Shape whole_shape(std::string_view weight) const { return whole(weight).shape; }

  // The names of all matrices that are separate in the files, without ".weight".
  std::vector<std::string> modules() const {
    std::vector<std::string> out;
    for (const auto& [weight, place] : places_) {
      const bool is_whole = place.shape.product() == shapes_.at(weight).product();
      if (is_whole && place.shape.rank() == 2 && place.name.ends_with(kWeight)) {
        out.push_back(place.name.substr(0, place.name.size() - kWeight.size()));
      }
    }
    return out;
  }

  // Returns an adapter's matrix; rows of B are reordered by `direction`, as rows of the weight are.
  HostTensor moved(Rows direction, std::string_view adapter, const HostTensor& from) const {
    FamilyTensor place = of(product_of(adapter));
    if (which_of(adapter) == kAdapterA || place.turned == 0) return from;
    place.shape = from.shape;
    place.is_transposed = false;
    HostTensor out = HostTensor::zeros(from.dtype, from.shape), given = from;
    auto& ours = direction == Rows::kToOurs ? out : given;
    auto& theirs = direction == Rows::kToOurs ? given : out;
    copy_rows(direction, place, from.shape, size_of(from.dtype), ours.bytes, theirs.bytes);
    return out;
  }

 private:
  const FamilyTensor& whole(std::string_view weight) const {
    const auto found = places_.find(std::string(weight));
    if (found != places_.end() &&
        found->second.shape.product() == shapes_.at(std::string(weight)).product()) {
      return found->second;
    }
    fail_usage("lora"_field, "files of {} have no {} by itself, which PEFT could keep", family_,
               weight);
  }

  const std::string family_;
  const std::map<std::string, Shape> shapes_;
  const std::map<std::string, FamilyTensor> places_;
};

std::string last_name(std::string_view path) {
  return std::string(path.substr(path.rfind('.') + 1));
}

// Returns the targets by which PEFT adapts exactly the modules in `adapted`: their last names if no
// other module ends with one of these, else their whole names.
std::vector<std::string> targets_for(const std::set<std::string>& adapted,
                                     const std::vector<std::string>& modules) {
  std::set<std::string> names;
  for (const std::string& module : adapted) names.insert(last_name(module));
  const bool is_exact = std::ranges::all_of(modules, [&](const std::string& module) {
    return adapted.contains(module) || !names.contains(last_name(module));
  });
  const std::set<std::string>& out = is_exact ? names : adapted;
  return {out.begin(), out.end()};
}

// True for a tensor that PEFT saves a second time for a resized base: embeddings and head under
// their names within the module that it saves whole, and the head that is the embedding.
bool is_copy(std::string name, const std::set<std::string>& known, bool is_tied) {
  for (const std::string_view inner : {".modules_to_save", ".original_module"}) {
    const std::size_t at = name.find(inner);
    if (at != name.npos) name.erase(at, inner.size());
  }
  return known.contains(name) || (is_tied && name == kTiedHead);
}

void load_adapters(const WholeTensors& to, const RunSpec& run) {
  const fs::path path = fs::path(run.lora.from) / kPeftWeights;
  if (run.model.captured != nullptr) {
    fail_usage("lora"_field, "{} has names of its own, and no family's, by which to read {}",
               run.model.name, path.string());
  }
  const SafetensorsFile file(path);
  const Places places(run.model, family_of(run.model, {}));
  std::set<std::string> known;
  std::vector<std::string> names = to.names(LeafKind::kParameter);
  for (const std::string& name : to.names(LeafKind::kConstant)) {  // saved beside a resized base
    const bool is_saved =
        is_of_vocabulary(name) && file.find(places.name_of_whole(name)) != nullptr;
    if (is_saved) names.push_back(name);
  }
  for (const std::string& name : names) {
    const bool is_whole = !is_adapter(name);
    const bool is_trained_table = is_of_vocabulary(name) && !to.is_frozen(name);
    if (is_trained_table && run.model.is_tied && !keeps_tied(run.lora.from)) {
      fail_input(run.lora.from,
                 "modules_to_save has the embeddings, which are the head as well, and {} is not "
                 "true: without it the head of PEFT stays as it was",
                 kKeepsTied);
    }
    const std::string theirs = is_whole ? places.name_of_whole(name) : places.name_of(name);
    known.insert(theirs);
    if (file.find(theirs) == nullptr) fail_input(path, "{} is missing", theirs);
    const Type given = file.type(theirs), type = to.type(name);
    if (is_of_vocabulary(name) && given.shape[0] != places.whole_shape(name)[0]) {
      throw Error(ErrorCode::kUsage, "vocab"_field,
                  fmt::format("{} has {} rows in {}, and the model {}", theirs, given.shape[0],
                              path.string(), places.whole_shape(name)[0]),
                  fmt::format("give " TRACESTEP_OPTION(vocab) " {}", given.shape[0]));
    }
    if (given.shape != (is_whole ? places.whole_shape(name) : type.shape) ||
        !is_floating(given.dtype) || is_float8(given.dtype)) {
      fail_input(path, "{} is {}, the model expects {}: adapters of another base", theirs,
                 given.str(), type.str());
    }
    const HostTensor ours = is_whole ? places.whole_moved(Rows::kToOurs, name, file.read(theirs))
                                     : places.moved(Rows::kToOurs, name, file.read(theirs));
    if (const auto bad = find_not_finite(theirs, ours)) {
      throw Error(ErrorCode::kNotFinite, path, bad->str(), "take other adapters");
    }
    given.dtype == type.dtype ? to.set(name, ours) : to.set(name, as_dtype(ours, type.dtype));
  }
  for (const std::string& name : file.names()) {
    if (known.contains(name) || is_copy(name, known, run.model.is_tied)) continue;
    fail_input(path, "the model has no product for {}", message_line(name, 200));
  }
}

// The merged weight in float32, W + scale·B·A, computed row by row.
HostTensor with_adapter(const HostTensor& weight, const HostTensor& a, const HostTensor& b,
                        double scale) {
  HostTensor out = as_dtype(weight, DType::kF32);
  const HostTensor wide_a = as_dtype(a, DType::kF32), wide_b = as_dtype(b, DType::kF32);
  const auto w = out.as<float>();
  const auto left = wide_b.as<float>(), right = wide_a.as<float>();
  const auto rank = static_cast<std::size_t>(a.shape[0]);
  const auto in = static_cast<std::size_t>(a.shape[1]);
  std::vector<float> row(in);
  for (std::size_t i = 0; i < static_cast<std::size_t>(b.shape[0]); ++i) {
    std::ranges::fill(row, 0.0f);
    for (std::size_t k = 0; k < rank; ++k) {
      const float factor = left[i * rank + k];
      for (std::size_t j = 0; j < in; ++j) row[j] += factor * right[k * in + j];
    }
    for (std::size_t j = 0; j < in; ++j) w[i * in + j] += static_cast<float>(scale) * row[j];
  }
  return as_dtype(out, weight.dtype);
}

}  // namespace

Adapters adapters_of(const SavedTensors& from) {
  const auto found = from.metadata().find(kLora);
  const std::string where = from.path().string();
  const bool has_any = std::ranges::any_of(from.names(), is_adapter);
  if (!has_any) return {};
  if (found == from.metadata().end()) fail_input(where, "it does not say what its adapters are");
  // Leaves out the folder that the adapters began from: it may be gone, and the adapters are here.
  const std::string text = found->second.substr(0, found->second.find(",from="));
  try {
    return parse_adapters(where, text);
  } catch (const Error& error) {
    fail_input(where, "of the adapters in its metadata: {}", error.message());
  }
}

void start_adapters(const WholeTensors& to, const RunSpec& run) {
  if (!run.lora.is_on() || !to.computes()) return;
  if (!run.lora.from.empty()) return load_adapters(to, run);
  for (const std::string& name : to.names(LeafKind::kParameter)) {
    if (is_adapter(name)) initialize_tensor(to, name, run.seed);
  }
}

void load_weights(const WholeTensors& to, const RunSpec& run, const SavedTensors& from) {
  load_parameters(to, from);
  if (std::ranges::none_of(from.names(), is_adapter)) start_adapters(to, run);
}

void write_peft_folder(const fs::path& path, const ModelConfig& model, const Adapters& adapters,
                       const fs::path& base, const TensorsToSave& tensors) {
  const Places places(model, family_of(model, base));
  std::map<std::string, std::string> ours;  // by their names
  std::set<std::string> adapted, whole;
  bool trains_table = false;
  TensorTypes types;
  const bool is_resized =
      is_model_folder(base) && known_model_at(base)->config.vocab != model.vocab;
  for (const auto& [name, type] : tensors.types) {
    const bool is_trained = std::ranges::any_of(
        adapters.whole, [&](const std::string& part) { return path_matches(part, name); });
    const bool is_whole = is_trained || (is_resized && is_of_vocabulary(name));
    trains_table = trains_table || (is_trained && is_of_vocabulary(name));
    if (is_adapter(name)) {
      const std::string theirs = places.name_of(name);
      ours[theirs] = name;
      types[theirs] = type;
      adapted.insert(places.module_of(product_of(name)));
    } else if (is_whole) {
      const std::string theirs = places.name_of_whole(name);
      ours[theirs] = name;
      types[theirs] = {type.dtype, places.whole_shape(name)};
      if (is_trained) whole.insert(component_path(theirs.substr(kTheirs.size())));
    }
  }
  if (model.is_tied && trains_table) {
    const auto table = std::ranges::find_if(
        ours, [](const auto& entry) { return is_of_vocabulary(entry.second); });
    types[kTiedHead] = types.at(table->first);
    ours[kTiedHead] = std::string(table->second);
  }
  const std::vector<std::string> modules = places.modules();
  const Json config =
      peft_config(adapters, targets_for(adapted, modules), {whole.begin(), whole.end()},
                  model.is_tied && trains_table, base.string());
  OutputFolder output(path, kExport);
  const Directory& folder = output.folder();
  {
    OutputFile file(folder, kPeftConfig);
    const std::string text = config.dump(2) + "\n";
    file.write(std::as_bytes(std::span(text)));
    file.commit();
  }
  SafetensorsOutput file(folder, kPeftWeights, types);
  for (const std::string& theirs : file.order()) {
    const std::string& name = ours.at(theirs);
    const HostTensor value = tensors.get(name);
    if (const auto bad = find_not_finite(name, value)) {
      throw Error(ErrorCode::kNotFinite, kExport, bad->str());
    }
    file.add(is_adapter(name) ? places.moved(Rows::kToTheirs, name, value)
                              : places.whole_moved(Rows::kToTheirs, name, value));
  }
  file.commit();
  output.commit();
}

TensorsToSave merged(const TensorsToSave& tensors, const Adapters& adapters) {
  // Weights of 4 bits are widened, so that what they and the adapters add up to is rounded once.
  const auto weight_of = [tensors](const std::string& name) {
    const std::string codes = name + std::string(kNf4Codes);
    if (!tensors.types.contains(codes)) return tensors.get(name);
    const auto part = [&](std::string_view what) { return tensors.get(name + std::string(what)); };
    return from_nf4({part(kNf4Codes), part(kNf4Magnitudes), part(kNf4Scales), part(kNf4Offset)});
  };
  TensorsToSave out{.types = {},
                    .get = [=, types = tensors.types, get = tensors.get,
                            scale = adapters.scale()](const std::string& name) {
                      HostTensor weight = weight_of(name);
                      const std::string path = component_path(name);
                      const std::string a = path + std::string(kAdapterA),
                                        b = path + std::string(kAdapterB);
                      const bool has_adapter = name.ends_with(kWeight) && types.contains(a);
                      return has_adapter ? with_adapter(weight, get(a), get(b), scale) : weight;
                    }};
  for (const auto& [name, type] : tensors.types) {
    if (is_adapter(name) || is_part_of_nf4(name)) continue;
    const std::string coded = weight_of_codes(name);
    out.types[coded.empty() ? name : coded] =
        coded.empty() ? type : Type{DType::kF32, coded_shape(type)};
  }
  return out;
}

}  // namespace tracestep
