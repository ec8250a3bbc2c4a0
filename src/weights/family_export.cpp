#include "weights/family_export.h"

#include <algorithm>
#include <cctype>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/input_file.h"
#include "base/output_file.h"
#include "base/output_folder.h"
#include "tokens/tokenizer.h"
#include "tokens/tokenizer_export.h"
#include "weights/family_files.h"

namespace tracestep {
namespace fs = std::filesystem;
namespace {

constexpr const char* kWhere = "export";
constexpr const char* kConfig = "config.json";

// Files to copy from the origin if it has them: beside the weights (kBeside), and a tokenizer's.
constexpr const char* kBeside[] = {"generation_config.json"};
constexpr const char* kTokenizerConfig = "tokenizer_config.json";
constexpr const char* kTokenizerFiles[] = {
    kTokenizerJson, kTokenizerModel,     kTokenizerConfig,      "special_tokens_map.json",
    "vocab.json",   "added_tokens.json", "chat_template.jinja", "merges.txt"};

// --- config.json --------------------------------------------------------------------------------
// The name that config.json has for the dtype of weights.
std::string torch_name(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return "bfloat16";
    case DType::kF16: return "float16";
    case DType::kF64: return "float64";
    default: return "float32";
  }
}

Json list_of(const std::vector<double>& numbers) {
  return Json(Json::Array(numbers.begin(), numbers.end()));
}

Json rope_parameters(const ModelConfig& m) {
  const RopeScaling& s = m.rope_scaling;
  Json out = Json::object();
  out["rope_theta"] = m.rope_theta;
  out["rope_type"] = s.kind == RopeScalingKind::kNone ? "default" : name_of(s.kind);
  if (s.kind == RopeScalingKind::kNone) return out;
  if (s.kind == RopeScalingKind::kLongRope) {
    out["original_max_position_embeddings"] = s.original;
    out["attention_factor"] = s.magnitude;
    out["short_factor"] = list_of(s.near);
    out["long_factor"] = list_of(s.far);
    return out;
  }
  out["factor"] = s.factor;
  if (s.kind == RopeScalingKind::kLinear) return out;
  const bool is_yarn = s.kind == RopeScalingKind::kYarn;
  out["original_max_position_embeddings"] = s.original;
  out[is_yarn ? "beta_slow" : "low_freq_factor"] = s.low;
  out[is_yarn ? "beta_fast" : "high_freq_factor"] = s.high;
  if (is_yarn) out["attention_factor"] = s.magnitude;
  return out;
}

// The config.json of a Llama, in the spelling of transformers 4 and in that of 5.
Json llama_document(const ModelConfig& m, DType dtype) {
  Json out = Json::object();
  out["architectures"] = Json::Array{"LlamaForCausalLM"};
  out["model_type"] = "llama";
  out["vocab_size"] = m.vocab;
  out["hidden_size"] = m.d_model;
  out["intermediate_size"] = m.d_ff;
  out["num_hidden_layers"] = m.layers;
  out["num_attention_heads"] = m.heads;
  out["num_key_value_heads"] = m.key_heads();
  out["head_dim"] = m.head_width();
  out["hidden_act"] =
      m.activation == Activation::kGeluTanh ? "gelu_pytorch_tanh" : name_of(m.activation);
  out["max_position_embeddings"] = std::int64_t{2048};
  out["rms_norm_eps"] = m.norm_eps;
  out["tie_word_embeddings"] = m.is_tied;
  out["attention_bias"] = m.output_bias;
  out["mlp_bias"] = m.ffn_bias;
  out["rope_theta"] = m.rope_theta;
  out["rope_parameters"] = rope_parameters(m);
  const bool is_scaled = m.rope_scaling.kind != RopeScalingKind::kNone;
  if (is_scaled) out["rope_scaling"] = out["rope_parameters"];
  for (const char* token : {"bos_token_id", "eos_token_id", "pad_token_id"}) out[token] = Json();
  out["torch_dtype"] = torch_name(dtype);
  return out;
}

// Returns the config.json of a multimodal model's text part as that of a model of its own.
Json alone_document(const Json& given, const ReadModel& read) {
  constexpr const char* kOfTheWhole[] = {"vision_", "image_", "video_", "rope_", "architectures"};
  Json out = Json::object();
  for (const auto& [key, value] : given.members()) {
    const bool is_of_whole =
        std::ranges::any_of(kOfTheWhole, [key = std::string_view(key)](const char* beginning) {
          return key.starts_with(beginning);
        });
    if (!is_of_whole) out[key] = value;
  }
  const Json sizes = llama_document(read.config, DType::kF32);
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "num_key_value_heads", "rms_norm_eps",
                          "tie_word_embeddings", "rope_theta", "rope_parameters", "rope_scaling"}) {
    if (const Json* value = sizes.find(key)) out[key] = *value;
  }
  out["model_type"] = read.family;
  std::string type = read.family;
  type[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(type[0])));
  out["architectures"] = Json::Array{type + "ForCausalLM"};
  return out;
}

