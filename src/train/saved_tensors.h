// Whole tensors from the files of a checkpoint: of one file that holds them, or of the shards that
// hold their pieces (tensor_pieces.h). Read one at a time.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "train/safetensors.h"
#include "train/tensor_pieces.h"

namespace tracestep {

// The key of a model's metadata that holds architecture_of() it (spec/fields.h); a model without
// one is the reference Transformer.
inline constexpr const char* kArchitecture = "model";

class SavedTensors {
 public:
  using Shards = std::shared_ptr<const std::vector<SafetensorsFile>>;
  using Table = std::map<std::string, DividedTensor, std::less<>>;

  explicit SavedTensors(SafetensorsFile file);
  explicit SavedTensors(const std::filesystem::path& file) : SavedTensors(SafetensorsFile(file)) {}
  // `shards`: the files of all ranks of `choice`, two at least, in their order, in which a piece is
  // a vector with the name of its tensor, and is left out where it is empty. Error{kInput} naming
  // the file and the tensor when a piece is missing or has another type than it should.
  SavedTensors(Shards shards, const Parallel& choice, Table tensors);

  std::vector<std::string> names() const;
  bool has(std::string_view name) const;
  // The metadata of a file that holds whole tensors, and what was added.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  void add_metadata(const std::string& key, std::string value) {
    metadata_[key] = std::move(value);
  }
  // The file, or the folder of the shards.
  std::filesystem::path path() const;
  // Errors of both: as SafetensorsFile.
  Type type(std::string_view name) const;
  HostTensor read(std::string_view name) const;

 private:
  bool is_whole() const { return choice_.ranks == 1; }
  const DividedTensor& divided(std::string_view name) const;
  HostTensor block(std::string_view name, const DividedTensor& tensor, int index) const;

  Shards files_;
  Parallel choice_;
  Table table_;  // of shards
  std::map<std::string, std::string> metadata_;
};

}  // namespace tracestep
