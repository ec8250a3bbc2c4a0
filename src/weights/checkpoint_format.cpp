#include "weights/checkpoint_format.h"

#include <array>
#include <charconv>
#include <memory>
#include <span>

#include "base/error.h"
#include "base/hash.h"
#include "base/output_file.h"
#include "base/utf8.h"
#include "spec/parse_words.h"
#include "tokens/tokenizer.h"
#include "weights/checksum.h"

namespace tracestep {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSchema = "tracestep.checkpoint/2";
constexpr std::string_view kSchema1 = "tracestep.checkpoint/1";
constexpr std::string_view kShardsSchema = "tracestep.checkpoint/3";
constexpr const char* kMeta = "meta.json";
constexpr const char* kTokenizerFile = "tokenizer";
constexpr std::array<const char*, 2> kTensorFiles = {"model.safetensors", "state.safetensors"};

// The most bytes of a description, far above what sizes and shapes of a run take: a few KiB, and in
// shards some 200 bytes for each tensor.
constexpr std::uint64_t kMostMetaBytes = std::uint64_t{16} << 20;
constexpr const char* kTensorKinds[] = {"model", "state"};

// The checksum functions of a schema of checkpoints, for a text and for a file.
struct ChecksumOf {
  std::string (*text)(const std::string&);
  std::string (*file)(const InputFile&);
};

constexpr ChecksumOf kXxh3{
    [](const std::string& text) { return hash_text(std::as_bytes(std::span(text))); }, hash_file};

std::string text_of(const Checksum1& sum) {
  return fmt::format("{:016x}", sum.value());
}

constexpr ChecksumOf kSum1{[](const std::string& text) {
                             Checksum1 sum;
                             sum.add(std::as_bytes(std::span(text)));
                             return text_of(sum);
                           },
                           [](const InputFile& file) {
                             Checksum1 sum;
                             file.for_each_part([&](auto part) { sum.add(part); });
                             return text_of(sum);
                           }};

std::string shard_name(int rank, int ranks) {
  return fmt::format("shard-{:05}-of-{:05}.safetensors", rank, ranks);
}

FileFacts facts_of(const Directory& folder, const std::string& name) {
  const InputFile file = folder.open_input(name, "checkpoint"_field);
  return {static_cast<std::int64_t>(file.size()), kXxh3.file(file)};
}

// Writes the tensors to a file and returns nullopt. At the first tensor that is not finite, stops,
// writes no file and returns that tensor.
std::optional<NotFinite> write_tensors(const Directory& folder, const std::string& name,
                                       const TensorsToSave& tensors) {
  SafetensorsOutput file(folder, name, tensors.types);
  for (const std::string& tensor : file.order()) {
    const HostTensor value = tensors.get(tensor);
    if (auto found = find_not_finite(tensor, value)) return found;
    file.add(value);
  }
  file.commit();
  return std::nullopt;
}

Json file_entry(const FileFacts& facts) {
  Json out = Json::object();
  out["bytes"] = facts.bytes;
  out["checksum"] = facts.checksum;
  return out;
}

Json table_document(const SavedTensors::Table& table) {
  Json::Object out;
  for (const auto& [name, tensor] : table) {
    Json entry = Json::object();
    entry["dtype"] = name_of(tensor.whole.dtype);
    entry["shape"] = Json::Array(tensor.whole.shape.begin(), tensor.whole.shape.end());
    if (tensor.axis) entry["axis"] = *tensor.axis;
    out.emplace_back(name, std::move(entry));
  }
  return Json(std::move(out));
}

// Writes the last files of a checkpoint: the tokenizer, and the description, which is `document`
// with entries for `run` and a checksum.
void write_run(const Directory& folder, Json document, const CheckpointRun& run) {
  if (!run.tokenizer.empty()) {
    const char* name = tokenizer_name(run.tokenizer);
    write_file(folder, name, run.tokenizer);
    document["files"][name] = file_entry(facts_of(folder, name));
  }
  document["meta"] = run.meta;
  document["checksum"] = kXxh3.text(document.dump());
  write_file(folder, kMeta, document.dump(2) + "\n");
}

// The parsed description of a checkpoint, and how to verify the files that it names.
struct Description {
  Json document;
  const ChecksumOf* checksum_of = nullptr;
  std::string where, checksum;
  bool has_shards = false;
};

// Reads the description and verifies its checksum, but not the files that it names.
Description read_description(const Directory& folder, std::int64_t step) {
  const InputFile file = folder.open_input(kMeta, "checkpoint"_field);
  Description out;
  out.where = file.path().string();
  out.document = Json::parse(file.text(kMostMetaBytes), out.where);
  const std::string& schema = out.document.at("schema").as_string();
  out.has_shards = schema == kShardsSchema;
  if (schema != kSchema && schema != kSchema1 && !out.has_shards) {
    fail_input("checkpoint"_field, "{} has the schema {}; {}, {} and {} can be read", out.where,
               schema, kSchema1, kSchema, kShardsSchema);
  }
  out.checksum_of = schema == kSchema1 ? &kSum1 : &kXxh3;
  out.checksum = out.document.at("checksum").as_string();
  Json::Object members = out.document.members();
  std::erase_if(members, [](const auto& member) { return member.first == "checksum"; });
  if (out.checksum_of->text(Json(std::move(members)).dump()) != out.checksum) {
    fail_input("checkpoint"_field, "{} does not match its checksum", out.where);
  }
  const std::int64_t said = out.document.at("step").as_int();
  if (said != step) fail_input("checkpoint"_field, "{} is that of step {}", out.where, said);
  return out;
}

// Opens a file of the checkpoint; fails unless size and, if asked, checksum are those described.
InputFile open_verified(const Directory& folder, const std::string& name,
                        const Description& description, Verify verify) {
  const Json& expected = description.document.at("files").at(name);
  InputFile file = folder.open_input(name, "checkpoint"_field);
  if (static_cast<std::int64_t>(file.size()) != expected.at("bytes").as_int() ||
      (verify == Verify::kAll &&
       description.checksum_of->file(file) != expected.at("checksum").as_string())) {
    fail_input("checkpoint"_field, "{} does not match its checksum", file.path().string());
  }
  return file;
}

SafetensorsFile read_tensors(const Directory& folder, const std::string& name,
                             const Description& description, Verify verify) {
  return SafetensorsFile(open_verified(folder, name, description, verify));
}

// The content of the run's tokenizer, of which every byte is verified, as all of it is used. Empty:
// the run had none, or its version did not store it.
std::string read_tokenizer(const Directory& folder, const Description& description) {
  for (const char* name : {kTokenizerFile, kTokenizerJson}) {
    if (description.document.at("files").find(name) == nullptr) continue;
    return open_verified(folder, name, description, Verify::kAll).text(kMostTokenizerBytes);
  }
  return {};
}

Shape read_shape(const Json& shape, const std::string& where, const std::string& name) {
  Shape out;
  std::int64_t count = 1;
  for (const Json& item : shape.items()) {
    const std::int64_t size = item.as_int();
    if (size < 0 || out.rank() == kMaxRank || __builtin_mul_overflow(count, size, &count)) {
      fail_input("checkpoint"_field, "{}: {} has no possible shape", where, printable(name));
    }
    out.push_back(size);
  }
  return out;
}

SavedTensors::Table read_table(const Json& table, const Parallel& choice,
                               const std::string& where) {
  SavedTensors::Table out;
  for (const auto& [name, entry] : table.members()) {
    const auto dtype = named<DType>(entry.at("dtype").as_string());
    if (!dtype) fail_input("checkpoint"_field, "{}: {} has no known dtype", where, printable(name));
    DividedTensor tensor{{*dtype, read_shape(entry.at("shape"), where, name)}};
    if (const Json* axis = entry.find("axis")) {
      const std::int64_t at = axis->as_int();
      if (at < 0 || at >= tensor.whole.shape.rank() ||
          tensor.whole.shape[static_cast<int>(at)] % choice.tensor != 0) {
        fail_input("checkpoint"_field, "{}: {} cannot be divided along axis {}", where,
                   printable(name), at);
      }
      tensor.axis = static_cast<int>(at);
    }
    out.emplace(name, tensor);
  }
  return out;
}

struct ModelAndState {
  SavedTensors model, state;
};

ModelAndState read_whole(const Directory& folder, const Description& description, Verify verify) {
  return {SavedTensors(read_tensors(folder, kTensorFiles[0], description, verify)),
          SavedTensors(read_tensors(folder, kTensorFiles[1], description, verify))};
}

ModelAndState read_shards(const Directory& folder, const Description& description, Verify verify) {
  const Json& document = description.document;
  const Parallel choice = parse_parallel(description.where, document.at("parallel").as_string());
  if (choice.ranks < 2)
    fail_input("checkpoint"_field, "{}: one rank has no shards", description.where);
  auto files = std::make_shared<std::vector<SafetensorsFile>>();
  for (int rank = 0; rank < choice.ranks; ++rank) {
    files->push_back(read_tensors(folder, shard_name(rank, choice.ranks), description, verify));
  }
  const auto tensors = [&](const char* kind) {
    return SavedTensors(files, choice,
                        read_table(document.at("tensors").at(kind), choice, description.where));
  };
  return {tensors(kTensorKinds[0]), tensors(kTensorKinds[1])};
}

// Adds the origin of the weights, the number of heads and the architecture, which shapes do not
// show; heads and architecture follow the other four sizes in `meta`.
void add_model(SavedTensors& model, const Json& meta) {
  const Json* origin = meta.is_object() ? meta.find(kOrigin) : nullptr;
  if (origin != nullptr) model.add_metadata(kOrigin, origin->as_string());
  const Json* lora = meta.is_object() ? meta.find(kLora) : nullptr;
  if (lora != nullptr && lora->is_string()) model.add_metadata(kLora, lora->as_string());
  constexpr std::size_t kHeads = 4, kBehind = 5;
  const Json* said = meta.is_object() ? meta.find("model") : nullptr;
  if (said == nullptr || !said->is_array() || said->items().size() < kBehind) return;
  model.add_metadata("heads", std::to_string(said->items()[kHeads].as_int()));
  if (said->items().size() > kBehind) {
    model.add_metadata(kArchitecture, said->items()[kBehind].dump());
  }
}

}  // namespace