// True if `document` describes this model; name and source may differ.
bool is_of(const Json& document, ModelConfig model) {
  ModelConfig read = model_of_json(document, kConfig).config;
  read.name = model.name;
  read.source = model.source;
  read.file = model.file;
  return read == normalised(std::move(model));
}

struct Config {
  std::string family, text;
};

// Returns the origin's config.json for this model. `dtype`: of the weights; nullopt: the origin's.
Config config_of_origin(const FamilyExport& what, std::optional<DType> dtype) {
  const fs::path path = what.origin / kConfig;
  if (!is_model_folder(what.origin)) InputFile(path, kWhere);  // fails, and says why
  const std::shared_ptr<const ReadModel> file = known_model_at(what.origin);
  const ReadModel& read = *file;
  std::string text = read.text;
  const Json given = Json::parse(text, path.string());
  const Json* text_part = read.is_part ? given.find("text_config") : nullptr;
  Json document = text_part != nullptr ? *text_part : given;
  if (document.at("model_type") != Json(read.family)) document = alone_document(document, read);
  require_no_doubts(read, path.string());
  if (read.config.vocab != what.model.vocab) document["vocab_size"] = what.model.vocab;
  if (read.config.is_tied && !what.model.is_tied) document["tie_word_embeddings"] = false;
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (dtype && document.find(key) != nullptr) document[key] = torch_name(*dtype);
  }
  if (!is_of(document, what.model)) {
    throw Error(ErrorCode::kUsage, kWhere,
                fmt::format("the weights are of another model than {}", path.string()),
                "give by " TRACESTEP_OPTION(model) " the folder that they began from");
  }
  if (document != given) text = document.dump(2) + "\n";
  return {read.family, std::move(text)};
}

Config config_of_llama(const FamilyExport& what, DType dtype) {
  const Json document = llama_document(what.model, dtype);
  if (!is_of(document, what.model)) {
    throw Error(
        ErrorCode::kUsage, kWhere, "the model is no Llama, and of no known family",
        "give by " TRACESTEP_OPTION(model) " the folder of the published model that it began from");
  }
  return {"llama", document.dump(2) + "\n"};
}

// --- the weights --------------------------------------------------------------------------------

// A tensor in the family's files: its type, and our tensors that are parts of it.
struct Target {
  Type type;
  std::vector<std::pair<std::string, FamilyTensor>> parts;
};
using Targets = std::map<std::string, Target>;

Targets targets_of(const std::string& family, const FamilyExport& what, DType dtype) {
  Targets out;
  for (auto& [own, place] : tensors_in_family(family, what.model, parameter_shapes(what.model))) {
    Target& target = out[place.name];
    target.type = {dtype, place.shape};
    target.parts.emplace_back(own, std::move(place));
  }
  return out;
}

