// Whole tensors from files, read one at a time: from one that holds them, from the shards of a
// checkpoint, which hold their pieces (tensor_pieces.h), or from the files of a published model
// (family_files.h).
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weights/safetensors.h"
#include "weights/tensor_pieces.h"

namespace tracestep {

// The key in a model's metadata for its architecture, as architecture_of() returns it
// (spec/fields.h); a model without this key is the reference Transformer.
inline constexpr const char* kArchitecture = "model";

// The metadata's key for the adapters among the tensors, as name_of() writes them.
inline constexpr const char* kLora = "lora";

// The metadata's key for the published model that weights come from: SavedTensors::origin().
inline constexpr const char* kOrigin = "origin";

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  virtual std::vector<std::string> names() const = 0;
  virtual bool has(std::string_view name) const = 0;
  virtual std::filesystem::path path() const = 0;
  // The type and the values of a tensor. Both functions throw as SafetensorsFile.
  virtual Type type(std::string_view name) const = 0;
  virtual HostTensor read(std::string_view name) const = 0;
};

class SavedTensors {
 public:
  using Shards = std::shared_ptr<const std::vector<SafetensorsFile>>;
  using Table = std::map<std::string, DividedTensor, std::less<>>;
  using Metadata = std::map<std::string, std::string>;

  explicit SavedTensors(SafetensorsFile file);
  explicit SavedTensors(const std::filesystem::path& file) : SavedTensors(SafetensorsFile(file)) {}
  // Reads tensors from shards. `shards`: the files of all ranks of `choice`, at least two, by rank.
  // Each holds a rank's pieces as vectors with the names of their tensors; empty pieces are left
  // out. Throws Error{kInput} naming the file and the tensor if a piece is missing or has the wrong
  // type.
  SavedTensors(Shards shards, const Parallel& choice, Table tensors);
  // Reads a published model, whose tensors keep whatever floating type its files have.
  SavedTensors(std::shared_ptr<const TensorSource> published, Metadata metadata)
      : source_(std::move(published)), metadata_(std::move(metadata)), is_published_(true) {}

  std::vector<std::string> names() const { return source_->names(); }
  bool has(std::string_view name) const { return source_->has(name); }
  // The metadata of the file, with entries that were added.
  const Metadata& metadata() const { return metadata_; }
  void add_metadata(const std::string& key, std::string value) {
    metadata_[key] = std::move(value);
  }
  bool is_published() const { return is_published_; }
  // The folder of the published model from which the weights were trained; empty: they were made
  // here.
  std::string origin() const {
    const auto found = metadata_.find(kOrigin);
    return found == metadata_.end() ? "" : found->second;
  }
  // The file, or the folder of several.
  std::filesystem::path path() const { return source_->path(); }
  // The type and the values of a tensor. Both functions throw as SafetensorsFile.
  Type type(std::string_view name) const { return source_->type(name); }
  HostTensor read(std::string_view name) const { return source_->read(name); }

 private:
  std::shared_ptr<const TensorSource> source_;
  Metadata metadata_;
  bool is_published_ = false;
};

}  // namespace tracestep