const char* tokenizer_name(std::string_view content) {
  return is_tokenizer_json(content) ? kTokenizerJson : kTokenizerFile;
}

std::string checkpoint_name(std::int64_t step) {
  return fmt::format("{}{:08}", kPrefix, step);
}

std::optional<std::int64_t> checkpoint_step(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = -1;
  const char* last = name.data() + name.size();
  const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), last, step);
  if (error != std::errc() || end != last || step < 0 || name != checkpoint_name(step)) {
    return std::nullopt;
  }
  return step;
}

std::optional<NotFinite> write_checkpoint(const Directory& folder, std::int64_t step,
                                          const TensorsToSave& model, const TensorsToSave& state,
                                          const CheckpointRun& run) {
  Json document = Json::object();
  document["schema"] = kSchema;
  document["step"] = step;
  Json& files = document["files"] = Json::object();
  for (std::size_t i = 0; i < kTensorFiles.size(); ++i) {
    if (auto found = write_tensors(folder, kTensorFiles[i], i == 0 ? model : state)) return found;
    files[kTensorFiles[i]] = file_entry(facts_of(folder, kTensorFiles[i]));
  }
  write_run(folder, std::move(document), run);
  return std::nullopt;
}

std::optional<NotFinite> write_shard(const Directory& folder, int rank, int ranks,
                                     const TensorsToSave& pieces, FileFacts& facts) {
  const std::string name = shard_name(rank, ranks);
  if (auto found = write_tensors(folder, name, pieces)) return found;
  facts = facts_of(folder, name);
  return std::nullopt;
}

