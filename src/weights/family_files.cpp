#include "weights/family_files.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/input_file.h"
#include "base/json.h"
#include "base/log_once.h"
#include "base/utf8.h"
#include "nn/transformer.h"
#include "weights/left_out.h"
#include "weights/model_store.h"
#include "weights/weight_files.h"

namespace tracestep {
namespace fs = std::filesystem;
namespace {

constexpr const char* kWhere = "weights";
constexpr std::uint64_t kMostIndexBytes = std::uint64_t{64} << 20;

bool has_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// --- the files ----------------------------------------------------------------------------------
// Reads the index that says in which file each tensor is.
WeightIndex read_index(const fs::path& path) {
  return parse_weight_index(read_text_file(path, kWhere, kMostIndexBytes), path.string());
}

// The weight files of a folder, and for each tensor the index of the file that has it.
struct Files {
  std::vector<SafetensorsFile> all;
  std::map<std::string, std::size_t, std::less<>> by_tensor;

  const SafetensorsFile& of(std::string_view tensor) const {
    return all[by_tensor.find(tensor)->second];
  }
};

void check_index(const fs::path& folder, const Files& files) {
  if (files.all.size() == 1 && files.all.front().path().filename() == kFamilyWeights) return;
  for (const auto& [tensor, name] : read_index(folder / kFamilyIndex)) {
    const auto found = files.by_tensor.find(tensor);
    if (found != files.by_tensor.end() && files.of(tensor).path().filename() == name) continue;
    fail_input(kWhere, "{} says that {} is in {}, which has no such tensor",
               (folder / kFamilyIndex).string(), printable(tensor), name);
  }
}

Files open_files(const fs::path& folder) {
  Files out;
  for (const fs::path& path : family_weight_files(folder)) {
    out.all.emplace_back(InputFile(path, kWhere));
    for (const std::string& tensor : out.all.back().names()) {
      const auto [other, is_new] = out.by_tensor.emplace(tensor, out.all.size() - 1);
      if (is_new) continue;
      fail_input(kWhere, "{} is in {} and in {}", printable(tensor),
                 out.all[other->second].path().string(), path.string());
    }
  }
  check_index(folder, out);
  return out;
}

// --- their names --------------------------------------------------------------------------------

// Spells the family's names as the files do. Files of a model without head leave out the stem,
// those of a part of a multimodal model have another one in its place.
struct Spelling {
  std::string_view stem;     // the family's
  std::string instead = {};  // in the files
  std::string head = {};     // before the head's name

