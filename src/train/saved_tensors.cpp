#include "train/saved_tensors.h"

#include <algorithm>

#include "base/utf8.h"

namespace tracestep {
namespace {

SavedTensors::Shards only(SafetensorsFile file) {
  auto files = std::make_shared<std::vector<SafetensorsFile>>();
  files->push_back(std::move(file));
  return files;
}

void check_piece(const SafetensorsFile& file, const std::string& name, const Type& expected) {
  const bool is_there = file.find(name) != nullptr;
  if (expected.count() == 0 && !is_there) return;
  const Type found = file.type(name);  // throws when it is missing
  if (found != expected) {
    fail_input("checkpoint", "{}: the piece of {} is {} instead of {}", file.path().string(),
               printable(name), found.str(), expected.str());
  }
}

}  // namespace

SavedTensors::SavedTensors(SafetensorsFile file)
    : files_(only(std::move(file))), metadata_(files_->front().metadata()) {}

SavedTensors::SavedTensors(Shards shards, const Parallel& choice, Table tensors)
    : files_(std::move(shards)), choice_(choice), table_(std::move(tensors)) {
  for (const auto& [name, tensor] : table_) {
    for (int rank = 0; rank < choice_.ranks; ++rank) {
      check_piece((*files_)[static_cast<std::size_t>(rank)], name,
                  {tensor.whole.dtype, {piece_of(tensor, choice_, rank).count}});
    }
  }
}

std::vector<std::string> SavedTensors::names() const {
  if (is_whole()) return files_->front().names();
  std::vector<std::string> out;
  for (const auto& [name, tensor] : table_) out.push_back(name);
  return out;
}

bool SavedTensors::has(std::string_view name) const {
  return is_whole() ? files_->front().find(name) != nullptr : table_.contains(name);
}

std::filesystem::path SavedTensors::path() const {
  const std::filesystem::path first = files_->front().path();
  return is_whole() ? first : first.parent_path();
}

Type SavedTensors::type(std::string_view name) const {
  return is_whole() ? files_->front().type(name) : divided(name).whole;
}

HostTensor SavedTensors::read(std::string_view name) const {
  if (is_whole()) return files_->front().read(name);
  const DividedTensor& tensor = divided(name);
  if (!tensor.axis) return block(name, tensor, 0);
  HostTensor out = HostTensor::zeros(tensor.whole.dtype, tensor.whole.shape);
  for (int index = 0; index < choice_.tensor; ++index) {
    put_block(out, block(name, tensor, index).bytes, tensor, choice_, index);
  }
  return out;
}

const DividedTensor& SavedTensors::divided(std::string_view name) const {
  const auto found = table_.find(name);
  if (found != table_.end()) return found->second;
  fail_input("checkpoint", "{} has no tensor {}", path().string(), printable(name));
}

HostTensor SavedTensors::block(std::string_view name, const DividedTensor& tensor,
                               int index) const {
  const Type type = block_type(tensor, choice_);
  HostTensor out{type.dtype, type.shape, {}};
  out.bytes.reserve(static_cast<std::size_t>(type.bytes()));
  for (int rank = index; rank < choice_.ranks; rank += choice_.tensor) {
    if (piece_of(tensor, choice_, rank).count == 0) continue;
    const HostTensor piece = (*files_)[static_cast<std::size_t>(rank)].read(name);
    out.bytes.insert(out.bytes.end(), piece.bytes.begin(), piece.bytes.end());
  }
  return out;
}

}  // namespace tracestep