void write_description(const Directory& folder, std::int64_t step, const Parallel& choice,
                       const SavedTensors::Table& model, const SavedTensors::Table& state,
                       const std::vector<FileFacts>& facts, const CheckpointRun& run) {
  Json document = Json::object();
  document["schema"] = kShardsSchema;
  document["step"] = step;
  document["parallel"] = name_of(choice);
  Json files = Json::object();
  for (int rank = 0; rank < choice.ranks; ++rank) {
    files[shard_name(rank, choice.ranks)] = file_entry(facts[static_cast<std::size_t>(rank)]);
  }
  document["files"] = std::move(files);
  Json tensors = Json::object();
  tensors[kTensorKinds[0]] = table_document(model);
  tensors[kTensorKinds[1]] = table_document(state);
  document["tensors"] = std::move(tensors);
  write_run(folder, std::move(document), run);
}

Checkpoint read_checkpoint(const Directory& root, std::int64_t step, Verify verify) {
  const std::string name = checkpoint_name(step);
  if (root.kind_of(name) == Directory::Kind::kLink) {
    fail_input("checkpoint"_field, "{} is a symbolic link", (root.path() / name).string());
  }
  const Directory folder = root.open_folder(name);
  const Description description = read_description(folder, step);
  ModelAndState tensors = description.has_shards ? read_shards(folder, description, verify)
                                                 : read_whole(folder, description, verify);
  add_model(tensors.model, description.document.at("meta"));
  return {.step = step,
          .folder = folder.path(),
          .model = std::move(tensors.model),
          .state = std::move(tensors.state),
          .meta = description.document.at("meta"),
          .tokenizer = read_tokenizer(folder, description),
          .checksum = description.checksum,
          .warnings = {}};
}

}  // namespace tracestep
