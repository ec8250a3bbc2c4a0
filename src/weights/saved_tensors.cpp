#include "weights/saved_tensors.h"

#include <algorithm>

#include "base/utf8.h"

namespace tracestep {
namespace {

class OneFile : public TensorSource {
 public:
  explicit OneFile(SafetensorsFile file) : file_(std::move(file)) {}
  std::vector<std::string> names() const override { return file_.names(); }
  bool has(std::string_view name) const override { return file_.find(name) != nullptr; }
  std::filesystem::path path() const override { return file_.path(); }
  Type type(std::string_view name) const override { return file_.type(name); }
  HostTensor read(std::string_view name) const override { return file_.read(name); }

 private:
  SafetensorsFile file_;
};

void check_piece(const SafetensorsFile& file, const std::string& name, const Type& expected) {
  const bool is_there = file.find(name) != nullptr;
  if (expected.count() == 0 && !is_there) return;
  const Type found = file.type(name);  // throws when it is missing
  if (found != expected) {
    fail_input("checkpoint"_field, "{}: the piece of {} is {} instead of {}", file.path().string(),
               printable(name), found.str(), expected.str());
  }
}

class ShardsOfRanks : public TensorSource {
 public:
  ShardsOfRanks(SavedTensors::Shards shards, const Parallel& choice, SavedTensors::Table tensors)
      : files_(std::move(shards)), choice_(choice), table_(std::move(tensors)) {
    for (const auto& [name, tensor] : table_) {
      for (int rank = 0; rank < choice_.ranks; ++rank) {
        check_piece((*files_)[static_cast<std::size_t>(rank)], name,
                    {tensor.whole.dtype, {piece_of(tensor, choice_, rank).count}});
      }
    }
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    for (const auto& [name, tensor] : table_) out.push_back(name);
    return out;
  }
  bool has(std::string_view name) const override { return table_.contains(name); }
  std::filesystem::path path() const override { return files_->front().path().parent_path(); }
  Type type(std::string_view name) const override { return divided(name).whole; }
  HostTensor read(std::string_view name) const override;

 private:
  const DividedTensor& divided(std::string_view name) const;
  HostTensor block(std::string_view name, const DividedTensor& tensor, int index) const;

  SavedTensors::Shards files_;
  Parallel choice_;
  SavedTensors::Table table_;
};

HostTensor ShardsOfRanks::read(std::string_view name) const {
  const DividedTensor& tensor = divided(name);
  if (!tensor.axis) return block(name, tensor, 0);
  HostTensor out = HostTensor::zeros(tensor.whole.dtype, tensor.whole.shape);
  for (int index = 0; index < choice_.tensor; ++index) {
    put_block(out, block(name, tensor, index).bytes, tensor, choice_, index);
  }
  return out;
}

const DividedTensor& ShardsOfRanks::divided(std::string_view name) const {
  const auto found = table_.find(name);
  if (found != table_.end()) return found->second;
  fail_input("checkpoint"_field, "{} has no tensor {}", path().string(), printable(name));
}

HostTensor ShardsOfRanks::block(std::string_view name, const DividedTensor& tensor,
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

}  // namespace

SavedTensors::SavedTensors(SafetensorsFile file) : metadata_(file.metadata()) {
  source_ = std::make_shared<OneFile>(std::move(file));
}

SavedTensors::SavedTensors(Shards shards, const Parallel& choice, Table tensors)
    : source_(std::make_shared<ShardsOfRanks>(std::move(shards), choice, std::move(tensors))) {}

}  // namespace tracestep