  std::string operator()(std::string_view name) const {
    return name.starts_with(stem) ? instead + std::string(name.substr(stem.size()))
                                  : head + std::string(name);
  }
};

Spelling spelling_of(std::string_view stem, std::string_view embedding, const Files& files) {
  const std::string usual(stem), part = "language_model.";
  for (const Spelling& one : {Spelling{stem, usual}, Spelling{stem, ""},
                              Spelling{stem, part + usual, part}, Spelling{stem, usual + part}}) {
    if (files.by_tensor.contains(one(embedding))) return one;
  }
  return {stem, usual};
}

constexpr std::string_view kLmHead = "lm_head.weight", kEmbedOut = "embed_out.weight";

bool is_head(std::string_view name) {
  return name.ends_with(kLmHead) || name.ends_with(kEmbedOut);
}

// True for tensors to skip: a tied model's head, and all but the text part of a multimodal model.
bool is_left_out(std::string_view name, const ReadModel& model, const Spelling& spelled) {
  if (model.config.is_tied && is_head(name)) return true;
  const bool is_text = name.starts_with(spelled.instead) || name.ends_with(kLmHead);
  return model.is_part && !is_text;
}

// --- the tensors --------------------------------------------------------------------------------
// The place that one of our tensors has in a tensor of the files, and the shape of our tensor.
struct Held {
  FamilyTensor place;  // with the name that the files have
  Shape shape;         // ours
};
using Table = std::map<std::string, Held, std::less<>>;  // by our names

Table table_of(const ReadModel& model, const Files& files, Spelling& spelled) {
  const std::map<std::string, Shape> shapes = parameter_shapes(model.config);
  auto places = tensors_in_family(model.family, model.config, shapes);
  spelled =
      spelling_of(stem_of_family(model.family), places.at("token_embeddings.weight").name, files);
  Table out;
  for (auto& [name, place] : places) {
    const bool is_renamed = place.name == kEmbedOut && !files.by_tensor.contains(kEmbedOut);
    place.name = is_renamed ? std::string(kLmHead) : spelled(place.name);
    out.emplace(name, Held{std::move(place), shapes.at(name)});
  }
  return out;
}

// Says why the tensor cannot be read, for a message; empty: it can.
std::string fault_of(const Held& held, const Files& files) {
  const std::string& name = held.place.name;
  if (!files.by_tensor.contains(name)) return name + " is missing";
  const Type type = files.of(name).type(name);
  if (is_float8(type.dtype)) {
    return fmt::format("{} is {}; weights in 8 bits have scales, which are not read", name,
                       type.str());
  }
  if (type.shape == held.place.shape && is_floating(type.dtype)) return "";
  return fmt::format("{} is {}, where {} is expected", name, type.str(), held.place.shape.str());
}

// Says why a tensor that is no weight of the model must not be ignored; empty: it may be.
std::string fault_of_other(const std::string& name, const SafetensorsFile& file,
                           const ModelConfig& model) {
  const std::string shown = message_line(name, 200);
  if (!is_buffer(name)) return shown + " is unknown";
  const std::string fault = fault_of_buffer(file, name, model);
  return fault.empty() ? "" : shown + " " + fault;
}

// True if the files hold a head other than the embedding; compares at most `most_bytes` of both.
bool differs_from_embedding(const Files& files, const Table& table, std::uint64_t most_bytes) {
  const auto is_one = [](const auto& entry) { return is_head(entry.first); };
  const auto head = std::ranges::find_if(files.by_tensor, is_one);
  const std::string& embedding = table.at("token_embeddings.weight").place.name;
  if (head == files.by_tensor.end() || !files.by_tensor.contains(embedding)) return false;
  return !hold_same({files.all[head->second], head->first}, {files.of(embedding), embedding},
                    most_bytes);
}

void check_tensors(const fs::path& folder, const ReadModel& model, const Files& files,
                   const Table& table, const Spelling& spelled) {
  std::set<std::string> faults;
  std::set<std::string_view> known;
  for (const auto& [name, held] : table) {
    known.insert(held.place.name);
    faults.insert(fault_of(held, files));
  }
  for (const auto& [name, file] : files.by_tensor) {
    if (known.contains(name) || is_left_out(name, model, spelled)) continue;
    faults.insert(fault_of_other(name, files.all[file], model.config));
  }
  faults.erase("");
  if (faults.empty()) return;
  constexpr std::size_t kShown = 10;
  std::vector<std::string> shown(faults.begin(), faults.end());
  if (shown.size() > kShown) {
    shown.resize(kShown);
    shown.emplace_back("...");
  }
  throw Error(ErrorCode::kInput, folder,
              fmt::format("{} tensors do not fit its config.json: {}", faults.size(),
                          fmt::join(shown, "; ")),
              "take both from one model");
}

class FamilyFiles : public TensorSource {
 public:
  FamilyFiles(fs::path folder, Files files, Table table)
      : folder_(std::move(folder)), files_(std::move(files)), table_(std::move(table)) {}

  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    for (const auto& [name, held] : table_) out.push_back(name);
    return out;
  }
  bool has(std::string_view name) const override { return table_.contains(name); }
  fs::path path() const override { return folder_; }
  Type type(std::string_view name) const override {
    const Held& held = of(name);
    return {files_.of(held.place.name).type(held.place.name).dtype, held.shape};
  }
  HostTensor read(std::string_view name) const override {
    const auto& [place, shape] = of(name);
    const SafetensorsFile& file = files_.of(place.name);
    HostTensor out = HostTensor::zeros(type(name).dtype, shape);
    const std::size_t size = size_of(out.dtype);
    if (place.is_transposed) {
      HostTensor whole = file.read(place.name);
      copy_rows(Rows::kToOurs, place, shape, size, out.bytes, whole.bytes);
      return out;
    }
    // The rows from the first to the last of ours, which may have others between them.
    const std::int64_t blocks = place.width == 0 ? 0 : shape[0] / place.width;
    const std::int64_t rows = blocks == 0 ? 0 : (blocks - 1) * place.step + place.width;
    const std::size_t row =
        shape[0] == 0 ? 0 : out.bytes.size() / static_cast<std::size_t>(shape[0]);
    const std::uint64_t before = static_cast<std::uint64_t>(place.first) * row;
    const SafetensorsFile::Entry& entry = *file.find(place.name);
    if (rows == shape[0] && place.turned == 0) {
      file.read_part(entry, before, out.bytes);
      return out;
    }
    std::vector<std::byte> theirs(static_cast<std::size_t>(rows) * row);
    file.read_part(entry, before, theirs);
    copy_rows(Rows::kToOurs, place, shape, size, out.bytes, theirs, place.first);
    return out;
  }