HostTensor whole_of(const Target& target, const TensorsToSave& tensors) {
  HostTensor out = HostTensor::zeros(target.type.dtype, target.type.shape);
  for (const auto& [own, place] : target.parts) {
    const HostTensor given = tensors.get(own);
    HostTensor ours = as_dtype(given, out.dtype);
    auto bad = find_not_finite(own, given);
    if (!bad) bad = find_not_finite(fmt::format("{} in {}", own, name_of(out.dtype)), ours);
    if (bad) throw Error(ErrorCode::kNotFinite, kWhere, bad->str());
    copy_rows(Rows::kToTheirs, place, given.shape, size_of(out.dtype), ours.bytes, out.bytes);
  }
  return out;
}

// Divides tensors among files of at most `most_bytes`; a larger tensor has a file of its own.
std::vector<TensorTypes> divided(const Targets& targets, std::int64_t most_bytes) {
  std::vector<TensorTypes> out(1);
  std::int64_t bytes = 0;
  for (const auto& [name, target] : targets) {
    const std::int64_t more = target.type.bytes();
    if (bytes > 0 && bytes + more > most_bytes) {
      out.emplace_back();
      bytes = 0;
    }
    bytes += more;
    out.back()[name] = target.type;
  }
  return out;
}

void write_weights(const Directory& folder, const Targets& targets,
                   const std::vector<TensorTypes>& files, const TensorsToSave& tensors) {
  std::int64_t bytes = 0;
  Json map = Json::object();
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string name =
        files.size() == 1 ? std::string(kFamilyWeights)
                          : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
    SafetensorsOutput file(folder, name, files[i]);
    for (const std::string& tensor : file.order()) {
      const HostTensor value = whole_of(targets.at(tensor), tensors);
      file.add(value);
      bytes += std::ssize(value.bytes);
      map[tensor] = name;
    }
    file.commit();
  }
  if (files.size() == 1) return;
  Json index = Json::object();
  index["metadata"]["total_size"] = bytes;
  index["weight_map"] = std::move(map);
  write_file(folder, kFamilyIndex, index.dump(2) + "\n");
}

// --- the folder ---------------------------------------------------------------------------------
// Copies a file into the folder under its own name, if the file is there.
void copy_file(const fs::path& from, const Directory& to) {
  std::error_code ignored;
  if (!fs::is_regular_file(from, ignored)) return;
  const InputFile input(from, kWhere);
  OutputFile output(to, from.filename().string());
  input.for_each_part([&](std::span<const std::byte> part) { output.write(part); });
  output.commit();
}

// The weights' dtype: the embedding's, as the largest tensor's; norms may have another one.
DType dtype_of(const SavedTensors& weights) {
  return weights.type("token_embeddings.weight").dtype;
}

}  // namespace

void write_family_folder(const fs::path& path, const FamilyExport& what,
                         const TensorsToSave& tensors) {
  const bool has_origin = !what.origin.empty();
  DType dtype = tensors.types.at("token_embeddings.weight").dtype;
  if (has_origin && has_family_weights(what.origin)) {
    dtype = dtype_of(open_family_weights(what.origin));
  }
  dtype = what.dtype.value_or(dtype);
  const Config config =
      has_origin ? config_of_origin(what, what.dtype) : config_of_llama(what, dtype);
  const Targets targets = targets_of(config.family, what, dtype);
  OutputFolder output(path, kWhere);
  const Directory& folder = output.folder();
  write_file(folder, kConfig, config.text);
  if (has_origin) {
    for (const char* file : kBeside) copy_file(what.origin / file, folder);
    for (const char* file : kTokenizerFiles) {
      if (what.has_tokenizer_of_origin) copy_file(what.origin / file, folder);
    }
  }
  if (!what.tokenizer_json.empty()) write_file(folder, kTokenizerJson, what.tokenizer_json);
  if (what.has_own_tokenizer) write_file(folder, kTokenizerConfig, tokenizer_config_json());
  write_weights(folder, targets, divided(targets, what.shard_bytes), tensors);
  output.commit();
}

}  // namespace tracestep
