#include "weights/model_notes.h"

#include <algorithm>
#include <map>
#include <memory>

#include <fmt/format.h>

#include "base/log_once.h"
#include "captured/captured_model.h"
#include "nn/families.h"
#include "weights/family_files.h"

namespace tracestep {
namespace fs = std::filesystem;
namespace {

std::vector<std::string>& notes() {
  static std::vector<std::string> all;
  return all;
}

void add_note(const std::string& line) {
  log_once(line);
  if (std::ranges::find(notes(), line) == notes().end()) notes().push_back(line);
}

// Asks has_own_head() once for each file, as a grid has many cells.
bool holds_own_head(const std::shared_ptr<const ReadModel>& file) {
  static std::map<std::shared_ptr<const ReadModel>, bool> all;
  const auto found = all.find(file);
  return found != all.end() ? found->second : all.emplace(file, has_own_head(*file)).first->second;
}

// The positions that the model was made for; 0: not known.
std::int64_t positions_of(const ModelConfig& model, const fs::path& origin) {
  if (model.file != nullptr) return model.file->positions;
  const auto& all = known_models();
  const auto known =
      std::ranges::find(all, model.name, [](const KnownModel& m) { return m.config.name; });
  if (known != all.end()) return known->positions;
  return is_model_folder(origin) ? known_model_at(origin)->positions : 0;
}

void note_captured(const CapturedModel& model) {
  if (model.check) return;
  add_note(
      fmt::format("[{}] it was captured without a check of its loss and gradients against the "
                  "module",
                  model.name));
}

}  // namespace

void note_positions(const ModelConfig& model, const fs::path& origin, std::int64_t context) {
  if (model.captured != nullptr) return;  // it has the context that it was captured with
  const std::int64_t positions = positions_of(model, origin);
  if (positions == 0 || context <= positions || model.positions == Positions::kLearned) return;
  const std::string name = model.source.empty() ? model.name : model.source;
  add_note(fmt::format(
      "[context] {} tokens are more than the {} positions that {} was made for "
      "(max_position_embeddings)",
      context, positions, model.name == "custom" && !origin.empty() ? origin.string() : name));
}

ModelConfig checked_model(ModelConfig out, std::int64_t context, bool runs) {
  if (out.captured != nullptr) {
    note_captured(*out.captured);
    return out;
  }
  note_positions(out, {}, context);
  if (out.file == nullptr) return out;
  if (runs) require_no_doubts(*out.file, out.source);
  for (const std::string& doubt : doubts_of(*out.file)) {
    add_note(fmt::format("[{}] {}", out.source, doubt));
  }
  if (!out.is_tied || !holds_own_head(out.file)) return out;
  add_note(own_head_note(out.file->path));
  out.is_tied = false;
  return out;
}

const std::vector<std::string>& model_notes() {
  return notes();
}

}  // namespace tracestep