 private:
  const Held& of(std::string_view name) const {
    const auto found = table_.find(name);
    if (found != table_.end()) return found->second;
    fail_input(folder_, "it has no tensor {}", printable(name));
  }

  fs::path folder_;
  Files files_;
  Table table_;
};

}  // namespace

bool is_model_folder(const fs::path& path) {
  return has_file(path / "config.json");
}

bool has_family_weights(const fs::path& path) {
  return is_model_folder(path) &&
         (has_file(path / kFamilyWeights) || has_file(path / kFamilyIndex));
}

std::vector<fs::path> family_weight_files(const fs::path& folder) {
  if (has_file(folder / kFamilyWeights)) return {folder / kFamilyWeights};
  if (!has_file(folder / kFamilyIndex)) {
    refuse_foreign_weights(folder);
    throw Error(ErrorCode::kInput, folder,
                fmt::format("it has neither {} nor {}", kFamilyWeights, kFamilyIndex),
                "weights of another format have to be saved as safetensors first");
  }
  std::set<fs::path> out;
  for (const auto& [tensor, file] : read_index(folder / kFamilyIndex)) out.insert(folder / file);
  return {out.begin(), out.end()};
}

bool has_own_head(const ReadModel& model) {
  constexpr std::uint64_t kEnough = std::uint64_t{4} << 20;
  if (!model.config.is_tied || !has_family_weights(model.path)) return false;
  try {
    const Files files = open_files(model.path);
    Spelling spelled;
    return differs_from_embedding(files, table_of(model, files, spelled), kEnough);
  } catch (const Error&) {  // whoever reads the weights will say it
    return false;
  }
}

std::string own_head_note(const fs::path& folder) {
  return fmt::format(
      "[{}] config.json says that the head is the embedding, and the files hold "
      "another head: the model is read as untied",
      folder.string());
}

SavedTensors open_family_weights(const fs::path& folder) {
  ReadModel model = *known_model_at(folder);
  require_no_doubts(model, (folder / "config.json").string());
  Files files = open_files(folder);
  Spelling spelled;
  Table table = table_of(model, files, spelled);
  constexpr auto kAll = std::numeric_limits<std::uint64_t>::max();
  if (model.config.is_tied && differs_from_embedding(files, table, kAll)) {
    model.config.is_tied = false;
    table = table_of(model, files, spelled);
    log_once(own_head_note(folder));
  }
  check_tensors(folder, model, files, table, spelled);
  SavedTensors::Metadata metadata = metadata_of(model.config);
  metadata[kOrigin] = fs::absolute(folder).lexically_normal().string();
  return {std::make_shared<FamilyFiles>(folder, std::move(files), std::move(table)),
          std::move(metadata)};
}

std::string hash_of_family_weights(const fs::path& folder) {
  std::string all;
  for (const fs::path& path : family_weight_files(folder)) {
    all += hash_file(InputFile(path, kWhere));
  }
  return hash_text(std::as_bytes(std::span(all)));
}

std::map<std::string, Shape> parameter_shapes(const ModelConfig& config) {
  const Program program = logits_program(config, {.batch = 1, .context = 1});
  std::map<std::string, Shape> out;
  for (const ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    if (leaf.leaf == LeafKind::kParameter) out[leaf.name] = leaf.type.shape;
  }
  return out;
}

void copy_rows(Rows direction, const FamilyTensor& place, const Shape& shape, std::size_t size,
               std::span<std::byte> ours, std::span<std::byte> theirs, std::int64_t begin) {
  const auto rows = static_cast<std::size_t>(shape[0]);
  const std::size_t row = rows == 0 ? 0 : ours.size() / rows;  // bytes
  // Elements of one of our rows are contiguous in theirs, or run down a column if transposed.
  const std::size_t piece = place.is_transposed ? size : row;
  const std::size_t stride =
      place.is_transposed ? static_cast<std::size_t>(place.shape[1]) * size : 0;
  for (std::size_t r = 0; r < rows; ++r) {
    const auto at = static_cast<std::size_t>(place.row(static_cast<std::int64_t>(r)) - begin);
    for (std::size_t i = 0; i * piece < row; ++i) {
      std::byte* const mine = ours.data() + r * row + i * piece;
      std::byte* const other = theirs.data() + at * piece + i * stride;
      direction == Rows::kToOurs ? std::memcpy(mine, other, piece)
                                 : std::memcpy(other, mine, piece);
    }
  }
}

}  // namespace tracestep
