#include "nn/families.h"

#include <algorithm>
#include <optional>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/input_file.h"
#include "base/log_once.h"
#include "base/suggest.h"
#include "nn/family_readers.h"

namespace tracestep {
namespace {

constexpr const char* kConfigFile = "config.json";

// Fields with rates of dropout in training, which no program here applies; a note says so.
constexpr std::string_view kDropouts[] = {
    "attention_dropout",  "hidden_dropout",    "resid_pdrop",
    "embd_pdrop",         "attn_pdrop",        "embd_dropout",
    "residual_dropout",   "embedding_dropout", "attention_probs_dropout_prob",
    "hidden_dropout_prob"};

struct Family {
  std::string_view type;
  void (*read)(ConfigFields&, ModelConfig&);
  // The sizes of a model whose config.json leaves them out.
  std::int64_t vocab, d_model, d_ff, layers, heads;
  // Of the text part of a multimodal model: the type of the whole, whose older files have the
  // text's fields among their own, and the family that the text part is alone.
  std::string_view whole = {}, alone = {};
};
constexpr Family kFamilies[] = {
    {"llama", readers::read_llama, 32000, 4096, 11008, 32, 32},
    {"mistral", readers::read_mistral, 32000, 4096, 14336, 32, 32},
    {"qwen2", readers::read_qwen2, 151936, 4096, 22016, 32, 32},
    {"qwen2_vl_text", readers::read_qwen2_vl, 152064, 8192, 29568, 80, 64, "qwen2_vl", "qwen2"},
    {"qwen2_5_vl_text", readers::read_qwen2_vl, 152064, 8192, 29568, 80, 64, "qwen2_5_vl", "qwen2"},
    {"qwen3", readers::read_qwen3, 151936, 4096, 22016, 32, 32},
    {"gemma", readers::read_gemma, 256000, 3072, 24576, 28, 16},
    {"gemma2", readers::read_gemma2, 256000, 2304, 9216, 26, 8},
    {"gemma3_text", readers::read_gemma3, 262208, 2304, 9216, 26, 8},
    {"olmo2", readers::read_olmo2, 50304, 4096, 11008, 32, 32},
    {"olmo3", readers::read_olmo3, 50304, 4096, 11008, 32, 32},
    {"smollm3", readers::read_smollm3, 128256, 2048, 11008, 36, 16},
    {"stablelm", readers::read_stablelm, 50304, 2560, 6912, 32, 32},
    {"starcoder2", readers::read_starcoder2, 49152, 3072, 12288, 30, 24},
    {"phi3", readers::read_phi3, 32064, 3072, 8192, 32, 32},
    {"gpt2", readers::read_gpt2, 50257, 768, 3072, 12, 12},
    {"gpt_neox", readers::read_gpt_neox, 50432, 6144, 24576, 44, 64}};

// Members by which files of a multimodal model describe its other parts.
constexpr std::string_view kOtherParts[] = {"vision_config",       "image_token_id",
                                            "video_token_id",      "vision_start_token_id",
                                            "vision_end_token_id", "vision_token_id"};

void add_dropout_note(ConfigFields& f, std::vector<std::string>& notes) {
  std::vector<std::string> dropped;
  for (std::string_view key : kDropouts) {
    if (f.real(key, 0.0) != 0.0) dropped.emplace_back(key);
  }
  if (dropped.empty()) return;
  notes.push_back(fmt::format("nothing is dropped in training: {} {} left out",
                              fmt::join(dropped, ", "), dropped.size() == 1 ? "is" : "are"));
}

}  // namespace

std::vector<std::string> known_families() {
  std::vector<std::string> out;
  for (const Family& family : kFamilies) out.emplace_back(family.type);
  return out;
}

namespace {

// Returns how the weights are stored, as "gptq, 4 bits", by a field that says it; empty: none does.
std::string quantization_of(ConfigFields& f) {
  const Json* how = nullptr;
  for (const char* key : {"quantization_config", "quantization", "compression_config"}) {
    const Json* found = f.find(key);
    if (how == nullptr) how = found;
  }
  if (how == nullptr) return "";
  std::string out;
  const auto add = [&](const std::string& part) { out += (out.empty() ? "" : ", ") + part; };
  if (const Json* method = how->find("quant_method"); method != nullptr && method->is_string()) {
    add(method->as_string().substr(0, 40));
  }
  for (const char* key : {"bits", "w_bit", "wbits"}) {
    const Json* bits = how->find(key);
    if (bits != nullptr && bits->is_int()) {
      add(fmt::format("{} bits", bits->as_int()));
      return out;
    }
  }
  for (const int bits : {4, 8}) {
    const Json* is_on = how->find(fmt::format("load_in_{}bit", bits));
    if (is_on != nullptr && *is_on == Json(true)) add(fmt::format("{} bits", bits));
  }
  return out.empty() ? "in a form that is not known" : out;
}

void say_part(ReadModel& model) {
  model.notes.emplace_back("only its text part is read");
  std::ranges::rotate(model.notes, model.notes.end() - 1);  // before the others
  model.is_part = true;
}

// Reads a multimodal model's text part; throws if its parts differ in whether the head is tied.
ReadModel text_part_of(const Json& json, const Json& text, const std::string& where) {
  ReadModel out = model_of_json(text, where + " text_config");
  ConfigFields whole(json, where, out.unknown);
  if (out.quantized.empty()) out.quantized = quantization_of(whole);
  if (text.find("tie_word_embeddings") == nullptr) {
    out.config.is_tied = whole.flag("tie_word_embeddings", out.config.is_tied);
  }
  whole.expect("tie_word_embeddings", out.config.is_tied);
  say_part(out);
  return out;
}

const Family& family_of(const Json& json, const std::string& where) {
  const Json* type = json.find("model_type");
  if (type == nullptr || !type->is_string()) {
    fail_input(where, "it has no \"model_type\", which says what the other fields mean");
  }
  const auto* const family = std::ranges::find_if(kFamilies, [&](const Family& one) {
    return type->as_string() == one.type || type->as_string() == one.whole;
  });
  if (family != std::end(kFamilies)) return *family;
  // No type is suggested: a model read as one of a family with a similar name would be another.
  throw Error(
      ErrorCode::kInput, where,
      fmt::format("models of the type \"{}\" are not known", type->as_string().substr(0, 60)),
      fmt::format("known are {}", fmt::join(known_families(), ", ")));
}

}  // namespace

ReadModel model_of_json(const Json& json, const std::string& where) {
  if (!json.is_object()) fail_input(where, "it is no object with a model's fields");
  if (const Json* text = json.find("text_config"); text != nullptr && text->is_object()) {
    return text_part_of(json, *text, where);
  }
  const Family& family = family_of(json, where);
  ReadModel out{.config = {},
                .family = std::string(family.alone.empty() ? family.type : family.alone)};
  ConfigFields fields(json, where, out.unknown);
  fields.find("model_type");
  ModelConfig& c = out.config;
  c = {.vocab = family.vocab,
       .d_model = family.d_model,
       .d_ff = family.d_ff,
       .layers = family.layers,
       .heads = family.heads};
  family.read(fields, c);
  fields.expect("is_encoder_decoder", false);
  fields.expect("add_cross_attention", false);
  const Json* pruned = fields.find("pruned_heads");
  if (pruned != nullptr && *pruned != Json::object()) fields.fail("pruned_heads", "none");
  add_dropout_note(fields, out.notes);
  out.quantized = quantization_of(fields);
  if (fields.find("auto_map") != nullptr) {
    out.notes.emplace_back("code that comes with the model is not run");
  }
  if (json.at("model_type") == Json(family.whole)) {
    for (const std::string_view part : kOtherParts) fields.find(part);
    say_part(out);
  }
  fields.finish();
  out.positions = c.max_positions;
  c = normalised(c);
  try {
    validate(c);
  } catch (const Error& error) {
    fail_input(where, "{}: {}", error.where(), error.message());
  }
  return out;
}

namespace {

// Returns at most eight of the names, as "a, b, ...".
std::string listed(std::vector<std::string> names) {
  constexpr std::size_t kShown = 8;
  if (names.size() > kShown) {
    names.resize(kShown);
    names.emplace_back("...");
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::vector<std::string> doubts_of(const ReadModel& model) {
  std::vector<std::string> out;
  if (!model.unknown.empty()) out.push_back("not known: " + listed(model.unknown));
  if (!model.quantized.empty()) {
    out.push_back(
        fmt::format("its weights are quantized ({}); read are bf16, f16, f32", model.quantized));
  }
  return out;
}

void require_no_doubts(const ReadModel& model, const std::string& where) {
  if (!model.quantized.empty()) {
    throw Error(ErrorCode::kInput, where, doubts_of(model).back(),
                "take the model that they were quantized from");
  }
  if (model.unknown.empty()) return;
  throw Error(ErrorCode::kInput, where,
              "unknown fields, which may change the model: " + listed(model.unknown),
              "remove them if they only say how to generate or run; planning goes on with them");
}

ReadModel read_model(const std::filesystem::path& path) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{16} << 20;
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(path, error);
  const std::filesystem::path file = is_folder ? path / kConfigFile : path;
  const std::string where = file.string();
  std::string text = read_text_file(file, where, kMostBytes);
  ReadModel out = model_of_json(Json::parse(text, where), where);
  out.path = path;
  out.is_folder = is_folder;
  out.text = std::move(text);
  const std::filesystem::path whole = std::filesystem::absolute(file, error).lexically_normal();
  const bool is_usual = whole.filename() == kConfigFile;
  out.config.name = (is_usual ? whole.parent_path().filename() : whole.stem()).string();
  if (const ModelConfig* known = find_model(out.config.name)) {
    ModelConfig same = out.config;
    same.name = known->name;
    out.config.name = same == *known ? known->name : "";
  }
  if (out.config.name.empty()) out.config.name = ModelConfig().name;
  out.config.source = path.string();
  return out;
}

ModelConfig model_called(const About& where, const std::string& text) {
  if (const ModelConfig* found = find_model(text)) return *found;
  std::error_code error;
  if (std::filesystem::exists(text, error)) {
    const std::shared_ptr<const ReadModel> file = known_model_at(text);
    for (const std::string& note : file->notes) log_once(fmt::format("[{}] {}", text, note));
    ModelConfig out = file->config;
    out.file = file;
    return out;
  }
  if (const KnownModel* known = stored_as(text)) {
    log_once(fmt::format("[{}] taken as {}, whose sizes are known; weights are read from a folder",
                         text, known->config.name));
    return known->config;
  }
  const bool is_path = text.find('/') != std::string::npos || text.ends_with(".json");
  if (is_path && type_that_is_not_read(text).empty()) {
    throw Error(ErrorCode::kInput, text, "there is no such file or folder",
                "tracestep models lists the models that are known by name");
  }
  try {
    return preset(text);
  } catch (const Error& unknown) {
    throw Error(ErrorCode::kUsage, where, unknown.message(), unknown.hint());
  }
}

}  // namespace tracestep
